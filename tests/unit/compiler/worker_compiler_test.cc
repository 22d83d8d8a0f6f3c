#include "server/compiler/worker_compiler.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/error.h"
#include "gtest/gtest.h"
#include "server/compiler/spawn_process.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::compiler {
namespace {

using ::fuseline::testing::IsOk;
using ::fuseline::testing::StatusIs;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

constexpr char kHostKernel[] = R"(
extern "C" void axpy(void* const* buffers, long begin, long end) {
  const float* __restrict x = static_cast<const float*>(buffers[0]);
  float* __restrict y = static_cast<float*>(buffers[1]);
  for (long i = begin; i < end; ++i) y[i] = x[i] * 2.0f + 1.0f;
}
)";
constexpr char kCudaKernel[] = R"(
extern "C" __global__ void __launch_bounds__(256) reverse(const float* x, float* y) {
  __shared__ float tile[256];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[255 - threadIdx.x] * 2.0f + 1.0f;
}
)";

WorkerOptions Options(int max_workers = 1) {
  WorkerOptions options;
  options.command = {FUSELINE_TEST_WORKER};
  options.max_workers = max_workers;
  return options;
}

CompilerSpec HostSpec(const std::string& compiler = "") {
  CompilerSpec spec;
  spec.kind = CompilerSpec::Kind::kHost;
  spec.host_compiler = compiler;
  return spec;
}

KernelSource Source(const std::string& text, const std::string& entry = "k") {
  return {entry, text, Target::Cpu(), false};
}

// The bytes that the test worker answers with, or the error's text.
std::string Ask(KernelCompiler& compiler, const std::string& text) {
  const absl::StatusOr<KernelImage> image = compiler.CompileKernel(Source(text));
  return image.ok() ? image->bytes : std::string(image.status().message());
}

pid_t AskPid(KernelCompiler& compiler) {
  int pid = 0;
  EXPECT_TRUE(absl::SimpleAtoi(Ask(compiler, "@pid"), &pid));
  return pid;
}

// Absent, or a zombie that its parent has yet to reap.
bool HasEnded(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const size_t name_end = text.rfind(") ");
  return name_end == std::string::npos || text[name_end + 2] == 'Z' || text[name_end + 2] == 'X';
}

bool EndsSoon(pid_t pid) {
  for (int i = 0; i < 1000 && !HasEnded(pid); ++i) absl::SleepFor(absl::Milliseconds(10));
  return HasEnded(pid);
}

int ReadPidFile(const std::string& path) {
  int pid = 0;
  for (int i = 0; i < 1000 && pid == 0; ++i) {
    std::string text;
    std::ifstream(path) >> text;
    if (!absl::SimpleAtoi(text, &pid)) absl::SleepFor(absl::Milliseconds(10));
  }
  return pid;
}

std::string FreshPath(const std::string& name) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/", getpid(), "-", name);
  std::filesystem::remove(path);
  return path;
}

void ExpectSame(const KernelImage& got, const KernelImage& want) {
  EXPECT_EQ(got.format, want.format);
  EXPECT_EQ(got.entry, want.entry);
  EXPECT_EQ(got.source, want.source);
  EXPECT_TRUE(got.bytes == want.bytes) << got.bytes.size() << " and " << want.bytes.size() << " bytes";
  EXPECT_EQ(got.resources.registers, want.resources.registers);
  EXPECT_EQ(got.resources.static_shared_bytes, want.resources.static_shared_bytes);
  EXPECT_EQ(got.resources.spill_store_bytes, want.resources.spill_store_bytes);
  EXPECT_EQ(got.resources.spill_load_bytes, want.resources.spill_load_bytes);
  EXPECT_EQ(got.resources.stack_bytes, want.resources.stack_bytes);
}

