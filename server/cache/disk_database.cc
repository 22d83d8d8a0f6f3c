#include "server/cache/disk_database.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "rocksdb/convenience.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/filter_policy.h"
#include "rocksdb/table.h"

namespace fuseline::cache {
namespace {

namespace fs = std::filesystem;

constexpr char kVersionKey[] = "version";
constexpr char kFormatVersion[] = "1";
constexpr char kMarker[] = "FUSELINE_CACHE";
constexpr char kMarkerText[] =
    "This folder is a cache of fuseline. It may be deleted while no server uses it: what was in it is compiled "
    "again.\n";
constexpr char kAsidePrefix[] = "broken-";
constexpr size_t kMostAsides = 3;
// Of the files that the process may open, the database takes at most a quarter, and never more than it needs.
constexpr int kMostOpenFiles = 256;
constexpr int kLeastOpenFiles = 16;

absl::Status FileError(const std::string& what, const std::string& why) {
  return MakeError(absl::StatusCode::kInternal, ErrorReason::kInputOutput, "cache", StrCat("cache: ", what, ": ", why));
}

absl::Status Foreign(const std::string& directory, const std::string& why) {
  return MakeError(
      absl::StatusCode::kFailedPrecondition, ErrorReason::kInputOutput, "cache",
      StrCat("cache: '", directory, "' ", why, ", so it is left alone: give the cache a folder of its own"));
}

int OpenFilesLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kMostOpenFiles;
  return static_cast<int>(std::clamp<rlim_t>(limit.rlim_cur / 4, kLeastOpenFiles, kMostOpenFiles));
}

rocksdb::Options DatabaseOptions(rocksdb::Env* env) {
  rocksdb::Options options;
  if (env != nullptr) options.env = env;
  options.create_if_missing = true;
  options.paranoid_checks = true;
  // RocksDB's own log: errors only, and little of it.
  options.info_log_level = rocksdb::InfoLogLevel::ERROR_LEVEL;
  options.keep_log_file_num = 2;
  options.max_log_file_size = 1 << 20;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  // Memory: two write buffers and the block cache.
  options.write_buffer_size = 16 << 20;
  options.max_write_buffer_number = 2;
  options.max_total_wal_size = 64 << 20;
  options.max_open_files = OpenFilesLimit();
  options.max_background_jobs = 2;
  // The log of writes has all; closing need not wait for more.
  options.avoid_flush_during_shutdown = true;
  // What fails is opened anew from outside.
  options.max_bgerror_resume_count = 0;
  const std::vector<rocksdb::CompressionType> known = rocksdb::GetSupportedCompressions();
  const bool has_lz4 = std::find(known.begin(), known.end(), rocksdb::kLZ4Compression) != known.end();
  options.compression = has_lz4 ? rocksdb::kLZ4Compression : rocksdb::kNoCompression;
  rocksdb::BlockBasedTableOptions table;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));  // absent keys cost no read
  table.block_cache = rocksdb::NewLRUCache(16 << 20);
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

// A look at a database that may be another's leaves no log there.
class NoLog : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char* format, va_list arguments) override {}
};

bool IsRocksDbFile(const std::string& name) {
  for (const char* exact : {"CURRENT", "IDENTITY", "LOCK", "LOG"}) {
    if (name == exact) return true;
  }
  for (const char* prefix : {"MANIFEST-", "OPTIONS-", "LOG.old."}) {
    if (name.starts_with(prefix)) return true;
  }
  if (name.empty() || name[0] < '0' || name[0] > '9') return false;
  for (const char* suffix : {".sst", ".ldb", ".log", ".blob", ".dbtmp", ".trash"}) {
    if (name.ends_with(suffix)) return true;
  }
  return false;
}

// Whether a folder's name is one that MoveAside gives.
bool IsAside(const std::string& name) {
  return name.starts_with(kAsidePrefix) &&
         name.find_first_not_of("0123456789-.", sizeof(kAsidePrefix) - 1) == std::string::npos;
}

// What lies in a folder.
struct Contents {
  bool has_marker = false;
  bool has_current = false;
  bool has_data = false;  // tables, or a log of writes that is not empty
  std::vector<std::string> database_files;
  std::vector<std::string> asides;  // oldest first
  std::string foreign;              // something that is not ours; empty: nothing is
};

absl::StatusOr<Contents> ListContents(const std::string& directory) {
  Contents contents;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code unknown;  // of one entry: it counts as another's
    if (name == kMarker) {
      contents.has_marker = true;
    } else if (name[0] == '.') {
      // .gitkeep, .snapshot and the like make no folder another's.
    } else if (it->is_directory(unknown)) {
      if (IsAside(name)) {
        contents.asides.push_back(name);
      } else if (name != "lost+found") {
        contents.foreign = name;
      }
    } else if (IsRocksDbFile(name)) {
      contents.database_files.push_back(name);
      contents.has_current |= name == "CURRENT";
      contents.has_data |= name.ends_with(".sst") || (name.ends_with(".log") && it->file_size(unknown) > 0);
    } else {
      contents.foreign = name;
    }
  }
  if (error) return FileError(StrCat("can't read '", directory, "'"), error.message());
  std::sort(contents.asides.begin(), contents.asides.end());
  return contents;
}

