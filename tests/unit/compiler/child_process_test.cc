#include "server/compiler/child_process.h"

#include <unistd.h>
#include <algorithm>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::compiler {
namespace {

using ::fuseline::testing::IsOk;
using ::fuseline::testing::StatusIs;

TEST(ChildProcessTest, OutputOfBothStreamsAndExitCodeAreReturned) {
  const auto result = RunChildProcess({"/bin/sh", "-c", "echo out; echo err >&2; exit 3"}, {});
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->exit_code, 3);
  EXPECT_EQ(result->output, "out\nerr\n");
}

TEST(ChildProcessTest, EnvironmentIsAddedAndReplaced) {
  ChildProcessOptions options;
  options.environment = {"FUSELINE_X=1", "HOME=/nowhere"};
  const auto result = RunChildProcess({"/bin/sh", "-c", "echo $FUSELINE_X $HOME; env | grep -c ^HOME="}, options);
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->output, "1 /nowhere\n1\n");
}

TEST(ChildProcessTest, OutputBeyondTheBoundIsDroppedAndTheProgramEnds) {
  ChildProcessOptions options;
  options.max_output_bytes = 100;
  const auto result = RunChildProcess({"/bin/sh", "-c", "head -c 1000000 /dev/zero"}, options);
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->exit_code, 0);
  EXPECT_EQ(result->output.size(), 100u);
}

TEST(ChildProcessTest, WholeProcessGroupIsKilledAtTheTimeLimit) {
  ChildProcessOptions options;
  options.time_limit = absl::Milliseconds(200);
  const absl::Time start = absl::Now();
  // The grandchild would hold the output open for a minute.
  const auto result = RunChildProcess({"/bin/sh", "-c", "sleep 60 & sleep 60"}, options);
  EXPECT_THAT(result, StatusIs(absl::StatusCode::kDeadlineExceeded, "did not end within 200ms"));
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
}

TEST(ChildProcessTest, ProgramThatClosesItsOutputIsStillLimited) {
  ChildProcessOptions options;
  options.time_limit = absl::Milliseconds(200);
  const auto result = RunChildProcess({"/bin/sh", "-c", "exec >/dev/null 2>&1; sleep 60"}, options);
  EXPECT_THAT(result, StatusIs(absl::StatusCode::kDeadlineExceeded, "did not end"));
}

TEST(ChildProcessTest, SignalGivesItsNumberAbove128) {
  const auto result = RunChildProcess({"/bin/sh", "-c", "kill -9 $$"}, {});
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->exit_code, 137);
}

TEST(ChildProcessTest, AbsentProgramIsAnErrorNamingIt) {
  EXPECT_THAT(RunChildProcess({"/no/such/program"}, {}), StatusIs(absl::StatusCode::kInternal, "'/no/such/program'"));
}

TEST(ChildProcessTest, OtherFilesOfTheProcessAreNotInherited) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const auto result = RunChildProcess({"/bin/ls", "/proc/self/fd"}, {});
  close(fds[0]);
  close(fds[1]);
  ASSERT_THAT(result, IsOk());
  // The standard three and the folder that is listed.
  EXPECT_LE(std::count(result->output.begin(), result->output.end(), '\n'), 4) << result->output;
}

TEST(FindProgramTest, SearchesThePathAndTakesPathsAsTheyAre) {
  EXPECT_FALSE(FindProgram("sh").empty());
  EXPECT_EQ(FindProgram("/bin/sh"), "/bin/sh");
  EXPECT_EQ(FindProgram("no-such-program"), "");
  EXPECT_EQ(FindProgram("/tmp"), "");
  EXPECT_EQ(FindProgram(""), "");
}

}  // namespace
}  // namespace fuseline::compiler