TEST(WorkerCompilerTest, HostKernelIsTheOneCompiledInProcess) {
  const auto in_process = MakeHostCompiler("", "");
  if (const absl::Status status = in_process->Available(); !status.ok()) GTEST_SKIP() << status;
  const auto compiler = MakeWorkerCompiler(HostSpec("real"), Options());
  EXPECT_THAT(compiler->Available(), IsOk());
  EXPECT_EQ(compiler->Identity(), in_process->Identity());
  const auto want = in_process->CompileKernel(Source(kHostKernel, "axpy"));
  const auto got = compiler->CompileKernel(Source(kHostKernel, "axpy"));
  ASSERT_THAT(want, IsOk());
  ASSERT_THAT(got, IsOk());
  ExpectSame(*got, *want);
  EXPECT_THAT(compiler->CompileToPtx(Source(kHostKernel, "axpy")),
              StatusIs(absl::StatusCode::kUnimplemented, "no ptx"));

  const auto want_error = in_process->CompileKernel(Source("nonsense", "broken"));
  const auto got_error = compiler->CompileKernel(Source("nonsense", "broken"));
  EXPECT_THAT(want_error, StatusIs(absl::StatusCode::kInternal, "'nonsense' does not name a type"));
  EXPECT_THAT(got_error, StatusIs(absl::StatusCode::kInternal, "'nonsense' does not name a type"));
  EXPECT_EQ(GetErrorReason(got_error.status()), ErrorReason::kCompilerFailed);
  EXPECT_EQ(GetErrorSubject(got_error.status()), "broken");
  EXPECT_EQ(compiler->workers().started, 1);
}

TEST(WorkerCompilerTest, CudaKernelIsTheOneCompiledInProcess) {
  const auto in_process = MakeNvrtcCompiler({});
  if (const absl::Status status = in_process->Available(); !status.ok()) GTEST_SKIP() << status;
  const auto compiler = MakeWorkerCompiler({}, Options());
  EXPECT_THAT(compiler->Available(), IsOk());
  EXPECT_EQ(compiler->Identity(), in_process->Identity());
  for (const bool fast_math : {false, true}) {
    const KernelSource source = {"reverse", kCudaKernel, Target::Cuda(90), fast_math};
    const auto want = in_process->CompileKernel(source);
    const auto got = compiler->CompileKernel(source);
    ASSERT_THAT(want, IsOk());
    ASSERT_THAT(got, IsOk());
    EXPECT_GT(got->resources.registers, 0);
    ExpectSame(*got, *want);
    EXPECT_EQ(compiler->CompileToPtx(source), in_process->CompileToPtx(source));
  }
  const KernelSource unknown = {"reverse", kCudaKernel, Target::Cuda(13), false};
  EXPECT_EQ(compiler->CompileKernel(unknown).status(), in_process->CompileKernel(unknown).status());
}

TEST(WorkerCompilerTest, ImageAndErrorOfAnyCompilerArriveWhole) {
  const auto compiler = MakeWorkerCompiler(HostSpec(), Options());
  const std::string long_text = std::string(3 << 20, 'x') + std::string(1, '\0') + "y";
  const auto image = compiler->CompileKernel(Source(long_text));
  ASSERT_THAT(image, IsOk());
  ExpectSame(*image, {ImageFormat::kPtx, "k", long_text, long_text, {1, 2, 3, 4, 5}});
  const auto other = compiler->CompileKernel(Source("@other"));
  ASSERT_THAT(other, IsOk());
  ExpectSame(*other, {ImageFormat::kPtx, "other", "@other", "another source", {1, 2, 3, 4, 5}});
  const auto error = compiler->CompileKernel(Source("@error"));
  EXPECT_THAT(error, StatusIs(absl::StatusCode::kFailedPrecondition, "planted"));
  EXPECT_EQ(GetErrorReason(error.status()), ErrorReason::kTargetNotAvailable);
  EXPECT_EQ(GetErrorSubject(error.status()), "subject");
}

TEST(WorkerCompilerTest, WithoutACommandTheCompilerRunsInThisProcess) {
  WorkerOptions options;
  const auto compiler = MakeWorkerCompiler(HostSpec("/no/such/compiler"), options);
  EXPECT_THAT(compiler->Available(), StatusIs(absl::StatusCode::kFailedPrecondition, "/no/such/compiler"));
  EXPECT_EQ(compiler->workers().started, 0);
}

TEST(WorkerCompilerTest, WorkersAreStartedWhenNeededAndUsedAgain) {
  const auto compiler = MakeWorkerCompiler(HostSpec(), Options(4));
  EXPECT_EQ(compiler->workers().started, 0);
  const pid_t first = AskPid(*compiler);
  EXPECT_EQ(AskPid(*compiler), first);
  EXPECT_THAT(compiler->Available(), IsOk());
  const WorkerStats stats = compiler->workers();
  EXPECT_EQ(stats.started, 1);
  EXPECT_EQ(stats.idle, 1);
  EXPECT_EQ(stats.busy, 0);
}