// Whether a folder without the marker may be used: one that has nothing in it, or a cache from before the marker.
absl::Status CheckUnmarked(const std::string& directory, const Contents& contents, rocksdb::Env* env) {
  if (contents.database_files.empty()) {
    if (contents.foreign.empty()) return absl::OkStatus();
    return Foreign(directory, StrCat("holds other files ('", contents.foreign, "')"));
  }
  // Without data RocksDB had just begun.
  if (!contents.has_current && !contents.has_data && contents.foreign.empty()) return absl::OkStatus();
  rocksdb::Options options = DatabaseOptions(env);
  options.create_if_missing = false;
  options.info_log = std::make_shared<NoLog>();
  rocksdb::DB* opened = nullptr;
  const rocksdb::Status status = rocksdb::DB::OpenForReadOnly(options, directory, &opened);
  const std::unique_ptr<rocksdb::DB> db(opened);
  std::string version;
  if (status.ok() && db->Get({}, kVersionKey, &version).ok()) return absl::OkStatus();
  return Foreign(directory, "holds a database that is not known to be a cache of this program");
}

// Makes the marker where absent, and locks it for as long as the descriptor is open.
absl::StatusOr<int> LockMarker(const std::string& directory) {
  const std::string path = StrCat(directory, "/", kMarker);
  const int marker = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (marker < 0) return FileError(StrCat("can't open '", path, "'"), strerror(errno));
  if (flock(marker, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    close(marker);
    if (error != EWOULDBLOCK) return FileError(StrCat("can't lock '", path, "'"), strerror(error));
    return MakeError(absl::StatusCode::kUnavailable, ErrorReason::kInputOutput, "cache",
                     StrCat("cache: '", directory, "' is in use: another server has the lock"));
  }
  // The text is for people; that it can't be written is found out by the database as well.
  if (lseek(marker, 0, SEEK_END) == 0) {
    if (write(marker, kMarkerText, sizeof(kMarkerText) - 1) < 0) {
      const int error = errno;
      close(marker);
      return FileError(StrCat("can't write '", path, "'"), strerror(error));
    }
  }
  return marker;
}

void RemoveOldAsides(const std::string& directory, std::vector<std::string> asides, const Report& report) {
  while (asides.size() > kMostAsides) {
    const std::string oldest = StrCat(directory, "/", asides.front());
    asides.erase(asides.begin());
    std::error_code error;
    fs::remove_all(oldest, error);
    if (report) {
      report(error ? StrCat("cache: can't remove '", oldest, "': ", error.message())
                   : StrCat("cache: removed '", oldest, "', the oldest of more than ", kMostAsides, " moved aside"));
    }
  }
}

// CURRENT goes first: a move that is cut short leaves what is seen to be broken, never half a database that opens.
absl::Status MoveAside(const std::string& directory, const std::string& why, const Report& report) {
  FUSELINE_ASSIGN_OR_RETURN(Contents contents, ListContents(directory));
  const std::string stamp = StrCat(kAsidePrefix, absl::FormatTime("%Y%m%d-%H%M%E3S", absl::Now(), absl::UTCTimeZone()));
  std::string name = stamp;
  std::error_code error;
  for (int n = 2; !fs::create_directory(StrCat(directory, "/", name), error) && !error && n < 1000; ++n)
    name = StrCat(stamp, "-", n);
  const std::string aside = StrCat(directory, "/", name);
  std::vector<std::string>& files = contents.database_files;
  std::stable_partition(files.begin(), files.end(), [](const std::string& file) { return file == "CURRENT"; });
  for (size_t i = 0; i < files.size() && !error; ++i)
    fs::rename(StrCat(directory, "/", files[i]), StrCat(aside, "/", files[i]), error);
  if (error) return FileError(StrCat("can't move the database in '", directory, "' aside"), error.message());
  if (report) report(StrCat("cache: moved the database to '", aside, "' and began anew: ", why));
  contents.asides.push_back(name);
  std::sort(contents.asides.begin(), contents.asides.end());
  RemoveOldAsides(directory, std::move(contents.asides), report);
  return absl::OkStatus();
}

bool SaysAbsent(const rocksdb::Status& status) {
  return status.IsPathNotFound() || status.ToString().find("No such file") != std::string::npos;
}

// RocksDB may wrap what the system said (a lock, a full disk, missing rights or file descriptors) in a status of
// another kind: the text tells.
bool SaysSystemFailed(const rocksdb::Status& status) {
  return status.ToString().find("IO error") != std::string::npos && !SaysAbsent(status);
}

// Whether `status`, of opening, says that the files themselves are bad.
bool IsBroken(const rocksdb::Status& status, const std::string& directory) {
  if (SaysSystemFailed(status)) return false;
  if (status.IsCorruption() || status.IsInvalidArgument() || status.IsNotSupported()) return true;
  // A file of the database is gone while the database is not.
  std::error_code error;
  return SaysAbsent(status) && fs::exists(directory + "/CURRENT", error);
}

// Opens the database and checks its format version, which a new one gets. `broken`: the files are no use to this
// program.
absl::StatusOr<std::unique_ptr<rocksdb::DB>> OpenDatabase(const std::string& directory, rocksdb::Env* env,
                                                          bool& broken) {
  rocksdb::DB* opened = nullptr;
  const rocksdb::Status status = rocksdb::DB::Open(DatabaseOptions(env), directory, &opened);
  std::unique_ptr<rocksdb::DB> db(opened);
  if (!status.ok()) {
    broken = IsBroken(status, directory);
    return DatabaseError(StrCat("open '", directory, "'"), status);
  }
  std::string version;
  const rocksdb::Status read = db->Get({}, kVersionKey, &version);
  if (read.ok() && version == kFormatVersion) return db;
  if (read.ok()) {
    broken = true;
    return MakeError(
        absl::StatusCode::kFailedPrecondition, ErrorReason::kInputOutput, "cache",
        StrCat("cache: '", directory, "' has format version ", version, ", this program's is ", kFormatVersion));
  }
  const std::unique_ptr<rocksdb::Iterator> records(db->NewIterator({}));
  records->SeekToFirst();
  if (!read.IsNotFound() || records->Valid() || !records->status().ok()) {
    const rocksdb::Status why = read.IsNotFound() ? records->status() : read;
    broken = why.ok() || IsDamage(why);
    return DatabaseError(StrCat("'", directory, "' has no format version"), why.ok() ? read : why);
  }
  rocksdb::WriteOptions durable;
  durable.sync = true;
  const rocksdb::Status written = db->Put(durable, kVersionKey, kFormatVersion);
  if (!written.ok()) return DatabaseError(StrCat("write to '", directory, "'"), written);
  return db;
}

absl::StatusOr<std::unique_ptr<rocksdb::DB>> OpenOrStartAnew(const std::string& directory,
                                                             const DiskDatabase::Options& options) {
  FUSELINE_ASSIGN_OR_RETURN(const Contents contents, ListContents(directory));
  std::string why;
  if (!contents.has_current && contents.has_data) {
    why = "its file CURRENT is missing";
  } else if (options.start_anew && !contents.database_files.empty()) {
    why = "it failed while it was in use";
  } else {
    bool broken = false;
    absl::StatusOr<std::unique_ptr<rocksdb::DB>> db = OpenDatabase(directory, options.env, broken);
    if (db.ok() || !broken) return db;
    why = std::string(db.status().message());
  }
  FUSELINE_RETURN_IF_ERROR(MoveAside(directory, why, options.report));
  bool broken = false;
  return OpenDatabase(directory, options.env, broken);
}

}  // namespace

