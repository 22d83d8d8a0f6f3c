#include <gtest/gtest.h>

#include "common/artifact/artifact.h"
#include "common/artifact/report_names.h"

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

TEST(ArtifactReportTest, RenamingReplacesWholeNamesOnce) {
  ArtifactReport report;
  report.kernels.resize(1);
  report.kernels[0].ops = {"mul %v0", "var_mean %v1", "add %v10", "and 3 more"};
  report.refusals = {{"%v1 (part of var_mean)", "%v10", "the loops differ"}, {"%unknown", "%", "v0"}};
  // A client's names may look like canonical ones.
  RenameReportValues({{"v0", "v1"}, {"v1", "v0"}, {"v10", "y.0"}}, report);
  EXPECT_EQ(report.kernels[0].ops, (std::vector<std::string>{"mul %v1", "var_mean %v0", "add %y.0", "and 3 more"}));
  EXPECT_EQ(report.refusals[0].producer, "%v0 (part of var_mean)");
  EXPECT_EQ(report.refusals[0].consumer, "%y.0");
  EXPECT_EQ(report.refusals[0].reason, "the loops differ");
  EXPECT_EQ(report.refusals[1].producer, "%unknown");
  EXPECT_EQ(report.refusals[1].consumer, "%");
  EXPECT_EQ(report.refusals[1].reason, "v0");
}

}  // namespace
}  // namespace fuseline
