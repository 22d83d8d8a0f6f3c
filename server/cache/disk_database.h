// The RocksDB database of the disk level: whose a folder is, opening it, and moving aside one that is no use.
// Pipeline: a folder -> DiskDatabase::Open -> an open database of this format version.
// A marker file says that a folder is this program's, and is locked while the database is open. Only files that RocksDB
// made, in a folder with the marker, are ever moved or removed; docs/cache_format.md has the rules.
// Thread-safety: Open from any thread; the database is thread-safe.
// Errors of Open: UNAVAILABLE where another process has the folder, FAILED_PRECONDITION where it is not this program's,
// INTERNAL (kInputOutput) for what the file system or the database says.
// Tested by tests/unit/server/disk_database_test.cc
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/cache/artifact_store.h"

namespace rocksdb {
class DB;
class Env;
class Status;
}  // namespace rocksdb

namespace fuseline::cache {

class DiskDatabase {
 public:
  struct Options {
    bool start_anew = false;      // the database that is there is moved aside
    Report report;                // what was moved or removed, and why
    rocksdb::Env* env = nullptr;  // the operating system as the database sees it; null: as it is
  };
  static absl::StatusOr<std::unique_ptr<DiskDatabase>> Open(const std::string& directory, const Options& options);
  ~DiskDatabase();
  DiskDatabase(const DiskDatabase&) = delete;
  DiskDatabase& operator=(const DiskDatabase&) = delete;

  rocksdb::DB& operator*() const { return *db_; }
  rocksdb::DB* operator->() const { return db_.get(); }

 private:
  DiskDatabase(int lock, std::unique_ptr<rocksdb::DB> db);

  const int lock_;  // the marker's file descriptor
  std::unique_ptr<rocksdb::DB> db_;
};

// Whether `status` says that the database's files are damaged, and not that the system would not let them be read.
bool IsDamage(const rocksdb::Status& status);
// `what` and the database's own words: DATA_LOSS for a damaged one, else INTERNAL.
absl::Status DatabaseError(const std::string& what, const rocksdb::Status& status);

}  // namespace fuseline::cache