bool IsDamage(const rocksdb::Status& status) { return status.IsCorruption() && !SaysSystemFailed(status); }

absl::Status DatabaseError(const std::string& what, const rocksdb::Status& status) {
  const bool is_damage = IsDamage(status);
  return MakeError(is_damage ? absl::StatusCode::kDataLoss : absl::StatusCode::kInternal,
                   is_damage ? ErrorReason::kDataLoss : ErrorReason::kInputOutput, "cache",
                   StrCat("cache: ", what, ": ", status.ToString()));
}

absl::StatusOr<std::unique_ptr<DiskDatabase>> DiskDatabase::Open(const std::string& directory, const Options& options) {
  std::error_code error;
  if (fs::exists(directory, error) && !fs::is_directory(directory, error)) return Foreign(directory, "is a file");
  fs::create_directories(directory, error);
  if (error) return FileError(StrCat("can't make '", directory, "'"), error.message());
  FUSELINE_ASSIGN_OR_RETURN(const Contents contents, ListContents(directory));
  if (!contents.has_marker) FUSELINE_RETURN_IF_ERROR(CheckUnmarked(directory, contents, options.env));
  FUSELINE_ASSIGN_OR_RETURN(const int lock, LockMarker(directory));
  absl::StatusOr<std::unique_ptr<rocksdb::DB>> db = OpenOrStartAnew(directory, options);
  if (!db.ok()) {
    close(lock);
    return db.status();
  }
  return std::unique_ptr<DiskDatabase>(new DiskDatabase(lock, *std::move(db)));
}

DiskDatabase::DiskDatabase(int lock, std::unique_ptr<rocksdb::DB> db) : lock_(lock), db_(std::move(db)) {}

DiskDatabase::~DiskDatabase() {
  db_.reset();
  close(lock_);
}

}  // namespace fuseline::cache
