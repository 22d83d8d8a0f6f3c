#include "server/compiler/compiler_worker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <new>
#include <string>
#include <system_error>
#include <thread>

#include "absl/strings/match.h"
#include "common/status/error.h"
#include "common/status/str_cat.h"
#include "server/compiler/frame_channel.h"
#include "server/compiler/worker_messages.h"

namespace fuseline::compiler {
namespace {

constexpr int kConnection = 3;
constexpr int kUsageExitCode = 2;
// Of 1000: far ahead of the server, behind what someone has marked for this on purpose.
constexpr char kOomScore[] = "500";
// NVRTC and the loader reserve address space that they never use.
constexpr int64_t kReservedBytes = 2ll << 30;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
#else
constexpr bool kSanitized = false;
#endif

bool IsSocket(int fd) {
  int type = 0;
  socklen_t size = sizeof(type);
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

void LimitTo(int resource, int64_t bytes) {
  rlimit limit;
  if (getrlimit(resource, &limit) != 0) return;
  const rlim_t wanted = std::min(static_cast<rlim_t>(bytes), limit.rlim_max);
  limit = {wanted, wanted};
  setrlimit(resource, &limit);
}

void OfferToOomKiller() {
  const int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;  // no /proc: nothing to be done about it
  if (write(fd, kOomScore, sizeof(kOomScore) - 1) < 0) {
  }
  close(fd);
}

int64_t ResidentBytes() {
  const int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[128];
  const ssize_t count = read(fd, text, sizeof(text) - 1);
  close(fd);
  if (count <= 0) return 0;
  text[count] = '\0';
  long long size = 0;
  long long resident = 0;
  if (sscanf(text, "%lld %lld", &size, &resident) != 2) return 0;
  return resident * sysconf(_SC_PAGESIZE);
}

void EndGroup() { kill(0, SIGKILL); }
void EndGroupAtAlarm(int) { EndGroup(); }

// Not PR_SET_PDEATHSIG: that comes when the thread which started the worker ends, and threads come and go.
void EndWithServer(pid_t server, const std::string& scratch_folder) {
  while (true) {
    pollfd connection = {kConnection, POLLRDHUP, 0};
    // The parent is asked for besides, should some other process have inherited the server's end.
    if (poll(&connection, 1, 1000) > 0 || getppid() != server) break;
  }
  // A compiler that hangs in the allocator would hold up this thread too.
  signal(SIGALRM, EndGroupAtAlarm);
  alarm(2);
  std::error_code ignored;
  std::filesystem::remove_all(scratch_folder, ignored);
  EndGroup();
}

// Compilers say it in their own words: NVRTC, cc1plus, collect2, clang, ld.
bool SpeaksOfMemory(const absl::Status& status) {
  if (status.code() != absl::StatusCode::kInternal) return false;
  for (const char* words : {"out of memory", "OUT_OF_MEMORY", "memory exhausted", "Cannot allocate memory", "bad_alloc",
                            "failed to map segment"}) {
    if (absl::StrContains(status.message(), words)) return true;
  }
  return false;
}

class Worker {
 public:
  Worker(WorkerSetup setup, std::unique_ptr<KernelCompiler> compiler)
      : setup_(std::move(setup)), compiler_(std::move(compiler)) {}

  WorkerReply Answer(const WorkerRequest& request) {
    WorkerReply reply;
    if (request.kind == WorkerRequest::Kind::kDescribe) {
      reply.status = compiler_->Available();
      if (reply.status.ok()) reply.text = compiler_->Identity();
    } else if (reply.status = CheckIdentity(); !reply.status.ok()) {
      reply.identity_changed = true;
    } else if (request.kind == WorkerRequest::Kind::kCompile) {
      absl::StatusOr<KernelImage> image = compiler_->CompileKernel(request.source);
      reply.status = image.status();
      if (image.ok()) reply.image = *std::move(image);
    } else {
      absl::StatusOr<std::string> text = compiler_->CompileToPtx(request.source);
      reply.status = text.status();
      if (text.ok()) reply.text = *std::move(text);
    }
    reply.out_of_memory = setup_.memory_limit_bytes > 0 && SpeaksOfMemory(reply.status);
    reply.resident_bytes = ResidentBytes();
    return reply;
  }

 private:
  // The identity is part of the fingerprint that the image will be kept under, so a compiler that was replaced while
  // the server runs must not be used.
  absl::Status CheckIdentity() {
    if (setup_.identity.empty()) return absl::OkStatus();
    const std::string identity = compiler_->Identity();
    if (identity == setup_.identity) {
      setup_.identity.clear();  // once is enough: the compiler of a worker does not change
      return absl::OkStatus();
    }
    return MakeError(
        absl::StatusCode::kUnavailable, ErrorReason::kCompilerFailed, "",
        StrCat("the compiler was replaced meanwhile ('", setup_.identity, "', now '", identity, "'): try again"));
  }

  WorkerSetup setup_;
  const std::unique_ptr<KernelCompiler> compiler_;
};

int Run(const CompilerFactory& factory) {
  const pid_t server = getppid();
  for (const int ignored : {SIGTERM, SIGINT, SIGHUP, SIGPIPE}) signal(ignored, SIG_IGN);
  prctl(PR_SET_NAME, "fuseline-worker");
  LimitTo(RLIMIT_CORE, 0);
  OfferToOomKiller();
  if (getpgrp() != getpid() && setpgid(0, 0) != 0) return kUsageExitCode;
  // Compilers that are started here must not keep the connection open.
  fcntl(kConnection, F_SETFD, FD_CLOEXEC);
  FrameChannel channel(kConnection);
  std::string bytes;
  WorkerSetup setup;
  if (channel.Read(FrameType::kSetup, bytes) != FrameResult::kOk) return kUsageExitCode;
  if (!DecodeSetup(bytes, setup)) return kUsageExitCode;
  const std::string scratch_folder = setup.scratch_folder;
  std::thread(EndWithServer, server, scratch_folder).detach();
  if (setup.memory_limit_bytes > 0 && !kSanitized) {
    LimitTo(RLIMIT_DATA, setup.memory_limit_bytes);
    LimitTo(RLIMIT_AS, setup.memory_limit_bytes + kReservedBytes);
    std::set_new_handler([] { _exit(kOutOfMemoryExitCode); });
  }
  CompilerLimits limits;
  limits.time = absl::InfiniteDuration();  // the server keeps it, and ends this process
  limits.memory_bytes = 0;                 // inherited
  limits.own_process_group = false;
  std::unique_ptr<KernelCompiler> compiler = factory(setup.compiler, limits);
  Worker worker(std::move(setup), std::move(compiler));
  if (channel.Write(FrameType::kReady, "") != FrameResult::kOk) return 0;
  while (true) {
    const FrameResult read = channel.Read(FrameType::kRequest, bytes);
    if (read == FrameResult::kClosed) EndWithServer(server, scratch_folder);
    WorkerRequest request;
    if (read != FrameResult::kOk || !DecodeRequest(bytes, request)) return kUsageExitCode;
    if (channel.Write(FrameType::kBegun, "") != FrameResult::kOk) return 0;
    const WorkerReply reply = worker.Answer(request);
    if (channel.Write(FrameType::kReply, EncodeReply(reply, request.source)) != FrameResult::kOk) return 0;
  }
}

}  // namespace

std::optional<int> MaybeRunCompilerWorker(int argc, char** argv, const CompilerFactory& factory) {
  if (argc != 2 || strcmp(argv[1], kWorkerArgument) != 0) return std::nullopt;
  if (!IsSocket(kConnection)) {
    fputs("a compiler worker is started by the server alone\n", stderr);
    return kUsageExitCode;
  }
  return Run(factory);
}

}  // namespace fuseline::compiler
