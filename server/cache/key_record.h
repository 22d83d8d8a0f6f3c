// What an entry's key is made of, beside the entry: whose key it is, and a short digest of each field, so that the
// entry that is nearest to a key which was not found can be told without reading artifacts.
// Pipeline: Artifact -> MakeKeyRecord -> bytes in a level -> DecodeKeyRecord -> CommonFields.
// It is a hint: what it says is looked up in the artifact before it is shown.
// Thread-safety: pure functions. Tested by tests/unit/server/key_record_test.cc
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/artifact/artifact.h"
#include "common/fingerprint/fingerprint.h"
#include "server/cache/artifact_store.h"

namespace fuseline::cache {

struct KeyRecord {
  using FieldDigest = std::array<uint8_t, 8>;
  Fingerprint fingerprint;
  // Of the graph's inputs, of its nodes, and then of each field of ExplainKey but for the graph.
  std::vector<FieldDigest> fields;
};

KeyRecord MakeKeyRecord(const Fingerprint& fingerprint, const FingerprintInputs& inputs);
KeyRecord MakeKeyRecord(const Fingerprint& fingerprint, const Artifact& artifact);

std::string EncodeKeyRecord(const KeyRecord& record);
// Errors: INVALID_ARGUMENT (kDataLoss).
absl::StatusOr<KeyRecord> DecodeKeyRecord(std::string_view bytes);

// How near two keys are: the graph's nodes weigh more than all others, then its inputs, then each field. 0 where the
// records are of different versions.
int64_t Nearness(const KeyRecord& a, const KeyRecord& b);
// Looks at one entry more: it becomes `nearest` where it is nearer to `wanted`, and not that very key's.
void TakeNearer(const KeyRecord& wanted, const KeyRecord& entry, NearestEntry& nearest);

}  // namespace fuseline::cache
