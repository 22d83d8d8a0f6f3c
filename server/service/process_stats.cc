// Tested by tests/unit/service/metrics_test.cc
#include "server/service/process_stats.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace fuseline::service {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

}  // namespace

ProcessStats ReadProcessStats() {
  ProcessStats stats;
  std::ifstream status("/proc/self/status");
  for (std::string field; status >> field;) {
    if (field == "VmRSS:") {
      status >> stats.resident_bytes;
      stats.resident_bytes *= 1024;
    } else if (field == "Threads:") {
      status >> stats.threads;
    }
  }
  // Where no descriptor is left this can't be opened, which says as much.
  if (DIR* folder = opendir("/proc/self/fd"); folder != nullptr) {
    while (const dirent* entry = readdir(folder)) stats.open_files += entry->d_name[0] != '.' ? 1 : 0;
    --stats.open_files;  // the folder's own
    closedir(folder);
  }
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) stats.max_open_files = static_cast<int64_t>(limit.rlim_cur);
  rusage usage = {};
  if (getrusage(RUSAGE_SELF, &usage) == 0) stats.cpu_seconds = Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  return stats;
}

}  // namespace fuseline::service
