#include "common/launch/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

namespace fuseline::launch {
namespace {

constexpr char kGroupRoot[] = "/sys/fs/cgroup";

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// -1 for "max", and where there is no number.
int64_t ParseBytes(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end != text.data() ? value : -1;
}

struct Group {
  std::string limit_file;
  std::string used_file;
  std::string statistics_file;
  std::string reclaimable;  // its name in the statistics
};

// The memory control groups that this process is in, outermost last. Within a container only its own is seen, at the
// root.
std::vector<Group> MemoryGroups() {
  std::vector<Group> groups;
  std::istringstream lines(ReadFile("/proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    // "0::/a/b" (version 2) or "5:memory:/a/b" (version 1).
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && controllers != "memory") continue;
    const std::string root = unified ? kGroupRoot : std::string(kGroupRoot) + "/memory";
    std::string path = line.substr(second + 1);
    while (true) {
      const std::string folder = root + (path == "/" ? "" : path);
      groups.push_back(
          unified ? Group{folder + "/memory.max", folder + "/memory.current", folder + "/memory.stat", "inactive_file"}
                  : Group{folder + "/memory.limit_in_bytes", folder + "/memory.usage_in_bytes", folder + "/memory.stat",
                          "total_inactive_file"});
      const size_t slash = path.rfind('/');
      if (slash == std::string::npos || path.size() <= 1) break;
      path = slash == 0 ? "/" : path.substr(0, slash);
    }
  }
  return groups;
}

int64_t PhysicalBytes() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  const int64_t page_bytes = sysconf(_SC_PAGESIZE);
  return pages > 0 && page_bytes > 0 ? pages * page_bytes : INT64_MAX;
}

// The bytes of a group's page cache that it would give up first.
int64_t ReclaimableBytes(const Group& group) {
  std::istringstream lines(ReadFile(group.statistics_file));
  for (std::string line; std::getline(lines, line);) {
    const size_t space = line.find(' ');
    if (space != std::string::npos && line.compare(0, space, group.reclaimable) == 0)
      return std::max<int64_t>(0, ParseBytes(std::string_view(line).substr(space + 1)));
  }
  return 0;
}

}  // namespace

int64_t HostMemoryLimitBytes() {
  int64_t limit = PhysicalBytes();
  for (const Group& group : MemoryGroups()) {
    const int64_t bytes = ParseBytes(ReadFile(group.limit_file));
    if (bytes > 0) limit = std::min(limit, bytes);
  }
  return limit;
}

int64_t HostMemoryAvailableBytes() {
  int64_t available = MemInfoBytes(ReadFile("/proc/meminfo"), "MemAvailable");
  if (available < 0) available = INT64_MAX;
  for (const Group& group : MemoryGroups()) {
    const int64_t limit = ParseBytes(ReadFile(group.limit_file));
    const int64_t used = ParseBytes(ReadFile(group.used_file));
    if (limit <= 0 || used < 0 || limit >= PhysicalBytes()) continue;
    available = std::min(available, std::max<int64_t>(0, limit - used + ReclaimableBytes(group)));
  }
  return available;
}

int64_t MemInfoBytes(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.size() <= name.size() || line.compare(0, name.size(), name) != 0 || line[name.size()] != ':') continue;
    const size_t digit = line.find_first_of("0123456789");
    if (digit == std::string::npos) return -1;
    const int64_t kibibytes = ParseBytes(std::string_view(line).substr(digit));
    return kibibytes < 0 || kibibytes > INT64_MAX / 1024 ? -1 : kibibytes * 1024;
  }
  return -1;
}

}  // namespace fuseline::launch
