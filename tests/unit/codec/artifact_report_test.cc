#include <gtest/gtest.h>

#include "common/artifact/artifact.h"

namespace fuseline {
namespace {

TEST(ArtifactReportTest, TotalsAddUpOverKernels) {
  ArtifactReport report;
  EXPECT_EQ(report.kernels_after(), 0);
  EXPECT_EQ(report.bytes_before(), 0);
  KernelReport a;
  a.tensors_read = 3;
  a.tensors_written = 1;
  a.bytes_read = 300;
  a.bytes_written = 100;
  a.unfused_kernels = 3;
  a.unfused_transfers = 8;
  a.unfused_bytes = 800;
  KernelReport b = a;
  b.unfused_kernels = 1;
  report.kernels = {a, b};
  EXPECT_EQ(report.kernels_before(), 4);
  EXPECT_EQ(report.kernels_after(), 2);
  EXPECT_EQ(report.transfers_before(), 16);
  EXPECT_EQ(report.transfers_after(), 8);
  EXPECT_EQ(report.bytes_before(), 1600);
  EXPECT_EQ(report.bytes_after(), 800);
}

}  // namespace
}  // namespace fuseline
