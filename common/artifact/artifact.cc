// Tested by tests/unit/codec/artifact_report_test.cc
#include "common/artifact/artifact.h"

namespace fuseline {
namespace {

int64_t Sum(const std::vector<KernelReport>& kernels, int64_t KernelReport::*field) {
  int64_t sum = 0;
  for (const KernelReport& kernel : kernels) sum += kernel.*field;
  return sum;
}

}  // namespace

int64_t ArtifactReport::kernels_before() const { return Sum(kernels, &KernelReport::unfused_kernels); }
int64_t ArtifactReport::transfers_before() const { return Sum(kernels, &KernelReport::unfused_transfers); }
int64_t ArtifactReport::transfers_after() const {
  return Sum(kernels, &KernelReport::tensors_read) + Sum(kernels, &KernelReport::tensors_written);
}
int64_t ArtifactReport::bytes_before() const { return Sum(kernels, &KernelReport::unfused_bytes); }
int64_t ArtifactReport::bytes_after() const {
  return Sum(kernels, &KernelReport::bytes_read) + Sum(kernels, &KernelReport::bytes_written);
}

}  // namespace fuseline
