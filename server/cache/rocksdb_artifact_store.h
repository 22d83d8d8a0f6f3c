// The disk level on an operating system that a test stands in for. Everyone else: MakeRocksDbStore.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/cache/artifact_store.h"

namespace rocksdb {
class Env;
}  // namespace rocksdb

namespace fuseline::cache {

// As MakeRocksDbStore; `env` must outlive the store; null: the system as it is.
absl::StatusOr<std::unique_ptr<ArtifactStore>> OpenRocksDbStore(const std::string& directory,
                                                                const RocksDbOptions& options, rocksdb::Env* env);

}  // namespace fuseline::cache
