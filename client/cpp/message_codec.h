// The client's types <-> messages of fuseline.v1. Included only by the client library's .cc files and their tests.
// Thread-safety: pure functions. Errors: INTERNAL where a message of the server makes no sense.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "common/launch/block_pool.h"
#include "fuseline/v1/admin_service.pb.h"
#include "fuseline/v1/compile_service.pb.h"
#include "fuseline/v1/execute_service.pb.h"

namespace fuseline::client {

// Everything of the spec but its source (graph or fingerprint).
void SpecFieldsToProto(const CompileSpec& spec, v1::CompileSpec* proto);
void TensorToProto(const Tensor& tensor, v1::Tensor* proto);
absl::StatusOr<Tensor> TensorFromProto(const v1::Tensor& proto);
// Uninitialised storage for a tensor whose data comes in chunks; nothing of `proto.data()` is read. Errors: also
// RESOURCE_EXHAUSTED (kDeviceMemory).
absl::StatusOr<Tensor> AllocateFromProto(const v1::Tensor& proto, launch::BlockPool& pool);
absl::StatusOr<KeptTensor> KeptTensorFromProto(const v1::KeptTensor& proto);
absl::Duration DurationFromProto(const google::protobuf::Duration& proto);
void DurationToProto(absl::Duration duration, google::protobuf::Duration* proto);
absl::StatusOr<CompileSummary> SummaryFromProto(const v1::CompileSummary& proto);
ArtifactReport ReportFromProto(const v1::Report& proto);
OutputComparison ComparisonFromProto(const v1::OutputComparison& proto);
ServerInfo ServerInfoFromProto(const v1::GetServerInfoResponse& proto);
CacheStats CacheStatsFromProto(const v1::GetCacheStatsResponse& proto);
MissReport MissReportFromProto(const v1::MissReport& proto);

}  // namespace fuseline::client