TEST(WorkerCompilerTest, NoMoreWorkersThanAllowedServeManyThreads) {
  const auto compiler = MakeWorkerCompiler(HostSpec(), Options(2));
  std::vector<std::string> pids(12);
  std::vector<std::thread> threads;
  for (std::string& pid : pids) threads.emplace_back([&] { pid = Ask(*compiler, "@slow20 @pid"); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set<std::string>(pids.begin(), pids.end()).size(), 2u);
  EXPECT_EQ(compiler->workers().started, 2);
  EXPECT_EQ(compiler->workers().idle, 2);
}

TEST(WorkerCompilerTest, WorkerHasItsOwnGroupFilesAndFolder) {
  const auto compiler = MakeWorkerCompiler(HostSpec(), Options());
  const pid_t pid = AskPid(*compiler);
  EXPECT_EQ(getpgid(pid), pid);
  EXPECT_EQ(Ask(*compiler, "@files"), "4");  // the standard three and the connection
  EXPECT_EQ(Ask(*compiler, "@oom_score"), "500\n");
  const std::string folder = Ask(*compiler, "@tmpdir");
  EXPECT_TRUE(std::filesystem::is_directory(folder)) << folder;
  std::ifstream limits(absl::StrCat("/proc/", pid, "/limits"));
  std::string core;
  for (std::string line; std::getline(limits, line);) {
    if (line.starts_with("Max core file size")) core = line.substr(strlen("Max core file size"));
  }
  int64_t soft = -1;
  int64_t hard = -1;
  std::istringstream(core) >> soft >> hard;
  EXPECT_EQ(soft, 0);
  EXPECT_EQ(hard, 0);
}

TEST(WorkerCompilerTest, WorkersAndTheirFoldersGoWithTheCompiler) {
  auto compiler = MakeWorkerCompiler(HostSpec(), Options());
  const pid_t pid = AskPid(*compiler);
  const std::string folder = Ask(*compiler, "@tmpdir");
  compiler.reset();
  EXPECT_TRUE(HasEnded(pid));
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST(WorkerCompilerTest, CrashFailsItsKernelAloneWhileOthersRun) {
  const auto compiler = MakeWorkerCompiler(HostSpec(), Options(4));
  std::vector<std::string> others(3);
  std::vector<std::thread> threads;
  for (std::string& other : others) threads.emplace_back([&] { other = Ask(*compiler, "@slow400 fine"); });
  absl::SleepFor(absl::Milliseconds(100));
  const auto image = compiler->CompileKernel(Source("@crash", "kernel_7"));
  EXPECT_THAT(image, StatusIs(absl::StatusCode::kInternal,
                              "kernel 'kernel_7': the compiler worker was killed by signal 11 (segmentation fault)"));
  EXPECT_EQ(GetErrorReason(image.status()), ErrorReason::kCompilerFailed);
  EXPECT_EQ(GetErrorSubject(image.status()), "kernel_7");
  for (std::thread& thread : threads) thread.join();
  for (const std::string& other : others) EXPECT_EQ(other, "@slow400 fine");
  EXPECT_EQ(Ask(*compiler, "next"), "next");
  EXPECT_EQ(compiler->workers().crashed, 1);
  EXPECT_EQ(Ask(*compiler, "@exit"), "kernel 'k': the compiler worker exited with code 7");
  EXPECT_EQ(compiler->workers().crashed, 2);
  EXPECT_EQ(compiler->workers().busy, 0);
}

TEST(WorkerCompilerTest, HangIsEndedAtTheLimitWithAllThatItStarted) {
  WorkerOptions options = Options();
  options.time_limit = absl::Seconds(1);
  const auto compiler = MakeWorkerCompiler(HostSpec(), options);
  const pid_t worker = AskPid(*compiler);
  const std::string folder = Ask(*compiler, "@tmpdir");
  const std::string path = FreshPath("hang");
  const absl::Time start = absl::Now();
  const auto image = compiler->CompileKernel(Source("@hang " + path));
  EXPECT_THAT(image, StatusIs(absl::StatusCode::kInternal, "kernel 'k': the compiler was not done after 1 s"));
  EXPECT_EQ(GetErrorReason(image.status()), ErrorReason::kCompilerFailed);
  EXPECT_GE(absl::Now() - start, absl::Seconds(1));
  EXPECT_LT(absl::Now() - start, absl::Seconds(4));
  EXPECT_TRUE(HasEnded(worker));
  const pid_t child = ReadPidFile(path);
  ASSERT_GT(child, 0);
  EXPECT_TRUE(EndsSoon(child));
  EXPECT_FALSE(std::filesystem::exists(folder));
  EXPECT_EQ(Ask(*compiler, "next"), "next");
  EXPECT_EQ(compiler->workers().timed_out, 1);
  EXPECT_EQ(compiler->workers().crashed, 0);
}

TEST(WorkerCompilerTest, AllocatingWithoutEndMeetsTheMemoryLimit) {
  if (kSanitized) GTEST_SKIP() << "sanitizers reserve more than any limit";
  WorkerOptions options = Options();
  options.memory_limit_bytes = 300 << 20;
  const auto compiler = MakeWorkerCompiler(HostSpec(), options);
  int64_t failures = 0;
  for (const char* text : {"@new", "@malloc"}) {
    const absl::Time start = absl::Now();
    const auto image = compiler->CompileKernel(Source(text));
    EXPECT_THAT(image, StatusIs(absl::StatusCode::kInternal, "kernel 'k': the compiler used more than 300 MiB"));
    EXPECT_EQ(GetErrorReason(image.status()), ErrorReason::kCompilerFailed);
    EXPECT_LT(absl::Now() - start, absl::Seconds(20));
    EXPECT_EQ(Ask(*compiler, "next"), "next");
    EXPECT_EQ(compiler->workers().out_of_memory, ++failures);
  }
  EXPECT_EQ(compiler->workers().crashed, 0);
}

TEST(WorkerCompilerTest, HostCompilerWithoutMemorySaysSo) {
  if (kSanitized) GTEST_SKIP() << "sanitizers reserve more than any limit";
  if (const absl::Status status = MakeHostCompiler("", "")->Available(); !status.ok()) GTEST_SKIP() << status;
  WorkerOptions options = Options();
  options.memory_limit_bytes = 256 << 20;
  const auto compiler = MakeWorkerCompiler(HostSpec("real"), options);
  EXPECT_THAT(compiler->CompileKernel(Source(kHostKernel)), IsOk());
  // An array of 10^8 numbers.
  std::string text = "#define A0 1,\n";
  for (int i = 1; i <= 8; ++i) {
    absl::StrAppend(&text, "#define A", i);
    for (int j = 0; j < 10; ++j) absl::StrAppend(&text, " A", i - 1);
    absl::StrAppend(&text, "\n");
  }
  const auto image = compiler->CompileKernel(Source(absl::StrCat(text, "int numbers[] = {A8 0};\n")));
  EXPECT_THAT(image, StatusIs(absl::StatusCode::kInternal, "the compiler used more than 256 MiB"));
  EXPECT_EQ(compiler->workers().out_of_memory, 1);
  EXPECT_THAT(compiler->CompileKernel(Source(kHostKernel)), IsOk());
}

TEST(WorkerCompilerTest, IdleWorkerThatIsKilledCostsNoRequest) {
  const auto compiler = MakeWorkerCompiler(HostSpec(), Options());
  for (int i = 1; i <= 3; ++i) {
    const pid_t pid = AskPid(*compiler);
    ASSERT_EQ(kill(pid, SIGKILL), 0);
    ASSERT_TRUE(EndsSoon(pid));
    EXPECT_EQ(Ask(*compiler, "next"), "next");
    EXPECT_EQ(compiler->workers().crashed, i);
    EXPECT_EQ(compiler->workers().started, i + 1);
  }
}

TEST(WorkerCompilerTest, WorkerThatIsDeadBeforeItBeginsIsReplacedWithoutAnError) {
  WorkerOptions options = Options();
  options.command.push_back("dies-before-begun");
  const auto compiler = MakeWorkerCompiler(HostSpec(), options);
  for (int i = 0; i < 4; ++i) EXPECT_THAT(compiler->CompileKernel(Source("x")), IsOk());
  EXPECT_EQ(compiler->workers().started, 4);
  EXPECT_EQ(compiler->workers().crashed, 3);
}

TEST(WorkerCompilerTest, NewWorkerThatNeverBeginsIsAnError) {
  WorkerOptions options = Options();
  options.command.push_back("never-begins");
  const auto compiler = MakeWorkerCompiler(HostSpec(), options);
  EXPECT_EQ(Ask(*compiler, "x"), "kernel 'k': the compiler worker exited with code 9");
  EXPECT_EQ(compiler->workers().started, 1);
  EXPECT_EQ(compiler->workers().busy, 0);
}

TEST(WorkerCompilerTest, SignalsThatStopAServerDoNotStopItsWorkers) {
  const auto compiler = MakeWorkerCompiler(HostSpec(), Options());
  const pid_t pid = AskPid(*compiler);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) ASSERT_EQ(kill(pid, signal), 0);
  EXPECT_EQ(AskPid(*compiler), pid);
}

TEST(WorkerCompilerTest, GarbageFromAWorkerEndsIt) {
  const auto compiler = MakeWorkerCompiler(HostSpec(), Options());
  const pid_t pid = AskPid(*compiler);
  EXPECT_EQ(Ask(*compiler, "@garbage"), "kernel 'k': the compiler worker broke the protocol");
  EXPECT_TRUE(HasEnded(pid));
  EXPECT_EQ(Ask(*compiler, "next"), "next");
}

TEST(WorkerCompilerTest, ProgramThatIsNoWorkerIsAnErrorThatNamesIt) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"/no/such/program", "start: No such file or directory"},
      {"/bin/true", "the compiler worker exited with code 0"},
  };
  for (const auto& [program, message] : cases) {
    WorkerOptions options = Options();
    options.command = {program};
    const auto compiler = MakeWorkerCompiler(HostSpec(), options);
    const auto image = compiler->CompileKernel(Source("x"));
    EXPECT_THAT(image, StatusIs(absl::StatusCode::kInternal,
                                absl::StrCat("can't start the compiler worker '", program, "': ", message)));
    EXPECT_EQ(GetErrorReason(image.status()), ErrorReason::kCompilerFailed);
    EXPECT_THAT(compiler->Available(), StatusIs(absl::StatusCode::kUnavailable, message));
    EXPECT_EQ(compiler->workers().busy, 0);
  }
}

