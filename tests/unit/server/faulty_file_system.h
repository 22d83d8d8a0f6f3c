// RocksDB's file system with a switch for what a disk can do to it: tests of the disk cache. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "rocksdb/env.h"
#include "rocksdb/file_system.h"

namespace fuseline::testing {

enum class DiskFault {
  kNone,
  kFull,           // writes fail
  kReadOnly,       // opening for writing and writes fail
  kNoDescriptors,  // opening fails
  kWriteError,     // writes fail
  kReadError,      // reads fail
};

class FaultyFileSystem : public rocksdb::FileSystemWrapper {
 public:
  FaultyFileSystem() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}

  const char* Name() const override { return "FaultyFileSystem"; }
  void Set(DiskFault fault) { fault_ = fault; }

  // What a write, a read or an opening meets.
  rocksdb::IOStatus Write() const {
    switch (fault_.load()) {
      case DiskFault::kFull:
        return rocksdb::IOStatus::NoSpace("injected: no space left on device");
      case DiskFault::kReadOnly:
        return rocksdb::IOStatus::IOError("injected: read-only file system");
      case DiskFault::kWriteError:
        return rocksdb::IOStatus::IOError("injected: input/output error");
      default:
        return rocksdb::IOStatus::OK();
    }
  }
  rocksdb::IOStatus Read() const {
    return fault_ == DiskFault::kReadError ? rocksdb::IOStatus::IOError("injected: input/output error")
                                           : rocksdb::IOStatus::OK();
  }
  rocksdb::IOStatus Open() const {
    return fault_ == DiskFault::kNoDescriptors ? rocksdb::IOStatus::IOError("injected: too many open files")
                                               : rocksdb::IOStatus::OK();
  }

  rocksdb::IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* result,
                                    rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus NewRandomAccessFile(const std::string& name, const rocksdb::FileOptions& options,
                                        std::unique_ptr<rocksdb::FSRandomAccessFile>* result,
                                        rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus NewSequentialFile(const std::string& name, const rocksdb::FileOptions& options,
                                      std::unique_ptr<rocksdb::FSSequentialFile>* result,
                                      rocksdb::IODebugContext* debug) override {
    rocksdb::IOStatus status = Open();
    if (status.ok()) status = Read();
    return status.ok() ? FileSystemWrapper::NewSequentialFile(name, options, result, debug) : status;
  }
  rocksdb::IOStatus RenameFile(const std::string& from, const std::string& to, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override {
    const rocksdb::IOStatus status = Write();
    return status.ok() ? FileSystemWrapper::RenameFile(from, to, options, debug) : status;
  }

 private:
  std::atomic<DiskFault> fault_{DiskFault::kNone};
};

class FaultyWritableFile : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  FaultyWritableFile(std::unique_ptr<rocksdb::FSWritableFile> file, const FaultyFileSystem& disk)
      : FSWritableFileOwnerWrapper(std::move(file)), disk_(disk) {}
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           rocksdb::IODebugContext* debug) override {
    const rocksdb::IOStatus status = disk_.Write();
    return status.ok() ? FSWritableFileWrapper::Append(data, options, debug) : status;
  }
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           const rocksdb::DataVerificationInfo& info, rocksdb::IODebugContext* debug) override {
    const rocksdb::IOStatus status = disk_.Write();
    return status.ok() ? FSWritableFileWrapper::Append(data, options, info, debug) : status;
  }
  rocksdb::IOStatus Sync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* debug) override {
    const rocksdb::IOStatus status = disk_.Write();
    return status.ok() ? FSWritableFileWrapper::Sync(options, debug) : status;
  }

 private:
  const FaultyFileSystem& disk_;
};

class FaultyRandomAccessFile : public rocksdb::FSRandomAccessFileOwnerWrapper {
 public:
  FaultyRandomAccessFile(std::unique_ptr<rocksdb::FSRandomAccessFile> file, const FaultyFileSystem& disk)
      : FSRandomAccessFileOwnerWrapper(std::move(file)), disk_(disk) {}
  rocksdb::IOStatus Read(uint64_t offset, size_t size, const rocksdb::IOOptions& options, rocksdb::Slice* result,
                         char* scratch, rocksdb::IODebugContext* debug) const override {
    const rocksdb::IOStatus status = disk_.Read();
    return status.ok() ? FSRandomAccessFileWrapper::Read(offset, size, options, result, scratch, debug) : status;
  }

 private:
  const FaultyFileSystem& disk_;
};

inline rocksdb::IOStatus FaultyFileSystem::NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                                           std::unique_ptr<rocksdb::FSWritableFile>* result,
                                                           rocksdb::IODebugContext* debug) {
  rocksdb::IOStatus status = Open();
  if (status.ok() && fault_ == DiskFault::kReadOnly) status = Write();
  if (status.ok()) status = FileSystemWrapper::NewWritableFile(name, options, result, debug);
  if (status.ok()) *result = std::make_unique<FaultyWritableFile>(std::move(*result), *this);
  return status;
}

inline rocksdb::IOStatus FaultyFileSystem::NewRandomAccessFile(const std::string& name,
                                                               const rocksdb::FileOptions& options,
                                                               std::unique_ptr<rocksdb::FSRandomAccessFile>* result,
                                                               rocksdb::IODebugContext* debug) {
  rocksdb::IOStatus status = Open();
  if (status.ok()) status = FileSystemWrapper::NewRandomAccessFile(name, options, result, debug);
  if (status.ok()) *result = std::make_unique<FaultyRandomAccessFile>(std::move(*result), *this);
  return status;
}

}  // namespace fuseline::testing
