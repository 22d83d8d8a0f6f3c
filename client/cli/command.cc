#include "client/cli/command.h"

#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/file_io.h"
#include "client/cli/graph_file.h"
#include "client/cli/lock_file.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::cli {

#ifndef FUSELINE_CLI_HAS_ENGINE
absl::StatusOr<std::unique_ptr<Backend>> MakeLocalBackend(const BackendOptions&) {
  return MakeError(absl::StatusCode::kFailedPrecondition, ErrorReason::kTargetNotAvailable, "--local",
                   "this program is built without the engine: give --server HOST:PORT or set FUSELINE_SERVER");
}
#endif

namespace {

absl::Status NeedsServer() {
  return InvalidArgument(ErrorReason::kOptionInvalid, "--server",
                         "tensors are kept by a server: give --server HOST:PORT or set FUSELINE_SERVER");
}

}  // namespace

absl::StatusOr<KeptTensor> Backend::PutTensor(const Tensor&, const KeepOptions&) { return NeedsServer(); }
absl::StatusOr<Tensor> Backend::GetTensor(const std::string&) { return NeedsServer(); }
absl::Status Backend::DeleteTensor(const std::string&) { return NeedsServer(); }
absl::StatusOr<KeptTensors> Backend::ListTensors() { return NeedsServer(); }

std::string CommandContext::ServerAddress() const {
  const char* environment = std::getenv("FUSELINE_SERVER");
  return flags_.server.empty() && !flags_.local && environment != nullptr ? environment : flags_.server;
}

client::TlsOptions CommandContext::tls() const {
  client::TlsOptions tls = flags_.tls;
  tls.enabled = tls.enabled || !tls.ca_file.empty() || !tls.cert_file.empty() || !tls.key_file.empty();
  return tls;
}

absl::StatusOr<Backend*> CommandContext::GetBackend() {
  if (backend_ != nullptr) return backend_.get();
  BackendOptions options;
  options.cache_dir = flags_.cache_dir;
  options.needs_cache = needs_cache_;
  options.pinned = pinned_;
  options.cache_key_file = flags_.cache_key_file;
  options.cache_namespace = flags_.cache_namespace;
  options.device_threads = flags_.threads;
  if (flags_.timeout_seconds > 0) options.deadline = absl::Seconds(flags_.timeout_seconds);
  options.server = ServerAddress();
  options.owner = flags_.owner;
  options.tls = tls();
  options.round_robin = flags_.balance == "round_robin";
  if (flags_.hedge_ms > 0) options.hedge_delay = absl::Milliseconds(flags_.hedge_ms);
  FUSELINE_ASSIGN_OR_RETURN(backend_, options.server.empty() ? MakeLocalBackend(options) : MakeRemoteBackend(options));
  return backend_.get();
}

absl::StatusOr<Target> CommandContext::ResolveTarget(const std::string& text) {
  if (text != "auto" && text != "cuda") return ParseTarget(text);
  FUSELINE_ASSIGN_OR_RETURN(Backend * backend, GetBackend());
  FUSELINE_ASSIGN_OR_RETURN(const ServerInfo info, backend->Info());
  for (const client::DeviceInfo& device : info.devices) {
    if (absl::StartsWith(device.target, "cuda") && device.healthy) return ParseTarget(device.target);
  }
  if (text == "auto") return Target::Cpu();
  return MakeError(absl::StatusCode::kFailedPrecondition, ErrorReason::kTargetNotAvailable, "cuda",
                   "no CUDA device here: name the architecture, as in cuda:sm_90, to compile without one");
}

absl::Status CommandContext::PinTo(const std::string& lock_file) {
  if (lock_file.empty()) return absl::OkStatus();
  FUSELINE_ASSIGN_OR_RETURN(const std::string text, ReadFile(lock_file));
  const absl::StatusOr<std::vector<LockEntry>> entries = ReadLockFile(text);
  if (!entries.ok()) return Wrap(entries.status(), lock_file);
  for (const LockEntry& entry : *entries) pinned_[entry.fingerprint] = entry.artifact_sha256;
  if (pinned_.empty()) return InvalidArgument(ErrorReason::kInputOutput, "lock", "the lock file has no entry");
  return absl::OkStatus();
}

absl::Status CommandContext::NeedsOneCache() {
  const std::string server = ServerAddress();
  if (server.empty() && flags_.cache_dir.empty()) {
    return InvalidArgument(ErrorReason::kOptionInvalid, "--cache-dir",
                           "say which cache: --server HOST:PORT, or --local with --cache-dir FOLDER");
  }
  if (absl::StrContains(server, ',')) {
    return InvalidArgument(ErrorReason::kOptionInvalid, "--server",
                           absl::StrCat("'", server, "' are several servers, each with a cache of its own: name one"));
  }
  needs_cache_ = true;
  return absl::OkStatus();
}

void CommandContext::Progress(const std::string& text) {
  if (text.empty() && !progress_shown_) return;
  if (!isatty(STDERR_FILENO)) return;
  // Back to the line's start, and erase it.
  std::cerr << "\r\x1b[K" << text << std::flush;
  progress_shown_ = !text.empty();
}

void AddCompileFlags(CLI::App& command, CompileFlags& flags) {
  command
      .add_option("--target,-t", flags.target,
                  "cpu, cuda:sm_90, cuda (the device's), or auto (a CUDA device if there is one, else cpu)")
      ->capture_default_str();
  command
      .add_option("--numerics", flags.numerics,
                  "fused: round 16-bit floats where they are stored; eager: the bits of op-by-op execution")
      ->check(CLI::IsMember({"fused", "eager"}));
  command.add_flag("--fast-math", flags.fast_math, "allow approximate functions and contraction into fma");
  command.add_flag("--allow-tf32", flags.allow_tf32, "allow tf32 in products of f32");
  command.add_flag("--no-fuse", flags.no_fuse, "one kernel for each op, for comparison");
  command.add_flag("--no-cache", flags.no_cache, "build anew and do not store the result");
  command.add_option("--symbol", flags.symbols, "NAME=SIZE, the size of a symbolic dim")->expected(1)->take_all();
}

absl::Status ApplyCompileFlags(const CompileFlags& flags, CompileOptions& options) {
  if (!flags.numerics.empty()) {
    FUSELINE_ASSIGN_OR_RETURN(options.numerics, ParseNumerics(flags.numerics));
  }
  if (flags.fast_math) options.fast_math = true;
  if (flags.allow_tf32) options.allow_tf32 = true;
  if (flags.no_fuse) options.fuse = false;
  return absl::OkStatus();
}

absl::StatusOr<CompileSpec> MakeSpec(CommandContext& context, const std::string& graph_path,
                                     const CompileFlags& flags) {
  CompileSpec spec;
  FUSELINE_ASSIGN_OR_RETURN(spec.symbols, ParseSymbols(flags.symbols));
  FUSELINE_ASSIGN_OR_RETURN(Graph graph, LoadGraph(graph_path, spec.symbols));
  if (IsOnnx(graph_path)) spec.symbols.clear();  // they are in its shapes
  spec.graph = std::make_shared<const Graph>(std::move(graph));
  FUSELINE_RETURN_IF_ERROR(ApplyCompileFlags(flags, spec.options));
  FUSELINE_ASSIGN_OR_RETURN(spec.target, context.ResolveTarget(flags.target));
  spec.bypass_cache = flags.no_cache;
  return spec;
}

}  // namespace fuseline::cli