TEST(WorkerCompilerTest, AvailabilityThatCouldNotBeAskedForIsAskedForAgain) {
  WorkerOptions options = Options();
  const std::string path = FreshPath("worker-link");
  options.command = {path};
  const auto compiler = MakeWorkerCompiler(HostSpec(), options);
  EXPECT_THAT(compiler->Available(), StatusIs(absl::StatusCode::kUnavailable, "No such file"));
  EXPECT_EQ(compiler->Identity(), "host compiler unavailable");
  std::filesystem::create_symlink(FUSELINE_TEST_WORKER, path);
  EXPECT_THAT(compiler->Available(), IsOk());
  EXPECT_EQ(compiler->Identity(), "faulty");
  std::filesystem::remove(path);
  EXPECT_THAT(compiler->Available(), IsOk());  // known by now
}

TEST(WorkerCompilerTest, CompilerThatIsReplacedFailsOneKernelAndThenHasItsOwnIdentity) {
  const std::string path = FreshPath("identity");
  std::ofstream(path) << "version 1" << std::flush;
  CompilerSpec spec = HostSpec();
  spec.nvrtc_search_paths = {path};
  const auto compiler = MakeWorkerCompiler(spec, Options(2));
  EXPECT_EQ(compiler->Identity(), "version 1");
  // Two workers, of which one is then replaced: by one that finds the new version.
  std::thread other([&] { EXPECT_EQ(Ask(*compiler, "@slow200"), "@slow200"); });
  while (compiler->workers().busy == 0) absl::SleepFor(absl::Milliseconds(1));
  const pid_t killed = AskPid(*compiler);
  other.join();
  EXPECT_EQ(compiler->workers().started, 2);
  std::ofstream(path) << "version 2" << std::flush;
  ASSERT_EQ(kill(killed, SIGKILL), 0);
  ASSERT_TRUE(EndsSoon(killed));
  std::vector<absl::Status> statuses(2);
  std::vector<std::thread> threads;
  for (absl::Status& status : statuses) {
    threads.emplace_back([&] { status = compiler->CompileKernel(Source("@slow200")).status(); });
  }
  for (std::thread& thread : threads) thread.join();
  // Whichever got the old worker.
  EXPECT_EQ(statuses[0].ok() + statuses[1].ok(), 1);
  EXPECT_THAT(statuses[0].ok() ? statuses[1] : statuses[0],
              StatusIs(absl::StatusCode::kUnavailable, "('version 1', now 'version 2'): try again"));
  EXPECT_EQ(compiler->Identity(), "version 2");
  EXPECT_EQ(Ask(*compiler, "x"), "x");
  // The old one, and the one that found out.
  EXPECT_EQ(compiler->workers().retired, 2);
  EXPECT_THAT(compiler->Available(), IsOk());
}

