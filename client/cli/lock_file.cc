#include "client/cli/lock_file.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/json_output.h"
#include "client/cpp/pinned_artifacts.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::cli {
namespace {

constexpr char kVersionKey[] = "fuseline_lock";
constexpr int kVersion = 1;
constexpr size_t kMaxTextBytes = size_t{64} << 20;
constexpr size_t kDigestDigits = 64;

absl::Status Bad(const std::string& message) {
  return InvalidArgument(ErrorReason::kInputOutput, "lock", absl::StrCat("lock file: ", message));
}

// One entry's fields; the first error stays.
class EntryReader {
 public:
  EntryReader(const Json& json, size_t index) : json_(json), where_(absl::StrCat("entries[", index, "]")) {}

  std::string Text(const char* key) {
    const auto it = json_.find(key);
    if (it != json_.end() && it->is_string()) return it->get<std::string>();
    Fail(key, "is no text");
    return "";
  }
  bool Flag(const Json& json, const char* key, bool missing) {
    const auto it = json.find(key);
    if (it == json.end()) return missing;
    if (it->is_boolean()) return it->get<bool>();
    Fail(key, "is neither true nor false");
    return missing;
  }
  // An object, empty where it is missing.
  Json Object(const char* key) {
    const auto it = json_.find(key);
    if (it == json_.end()) return Json::object();
    if (it->is_object()) return *it;
    Fail(key, "is no object");
    return Json::object();
  }
  template <typename T>
  void Take(const char* key, absl::StatusOr<T> value, T& place) {
    if (value.ok()) {
      place = *std::move(value);
    } else {
      Fail(key, std::string(value.status().message()));
    }
  }
  void Fail(const std::string& key, const std::string& message) {
    if (status_.ok()) status_ = Bad(absl::StrCat(where_, ".", key, " ", message));
  }
  const absl::Status& status() const { return status_; }

 private:
  const Json& json_;
  const std::string where_;
  absl::Status status_;
};

absl::StatusOr<LockEntry> ReadEntry(const Json& json, size_t index) {
  if (!json.is_object()) return Bad(absl::StrCat("entries[", index, "] is no object"));
  EntryReader reader(json, index);
  LockEntry entry;
  entry.graph = reader.Text("graph");
  reader.Take("target", ParseTarget(reader.Text("target")), entry.target);
  reader.Take("fingerprint", ParseFingerprint(reader.Text("fingerprint")), entry.fingerprint);
  entry.artifact_sha256 = reader.Text("artifact_sha256");
  if (entry.artifact_sha256.size() != kDigestDigits) reader.Fail("artifact_sha256", "is no SHA-256 in hex");
  const Json symbols = reader.Object("symbols");
  for (const auto& [name, size] : symbols.items()) {
    if (size.is_number_integer() && size.get<int64_t>() >= 0) {
      entry.symbols[name] = size.get<int64_t>();
    } else {
      reader.Fail(absl::StrCat("symbols.", name), "is no size");
    }
  }
  const Json options = reader.Object("options");
  if (options.contains("numerics")) {
    const Json& numerics = options["numerics"];
    reader.Take("options.numerics", ParseNumerics(numerics.is_string() ? numerics.get<std::string>() : ""),
                entry.options.numerics);
  }
  entry.options.fast_math = reader.Flag(options, "fast_math", entry.options.fast_math);
  entry.options.allow_tf32 = reader.Flag(options, "allow_tf32", entry.options.allow_tf32);
  entry.options.fuse = reader.Flag(options, "fuse", entry.options.fuse);
  if (!reader.status().ok()) return reader.status();
  return entry;
}

}  // namespace

std::string ArtifactDigest(const Artifact& artifact) { return client::ArtifactDigest(artifact); }

std::string WriteLockFile(const std::vector<LockEntry>& entries) {
  Json list = Json::array();
  for (const LockEntry& entry : entries) {
    Json symbols = Json::object();
    for (const auto& [name, size] : entry.symbols) symbols[name] = size;
    list.push_back({{"graph", entry.graph},
                    {"target", entry.target.ToString()},
                    {"symbols", std::move(symbols)},
                    {"options",
                     {{"numerics", NumericsName(entry.options.numerics)},
                      {"fast_math", entry.options.fast_math},
                      {"allow_tf32", entry.options.allow_tf32},
                      {"fuse", entry.options.fuse}}},
                    {"fingerprint", entry.fingerprint.ToHex()},
                    {"artifact_sha256", entry.artifact_sha256}});
  }
  const Json json = {{kVersionKey, kVersion}, {"entries", std::move(list)}};
  return json.dump(2) + "\n";
}

absl::StatusOr<std::vector<LockEntry>> ReadLockFile(std::string_view text) {
  if (text.size() > kMaxTextBytes) return Bad(absl::StrCat(text.size(), " bytes are too many"));
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains(kVersionKey)) return Bad("this is no lock file");
  if (json[kVersionKey] != kVersion)
    return Bad(absl::StrCat("version ", json[kVersionKey].dump(), ", this program reads ", kVersion));
  if (!json.contains("entries") || !json["entries"].is_array()) return Bad("entries is no list");
  std::vector<LockEntry> entries;
  for (const Json& item : json["entries"]) {
    FUSELINE_ASSIGN_OR_RETURN(LockEntry entry, ReadEntry(item, entries.size()));
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace fuseline::cli
