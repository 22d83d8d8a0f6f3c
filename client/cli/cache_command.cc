// fuseline cache stats|export|import|evict|warm. Tested by tests/e2e/cache_file_test.cc
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "client/cli/command.h"
#include "client/cli/file_io.h"
#include "client/cli/json_output.h"
#include "client/cli/lock_file.h"
#include "client/cli/text_output.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::cli {
namespace {

absl::StatusOr<int> RunCacheStats(CommandContext& context) {
  FUSELINE_ASSIGN_OR_RETURN(Backend * backend, context.GetBackend());
  FUSELINE_ASSIGN_OR_RETURN(const CacheStats stats, backend->GetCacheStats());
  if (context.json()) {
    Json levels = Json::array();
    for (const client::CacheLevelStats& l : stats.levels) {
      levels.push_back({{"level", l.level},
                        {"entries", l.entries},
                        {"size_bytes", l.size_bytes},
                        {"hits", l.hits},
                        {"misses", l.misses},
                        {"corrupt", l.corrupt},
                        {"unsigned", l.unsigned_entries},
                        {"evictions", l.evictions},
                        {"errors", l.errors}});
    }
    PrintJson({{"builds", stats.builds},
               {"joins", stats.joins},
               {"known_errors", stats.known_errors},
               {"levels", std::move(levels)}});
    return 0;
  }
  std::cout << "builds " << stats.builds << ", joined " << stats.joins << ", known errors " << stats.known_errors
            << "\n";
  std::cout << absl::StreamFormat("%-10s %8s %10s %8s %8s %8s %10s %7s\n", "level", "entries", "size", "hits", "misses",
                                  "corrupt", "evictions", "errors");
  for (const client::CacheLevelStats& l : stats.levels) {
    std::cout << absl::StreamFormat("%-10s %8d %10s %8d %8d %8d %10d %7d\n", l.level, l.entries,
                                    BytesText(static_cast<double>(l.size_bytes)), l.hits, l.misses, l.corrupt,
                                    l.evictions, l.errors);
  }
  std::cout << std::flush;
  return 0;
}

struct ExportFlags {
  std::string file;
  std::vector<std::string> fingerprints;
  std::string lock;
};

struct EvictFlags {
  std::vector<std::string> fingerprints;
  bool all = false;
  std::string unused_for;
};

absl::StatusOr<std::vector<Fingerprint>> ParseFingerprints(const std::vector<std::string>& list) {
  std::vector<Fingerprint> fingerprints;
  for (const std::string& hex : list) {
    FUSELINE_ASSIGN_OR_RETURN(const Fingerprint fingerprint, ParseFingerprint(hex));
    fingerprints.push_back(fingerprint);
  }
  return fingerprints;
}

absl::Status FileError(const std::string& path, const char* what) {
  const absl::StatusCode code = errno == ENOENT ? absl::StatusCode::kNotFound : absl::StatusCode::kFailedPrecondition;
  return MakeError(code, ErrorReason::kInputOutput, path,
                   absl::StrCat("can't ", what, " '", path, "': ", std::strerror(errno)));
}

// Written beside its place and moved there once it is whole.
absl::StatusOr<int> RunCacheExport(const ExportFlags& flags, CommandContext& context) {
  FUSELINE_ASSIGN_OR_RETURN(std::vector<Fingerprint> fingerprints, ParseFingerprints(flags.fingerprints));
  if (!flags.lock.empty()) {
    FUSELINE_ASSIGN_OR_RETURN(const std::string text, ReadFile(flags.lock));
    const absl::StatusOr<std::vector<LockEntry>> entries = ReadLockFile(text);
    if (!entries.ok()) return Wrap(entries.status(), flags.lock);
    for (const LockEntry& entry : *entries) fingerprints.push_back(entry.fingerprint);
    if (fingerprints.empty()) return InvalidArgument(ErrorReason::kOptionInvalid, "lock", "the lock file has no entry");
  }
  FUSELINE_RETURN_IF_ERROR(context.NeedsOneCache());
  // What takes its place by a rename must not be a device or a pipe.
  std::error_code error;
  if (std::filesystem::exists(flags.file, error) && !std::filesystem::is_regular_file(flags.file, error)) {
    return InvalidArgument(ErrorReason::kOptionInvalid, flags.file,
                           absl::StrCat("'", flags.file, "' is no regular file"));
  }
  FUSELINE_ASSIGN_OR_RETURN(Backend * backend, context.GetBackend());
  const std::string temporary = absl::StrCat(flags.file, ".part");
  std::ofstream file;
  int64_t size_bytes = 0;
  absl::Status status = backend->ExportCache(fingerprints, [&](int64_t offset, std::string_view bytes) -> absl::Status {
    if (offset == 0) {
      file.close();
      file.clear();
      file.open(temporary, std::ios::binary | std::ios::trunc);
      if (!file) return FileError(temporary, "write");
    }
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    size_bytes = offset + static_cast<int64_t>(bytes.size());
    context.Progress(BytesText(static_cast<double>(size_bytes)));
    return file ? absl::OkStatus() : FileError(temporary, "write");
  });
  file.close();
  context.ClearProgress();
  if (status.ok() && file.fail()) status = FileError(temporary, "write");
  if (status.ok() && std::rename(temporary.c_str(), flags.file.c_str()) != 0) status = FileError(flags.file, "write");
  if (!status.ok()) {
    std::remove(temporary.c_str());
    return status;
  }
  if (context.json()) {
    PrintJson({{"file", flags.file}, {"size_bytes", size_bytes}});
  } else {
    std::cout << "exported " << BytesText(static_cast<double>(size_bytes)) << " to " << flags.file << std::endl;
  }
  return 0;
}

absl::StatusOr<int> RunCacheImport(const std::string& path, CommandContext& context) {
  FUSELINE_RETURN_IF_ERROR(context.NeedsOneCache());
  FUSELINE_ASSIGN_OR_RETURN(Backend * backend, context.GetBackend());
  std::ifstream file(path, std::ios::binary);
  if (!file) return FileError(path, "read");
  int64_t position = 0;
  FUSELINE_ASSIGN_OR_RETURN(const ImportResult result,
                            backend->ImportCache([&](int64_t offset) -> absl::StatusOr<std::string> {
                              constexpr size_t kPieceBytes = size_t{1} << 20;
                              std::string bytes(kPieceBytes, '\0');
                              // Sent again from further front after a broken connection. A pipe can't go back.
                              if (offset != position) {
                                file.clear();
                                if (!file.seekg(offset)) return FileError(path, "read again");
                              }
                              file.read(bytes.data(), kPieceBytes);
                              if (file.bad()) return FileError(path, "read");
                              bytes.resize(static_cast<size_t>(file.gcount()));
                              position = offset + file.gcount();
                              context.Progress(BytesText(static_cast<double>(offset)));
                              return bytes;
                            }));
  context.ClearProgress();
  if (context.json()) {
    PrintJson({{"imported", result.imported},
               {"present", result.present},
               {"refused", result.refused},
               {"first_refusal", result.first_refusal}});
  } else {
    std::cout << result.imported << " imported, " << result.present << " there already, " << result.refused
              << " refused\n";
    if (result.refused > 0) std::cerr << "refused: " << result.first_refusal << "\n";
  }
  return result.refused > 0 ? 1 : 0;
}

absl::StatusOr<int> RunCacheEvict(const EvictFlags& flags, CommandContext& context) {
  EvictOptions options;
  FUSELINE_ASSIGN_OR_RETURN(options.fingerprints, ParseFingerprints(flags.fingerprints));
  options.all = flags.all;
  const bool by_age = !flags.unused_for.empty();
  if (by_age &&
      (!absl::ParseDuration(flags.unused_for, &options.unused_for) || options.unused_for <= absl::ZeroDuration())) {
    return InvalidArgument(ErrorReason::kOptionInvalid, "--unused-for",
                           absl::StrCat("'", flags.unused_for, "' is no time above zero: 36h, 90m, …"));
  }
  if ((options.fingerprints.empty() ? 0 : 1) + (options.all ? 1 : 0) + (by_age ? 1 : 0) != 1) {
    return InvalidArgument(ErrorReason::kOptionInvalid, "fingerprint",
                           "say what to drop: fingerprints, --unused-for or --all");
  }
  FUSELINE_RETURN_IF_ERROR(context.NeedsOneCache());
  FUSELINE_ASSIGN_OR_RETURN(Backend * backend, context.GetBackend());
  FUSELINE_ASSIGN_OR_RETURN(const EvictResult result, backend->EvictCache(options));
  if (context.json()) {
    PrintJson({{"evicted", result.entries}, {"size_bytes", result.size_bytes}});
  } else {
    std::cout << result.entries << " evicted, " << BytesText(static_cast<double>(result.size_bytes)) << std::endl;
  }
  return 0;
}

}  // namespace

