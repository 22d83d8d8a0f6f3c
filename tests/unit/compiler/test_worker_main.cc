// A compiler worker with planted faults, for worker_compiler_test.cc: the markers that a source's text may have make it
// crash, hang and so on; without one it gives the text back as the image's bytes. The host compiler named "real" and
// NVRTC are the real ones.
//   test_worker serve PATH        runs a server whose worker hangs: prints the worker's pid and folder, and writes the
//                                 pid of the worker's child to PATH
//   test_worker dies-before-begun the first request is answered, the second one not even begun
//   test_worker never-begins      no request is begun
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/status/error.h"
#include "common/status/str_cat.h"
#include "server/compiler/compiler_worker.h"
#include "server/compiler/frame_channel.h"
#include "server/compiler/spawn_process.h"
#include "server/compiler/worker_compiler.h"
#include "server/compiler/worker_messages.h"

namespace fuseline::compiler {
namespace {

constexpr size_t kManyBytes = 10ull << 30;

[[noreturn]] void Hang() {
  while (true) pause();
}

// Starts a program that lasts, as the host compiler would, and returns its pid.
pid_t StartChild() {
  SpawnOptions spawn;
  spawn.argv = {"/bin/sleep", "600"};
  spawn.own_group = false;
  pid_t pid = -1;
  return SpawnProcess(spawn, pid) == 0 ? pid : -1;
}

size_t CountOpenFiles() {
  // Less the one that lists them.
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(files), end(files))) - 1;
}

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class FaultyCompiler : public KernelCompiler {
 public:
  explicit FaultyCompiler(CompilerSpec spec) : spec_(std::move(spec)) {}

  absl::Status Available() const override { return absl::OkStatus(); }

  // What the file named by the first search path says, where there is one.
  std::string Identity() const override {
    return spec_.nvrtc_search_paths.empty() ? "faulty" : ReadText(spec_.nvrtc_search_paths[0]);
  }

  absl::StatusOr<KernelImage> CompileKernel(const KernelSource& source) override {
    const std::string& text = source.text;
    const auto marked = [&text](const char* marker) { return text.find(marker) != std::string::npos; };
    std::string answer = text;
    if (marked("@crash")) {
      signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would end it otherwise
      raise(SIGSEGV);
    }
    if (marked("@exit")) _exit(7);
    if (marked("@hang")) {
      if (const size_t path = text.find("/"); path != std::string::npos) {
        std::ofstream(text.substr(path)) << StartChild() << std::flush;
      }
      Hang();
    }
    if (marked("@new")) {
      const std::unique_ptr<char[]> bytes(new char[kManyBytes]);
      memset(bytes.get(), 1, kManyBytes);
      answer = std::string(bytes.get(), 10);
    }
    if (marked("@malloc")) {
      for (size_t taken = 0; taken < kManyBytes; taken += 16 << 20) {
        char* bytes = static_cast<char*>(malloc(16 << 20));
        memset(bytes, 1, 16 << 20);  // unchecked, as compilers do
        leaked_.push_back(bytes);
      }
    }
    if (marked("@leak")) {
      leaked_.push_back(static_cast<char*>(malloc(64 << 20)));
      memset(leaked_.back(), 1, 64 << 20);
    }
    if (marked("@garbage")) {
      const char garbage[] = "\xff\xff\xff\xff\xff\xff";
      if (write(3, garbage, sizeof(garbage)) < 0) Hang();
      Hang();
    }
    if (marked("@slow")) absl::SleepFor(absl::Milliseconds(atoi(text.c_str() + text.find("@slow") + 5)));
    if (marked("@error")) {
      return MakeError(absl::StatusCode::kFailedPrecondition, ErrorReason::kTargetNotAvailable, "subject", "planted");
    }
    if (marked("@pid")) answer = StrCat(getpid());
    if (marked("@tmpdir")) answer = getenv("TMPDIR");
    if (marked("@files")) answer = StrCat(CountOpenFiles());
    if (marked("@oom_score")) answer = ReadText("/proc/self/oom_score_adj");
    KernelImage image;
    image.format = ImageFormat::kPtx;
    image.entry = marked("@other") ? "other" : source.entry;
    image.source = marked("@other") ? "another source" : source.text;
    image.bytes = std::move(answer);
    image.resources = {1, 2, 3, 4, 5};
    return image;
  }

 private:
  const CompilerSpec spec_;
  std::vector<char*> leaked_;
};

std::unique_ptr<KernelCompiler> MakeTestCompiler(const CompilerSpec& spec, const CompilerLimits& limits) {
  if (spec.kind == CompilerSpec::Kind::kHost && spec.host_compiler == "real") {
    CompilerSpec real = spec;
    real.host_compiler.clear();
    return MakeCompiler(real, limits);
  }
  if (spec.kind == CompilerSpec::Kind::kNvrtc) return MakeCompiler(spec, limits);
  return std::make_unique<FaultyCompiler>(spec);
}

int Serve(const std::string& program, const std::string& path) {
  CompilerSpec spec;
  spec.kind = CompilerSpec::Kind::kHost;
  WorkerOptions options;
  options.command = {program};
  const std::unique_ptr<KernelCompiler> compiler = MakeWorkerCompiler(spec, options);
  const absl::StatusOr<KernelImage> pid = compiler->CompileKernel({"k", "@pid", Target::Cpu(), false});
  const absl::StatusOr<KernelImage> folder = compiler->CompileKernel({"k", "@tmpdir", Target::Cpu(), false});
  if (!pid.ok() || !folder.ok()) return 1;
  printf("%s %s\n", pid->bytes.c_str(), folder->bytes.c_str());
  fflush(stdout);
  return compiler->CompileKernel({"k", "@hang " + path, Target::Cpu(), false}).ok() ? 0 : 1;
}

// A worker that ends without a word at the request after `answered` others.
int DieBeforeBegun(int answered) {
  FrameChannel channel(3);
  std::string bytes;
  WorkerReply reply;
  if (channel.Read(FrameType::kSetup, bytes) != FrameResult::kOk) return 2;
  if (channel.Write(FrameType::kReady, "") != FrameResult::kOk) return 2;
  while (channel.Read(FrameType::kRequest, bytes) == FrameResult::kOk && answered-- > 0) {
    channel.Write(FrameType::kBegun, "");
    channel.Write(FrameType::kReply, EncodeReply(reply, {}));
  }
  return 9;
}

int Main(int argc, char** argv) {
  if (const std::optional<int> code = MaybeRunCompilerWorker(argc, argv, MakeTestCompiler)) return *code;
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "serve" && argc == 3) return Serve(argv[0], argv[2]);
  if (mode == "dies-before-begun") return DieBeforeBegun(1);
  if (mode == "never-begins") return DieBeforeBegun(0);
  return 2;
}

}  // namespace
}  // namespace fuseline::compiler

int main(int argc, char** argv) { return fuseline::compiler::Main(argc, argv); }
