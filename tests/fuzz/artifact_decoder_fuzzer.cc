// Bytes as an artifact: it is decoded and valid, or blamed, and what is decoded is encoded so that it reads back equal,
// with protobuf and without.
#include <string>
#include <vector>

#include "common/artifact/codec/artifact_codec.h"
#include "common/status/error.h"
#include "fuseline/v1/artifact.pb.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/message_fuzzer.h"

namespace fuseline::fuzz {
namespace {

[[maybe_unused]] std::vector<std::string> ArtifactWords() {
  return {"cpu", "cuda:sm_90", "cuda:sm_90a", "kernel", "", "1kernel", "lower", "fuse", "compile"};
}

}  // namespace
}  // namespace fuseline::fuzz

FUSELINE_MESSAGE_FUZZER(fuseline::v1::Artifact, fuseline::fuzz::ArtifactWords)

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fuseline;
  using namespace fuseline::fuzz;
  std::string bytes(AsText(data, size));
  if (IsProtoText(bytes)) {
    v1::Artifact message;
    if (!ParseMessage(bytes, &message)) return 0;
    bytes = message.SerializeAsString();
  }
  const absl::StatusOr<Artifact> read = ReadArtifact(bytes);
  RequireBlamesInput(read.status(), "read");
  if (read.ok()) RequireOk(ValidateArtifact(*read), "validate what was read");
  const absl::StatusOr<Artifact> artifact = DeserializeArtifact(bytes);
  RequireBlamesInput(artifact.status(), "decode");
  if (!artifact.ok()) {
    if (GetErrorReason(artifact.status()) != ErrorReason::kDataLoss)
      ReportFinding("decode", artifact.status().ToString());
    return 0;
  }
  RequireOk(ValidateArtifact(*artifact), "validate what was decoded");
  const std::string encoded = SerializeArtifact(*artifact);
  const absl::StatusOr<Artifact> again = DeserializeArtifact(encoded);
  RequireOk(again.status(), "decode what was encoded");
  RequireEqual(SerializeArtifact(*again), encoded, "encoded a second time");
  const absl::StatusOr<Artifact> reread = ReadArtifact(encoded);
  RequireOk(reread.status(), "read what was encoded");
  Artifact launched = *artifact;  // what the reader reads of it
  launched.report = {};
  for (KernelImage& kernel : launched.kernels) kernel.source.clear();
  RequireEqual(SerializeArtifact(*reread), SerializeArtifact(launched), "read without protobuf");
  return 0;
}