void RegisterCacheCommand(CLI::App& app, const SetBody& set_body) {
  CLI::App* command = app.add_subcommand("cache", "the kernel cache");
  command->require_subcommand(1);
  command->add_subcommand("stats", "entries, hits and misses of each level")->callback([=] {
    set_body(RunCacheStats);
  });
  auto to = std::make_shared<ExportFlags>();
  CLI::App* export_command = command->add_subcommand("export", "write entries to one file, to carry them elsewhere");
  export_command->add_option("file", to->file, "FILE to write")->required();
  export_command->add_option("--fingerprint", to->fingerprints, "an entry; may be repeated; default: all")
      ->expected(1)
      ->take_all();
  export_command->add_option("--lock", to->lock, "the entries of a lock file");
  export_command->callback([=] { set_body([to](CommandContext& context) { return RunCacheExport(*to, context); }); });

  auto from = std::make_shared<std::string>();
  CLI::App* import_command = command->add_subcommand("import", "take entries from such a file");
  import_command->add_option("file", *from, "FILE that `cache export` wrote")->required();
  import_command->callback(
      [=] { set_body([from](CommandContext& context) { return RunCacheImport(*from, context); }); });

  auto what = std::make_shared<EvictFlags>();
  CLI::App* evict_command = command->add_subcommand("evict", "drop entries");
  evict_command->add_option("fingerprint", what->fingerprints, "FINGERPRINT…: these entries");
  evict_command->add_option("--unused-for", what->unused_for, "entries that nobody has used for so long: 36h, 90m, …");
  evict_command->add_flag("--all", what->all, "every entry");
  evict_command->callback([=] { set_body([what](CommandContext& context) { return RunCacheEvict(*what, context); }); });

  RegisterWarmCommand(*command, set_body);
}

}  // namespace fuseline::cli