TEST(WorkerCompilerTest, WorkerIsRetiredAfterManyKernelsOrWhenItHasGrown) {
  WorkerOptions options = Options();
  options.max_kernels = 2;
  const auto by_count = MakeWorkerCompiler(HostSpec(), options);
  std::set<pid_t> pids;
  for (int i = 0; i < 6; ++i) pids.insert(AskPid(*by_count));
  EXPECT_EQ(pids.size(), 3u);
  EXPECT_EQ(by_count->workers().retired, 3);
  EXPECT_EQ(by_count->workers().idle, 0);

  options = Options();
  options.max_resident_bytes = kSanitized ? 1ll << 40 : 100 << 20;
  const auto by_size = MakeWorkerCompiler(HostSpec(), options);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Ask(*by_size, "@leak"), "@leak");
  EXPECT_EQ(by_size->workers().retired, kSanitized ? 0 : 2);
}

TEST(WorkerCompilerTest, DescriptorsThatRunOutFailThatRequestAlone) {
  const auto compiler = MakeWorkerCompiler(HostSpec(), Options());
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int lowest_free = dup(0);
  close(lowest_free);
  const rlimit none = {static_cast<rlim_t>(lowest_free), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto image = compiler->CompileKernel(Source("x"));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(image, StatusIs(absl::StatusCode::kResourceExhausted, "Too many open files"));
  EXPECT_EQ(GetErrorReason(image.status()), ErrorReason::kCompilerFailed);
  EXPECT_EQ(Ask(*compiler, "next"), "next");
  EXPECT_EQ(compiler->workers().busy, 0);
}

TEST(WorkerCompilerTest, WithoutDescriptorsTheWorkersThatThereAreDoTheWork) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer needs descriptors too: for what it checks of a vtable";
#endif
  const auto compiler = MakeWorkerCompiler(HostSpec(), Options(4));
  const pid_t pid = AskPid(*compiler);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int lowest_free = dup(0);
  close(lowest_free);
  std::vector<std::string> answers(3);
  std::vector<std::thread> threads;
  const rlimit none = {static_cast<rlim_t>(lowest_free), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  for (std::string& answer : answers) threads.emplace_back([&] { answer = Ask(*compiler, "@slow50 @pid"); });
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  for (const std::string& answer : answers) EXPECT_EQ(answer, absl::StrCat(pid));
}

TEST(WorkerCompilerTest, StopEndsTheWaitForAWorkerAndAKernelThatGoesOn) {
  const auto compiler = MakeWorkerCompiler(HostSpec(), Options());
  const pid_t worker = AskPid(*compiler);
  std::atomic<bool> stopped{false};
  const StopCheck stop = [&] { return stopped ? absl::CancelledError("enough") : absl::OkStatus(); };
  absl::Status running;
  absl::Status waiting;
  std::thread runs([&] { running = compiler->CompileUnlessStopped(Source("@hang"), stop).status(); });
  while (compiler->workers().busy == 0) absl::SleepFor(absl::Milliseconds(1));
  std::thread waits([&] { waiting = compiler->CompileUnlessStopped(Source("x"), stop).status(); });
  absl::SleepFor(absl::Milliseconds(50));
  const absl::Time start = absl::Now();
  stopped = true;
  waits.join();
  runs.join();
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
  EXPECT_THAT(waiting, StatusIs(absl::StatusCode::kCancelled, "enough"));
  EXPECT_THAT(running, StatusIs(absl::StatusCode::kCancelled, "enough"));
  EXPECT_TRUE(HasEnded(worker));
  EXPECT_EQ(compiler->workers().retired, 1);
  EXPECT_EQ(Ask(*compiler, "next"), "next");
}

TEST(WorkerCompilerTest, KernelThatIsSoonDoneIsNotInterrupted) {
  const auto compiler = MakeWorkerCompiler(HostSpec(), Options());
  const pid_t worker = AskPid(*compiler);
  std::atomic<int> asked{0};
  const StopCheck stop = [&] { return ++asked > 2 ? absl::CancelledError("enough") : absl::OkStatus(); };
  EXPECT_THAT(compiler->CompileUnlessStopped(Source("@slow200"), stop), IsOk());
  EXPECT_GT(asked, 2);
  EXPECT_EQ(AskPid(*compiler), worker);
}

TEST(WorkerCompilerTest, NoProcessOutlivesAServerThatIsKilled) {
  const std::string path = FreshPath("server");
  int output[2];
  ASSERT_EQ(pipe2(output, O_CLOEXEC), 0);
  SpawnOptions spawn;
  spawn.argv = {FUSELINE_TEST_WORKER, "serve", path};
  spawn.output_fd = output[1];
  pid_t server = -1;
  ASSERT_EQ(SpawnProcess(spawn, server), 0);
  close(output[1]);
  char line[512] = {};
  ASSERT_GT(read(output[0], line, sizeof(line) - 1), 0);
  close(output[0]);
  pid_t worker = 0;
  std::string folder;
  std::istringstream(line) >> worker >> folder;
  const pid_t child = ReadPidFile(path);
  ASSERT_GT(worker, 0);
  ASSERT_GT(child, 0);
  EXPECT_FALSE(HasEnded(worker));
  EXPECT_TRUE(std::filesystem::is_directory(folder)) << folder;
  ASSERT_EQ(kill(server, SIGKILL), 0);
  ASSERT_EQ(waitpid(server, nullptr, 0), server);
  EXPECT_TRUE(EndsSoon(worker));
  EXPECT_TRUE(EndsSoon(child));
  EXPECT_FALSE(std::filesystem::exists(folder)) << folder;
}

TEST(WorkerCompilerTest, StatsLeaveOutIdleWorkersThatWereKilled) {
  const auto compiler = MakeWorkerCompiler(HostSpec(), Options());
  const pid_t pid = AskPid(*compiler);
  EXPECT_EQ(compiler->workers().idle, 1);
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  // Its connection closes a moment after its main thread has ended.
  for (int i = 0; i < 1000 && compiler->workers().idle > 0; ++i) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_EQ(compiler->workers().idle, 0);
  EXPECT_EQ(compiler->workers().crashed, 1);
  EXPECT_EQ(compiler->workers().busy, 0);
  EXPECT_EQ(Ask(*compiler, "next"), "next");
  EXPECT_EQ(compiler->workers().started, 2);
}

TEST(WorkerCompilerTest, FaultsUnderLoadCostTheirOwnKernelsAlone) {
  const auto compiler = MakeWorkerCompiler(HostSpec(), Options(3));
  constexpr int kThreads = 6;
  constexpr int kCalls = 20;
  std::atomic<int> failed{0};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kCalls; ++i) {
        const bool faulty = (t * kCalls + i) % 10 == 0;
        const std::string text = absl::StrCat(faulty ? "@crash " : "fine ", t, " ", i);
        const auto image = compiler->CompileKernel(Source(text));
        if (!image.ok()) ++failed;
        if (image.ok() == faulty || (image.ok() && image->bytes != text)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(failed, kThreads * kCalls / 10);
  const WorkerStats stats = compiler->workers();
  EXPECT_EQ(stats.crashed, failed);
  EXPECT_EQ(stats.busy, 0);
  EXPECT_EQ(stats.started - stats.crashed, stats.idle);
}

}  // namespace
}  // namespace fuseline::compiler
