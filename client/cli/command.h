// What the commands share: global flags, the backend, the flags that say how to compile, and how a command ends.
// A command is one file: it declares its flags on a CLI11 subcommand and hands over a body, which main runs after
// parsing. Exit codes: 0 done, 1 the work failed, 2 usage. Thread-safety: thread-compatible.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/backend.h"

namespace fuseline::cli {

struct GlobalFlags {
  std::string server;  // --server, else $FUSELINE_SERVER where --local is not given
  std::string owner;   // of kept tensors
  std::string balance = "affinity";
  double hedge_ms = 0;  // 0: never
  bool local = false;
  bool json = false;
  std::string cache_dir;        // --local: the disk cache
  std::string cache_key_file;   // --local: what signs its entries
  std::string cache_namespace;  // --local: its salt
  int threads = 0;              // --local: threads of the CPU device
  double timeout_seconds = 0;   // of each call to a server; 0: none
  client::TlsOptions tls;       // of connections to a server
};

class CommandContext {
 public:
  explicit CommandContext(const GlobalFlags& flags) : flags_(flags) {}

  bool json() const { return flags_.json; }
  // --server, or $FUSELINE_SERVER where it counts; empty: the work is local.
  std::string ServerAddress() const;
  // --timeout; zero: none given.
  absl::Duration timeout() const { return absl::Seconds(flags_.timeout_seconds); }
  // TLS is used where a file of it is named, too.
  client::TlsOptions tls() const;
  // Made when first asked for, so that `fmt` needs no engine. Errors: what connecting or creating the engine says.
  absl::StatusOr<Backend*> GetBackend();
  // "cpu", "cuda:sm_90", "cuda" (the first CUDA device's) or "auto" (that, or else cpu).
  absl::StatusOr<Target> ResolveTarget(const std::string& text);
  // A line on standard error that the next one overwrites; nothing where standard error is no terminal.
  void Progress(const std::string& text);
  // From now on only the artifacts of a lock file are accepted. Before GetBackend; "": all are.
  absl::Status PinTo(const std::string& lock_file);
  void ClearProgress() { Progress(""); }
  // The cache is what the command works on: one server's, or the folder of --cache-dir. Before GetBackend. Errors:
  // INVALID_ARGUMENT (kOptionInvalid) for several servers, or for none and no folder; from then on GetBackend's too,
  // where the folder can't be used.
  absl::Status NeedsOneCache();

 private:
  const GlobalFlags& flags_;
  std::unique_ptr<Backend> backend_;
  std::map<Fingerprint, std::string> pinned_;
  bool progress_shown_ = false;
  bool needs_cache_ = false;
};

// Returns the exit code, or an error that main prints (exit code 1).
using CommandBody = std::function<absl::StatusOr<int>(CommandContext&)>;
// Called by the subcommand that was chosen.
using SetBody = std::function<void(CommandBody)>;

// How to compile: --target and the options of the fingerprint.
struct CompileFlags {
  std::string target = "cpu";
  std::string numerics;  // empty: fused, or what a case file says
  bool fast_math = false;
  bool allow_tf32 = false;
  bool no_fuse = false;
  bool no_cache = false;
  std::vector<std::string> symbols;
};
void AddCompileFlags(CLI::App& command, CompileFlags& flags);
// The flags over `options`; what is not given stays.
absl::Status ApplyCompileFlags(const CompileFlags& flags, CompileOptions& options);
// Loads the graph and resolves the flags.
absl::StatusOr<CompileSpec> MakeSpec(CommandContext& context, const std::string& graph_path, const CompileFlags& flags);

// One for each command, each in a file of its own.
void RegisterRunCommand(CLI::App& app, const SetBody& set_body);
void RegisterCompileCommand(CLI::App& app, const SetBody& set_body);
void RegisterExplainCommand(CLI::App& app, const SetBody& set_body);
void RegisterVerifyCommand(CLI::App& app, const SetBody& set_body);
void RegisterReduceCommand(CLI::App& app, const SetBody& set_body);
void RegisterBenchCommand(CLI::App& app, const SetBody& set_body);
void RegisterConvertCommand(CLI::App& app, const SetBody& set_body);
void RegisterFmtCommand(CLI::App& app, const SetBody& set_body);
void RegisterOpsCommand(CLI::App& app, const SetBody& set_body);
void RegisterDevicesCommand(CLI::App& app, const SetBody& set_body);
void RegisterHealthCommand(CLI::App& app, const SetBody& set_body);
void RegisterCacheCommand(CLI::App& app, const SetBody& set_body);
void RegisterTensorsCommand(CLI::App& app, const SetBody& set_body);
void RegisterWarmCommand(CLI::App& app, const SetBody& set_body);  // also as `cache warm`

}  // namespace fuseline::cli
