// The C++ client of the service: compiles graphs on a server, runs them there, and gives errors back as absl::Status.
// Pipeline: Graph, tensors -> Client -> gRPC -> server -> artifacts, tensors.
//
//   FUSELINE_ASSIGN_OR_RETURN(auto client, fuseline::client::Client::Connect("localhost:9090"));
//   FUSELINE_ASSIGN_OR_RETURN(auto graph, fuseline::ParseGraphText(text));
//   FUSELINE_ASSIGN_OR_RETURN(auto result, client->Execute({.graph =
//   std::make_shared<fuseline::Graph>(std::move(graph))}, inputs));
//   // result.outputs[0].tensor
//
// An unchanged graph costs a 32-byte question: the client remembers the fingerprints that the server answered, asks by
// fingerprint first, and sends the graph only where the server answers NOT_FOUND.
//
// Errors: every call answers the server's status with its code and message, and where the server sent them the reason
// (GetErrorReason), the subject (GetErrorSubject: a node, input or field), the request's id (GetRequestId) and the time
// to wait (GetRetryDelay). proto/fuseline/v1 lists the codes of each method and what to do. Besides, of the client
// itself:
//   UNAVAILABLE        no server answers at the address, after all attempts.
//   DEADLINE_EXCEEDED  ClientOptions::deadline has passed.
//   INTERNAL           the server's answer can't be decoded.
// UNAVAILABLE is the only code retried automatically, as are calls whose answer was lost on the way: every call is
// idempotent, but for those that keep tensors. Where their answer was lost, a retry under a handle of one's own answers
// ALREADY_EXISTS, and one under a made-up handle leaves a tensor behind until its lease runs out.
//
// Several servers: a call goes to one that can compile or run its target, and to the next where that one does not
// answer, drains, or has a full queue; one that did not answer is avoided for a while. A fingerprint without its graph
// is asked of all of them before NOT_FOUND. Kept tensors are on one server, chosen by the owner's name: calls about
// tensors, and runs that use or keep some, go there and nowhere else. Calls carry `x-fuseline-affinity`, equal for
// equal graphs (for one owner's tensors), by which a balancer can do the same for clients that know only its address.
//
// Tensors travel in one message with the call, and where they are large (together 4 MiB or more) in chunks, without
// copies of the client's: a tensor must not change while a call uses it. Memory of large results is used again once all
// copies of the tensor are gone; tensors may outlive the client.
//
// Thread-safety: Client is thread-safe. Blocking: every call blocks until the answer, an error or the deadline.
// Tested by tests/unit/client/client_test.cc
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/artifact/artifact.h"
#include "common/case_file/compare_tensors.h"
#include "common/fingerprint/fingerprint.h"
#include "common/ir/graph.h"
#include "common/ir/verify_graph.h"
#include "common/target/compile_options.h"
#include "common/target/target.h"
#include "common/tensor/tensor.h"

namespace fuseline::client {

// Which of several servers a call goes to first.
enum class Balance : uint8_t {
  kAffinity,    // equal graphs meet on one server, whoever asks (rendezvous hashing of graph, target and options)
  kRoundRobin,  // each call to the next server
};

// None of these is part of a fingerprint.
// How connections are secured. Names in servers' certificates must be those that they are reached by.
struct TlsOptions {
  bool enabled = false;        // off: plain text
  std::string ca_file = {};    // authorities that are trusted, PEM; empty: the system's
  std::string cert_file = {};  // this client's certificate, PEM, where servers ask for one
  std::string key_file = {};   // its key, PEM
};

struct ClientOptions {
  // Of one call, all its attempts together. InfiniteDuration: none.
  absl::Duration deadline = absl::Minutes(10);
  // Attempts of one call while the server answers UNAVAILABLE; 1: no retries. At least 1. Of several servers each one
  // is tried in every attempt.
  int max_attempts = 5;
  // Wait before the second attempt; doubled for each further one, with jitter (half to all of it). The server's
  // RetryInfo is the least.
  absl::Duration initial_backoff = absl::Milliseconds(100);
  absl::Duration max_backoff = absl::Seconds(5);
  // The largest message in either direction. At most 2^31 - 1, gRPC's own bound; the server has a bound of its own.
  int64_t max_message_bytes = (int64_t{1} << 31) - 1;
  // Remember fingerprints and ask by them. Off: the graph goes with every call.
  bool remember_fingerprints = true;
  // Fingerprints remembered; the oldest is forgotten first.
  int64_t max_remembered = 10'000;
  // Whose kept tensors the calls see: up to 128 printable ASCII characters.
  std::string owner = {};
  Balance balance = Balance::kAffinity;
  // Compile asks a second server too where the first has not answered for so long; the first answer counts, the other
  // call is cancelled. Stages are not told then. Above 0. InfiniteDuration: never.
  absl::Duration hedge_delay = absl::InfiniteDuration();
  TlsOptions tls = {};
  // Graph keys and the digests (ArtifactDigest of client/cpp/pinned_artifacts.h, as a lock file has them) that their
  // artifacts must have. Empty: any. Others, and graphs that are not here, are refused with DATA_LOSS. Execute finds
  // out after the run, once for each artifact, and then withholds the results.
  std::map<Fingerprint, std::string> pinned = {};
};

// What to compile and how. At least one of `graph` and `fingerprint` is set; with both, the fingerprint is asked for
// first.
struct CompileSpec {
  std::shared_ptr<const Graph> graph;  // need not be verified; shared, never changed
  std::optional<Fingerprint>
      fingerprint;               // covers all fields below, which are then looked at only if the graph is sent
  SymbolSizes symbols;           // of symbolic dims; Execute and Verify solve those left out from the inputs
  std::optional<Target> target;  // unset: the server chooses
  CompileOptions options;
  bool bypass_cache = false;  // build anew and do not store; then the graph is always sent
};

struct NamedTensor {
  std::string name;  // an input or output of the graph; all empty: by position
  Tensor tensor;
  std::string handle = {};  // an input of Execute that the server keeps; then `tensor` is not looked at
};

// How a tensor is kept on the server.
struct KeepOptions {
  std::string handle;                           // 1 to 128 of [A-Za-z0-9_.:/-]; empty: the server makes one up
  absl::Duration lease = absl::ZeroDuration();  // how long without use; 0: the server's default
};

// A tensor that the server keeps.
struct KeptTensor {
  std::string handle;
  DType dtype = DType::kInvalid;
  Shape shape;
  int64_t size_bytes = 0;
  absl::Duration lease;
  absl::Duration remaining;  // in ListTensors
  std::string name;          // the output's, in Execute
};

struct KeptTensors {
  std::vector<KeptTensor> tensors;  // by handle
  int64_t size_bytes = 0;           // of all of them
  int64_t quota_bytes = 0;          // what the owner may take
};

struct KeptOutput {
  std::string name;  // the output's
  KeepOptions options;
};

struct ExecuteOptions {
  std::vector<std::string> outputs;  // to return; empty: all that are not kept
  std::vector<KeptOutput> keep;      // stay on the server
  std::optional<int32_t> device;     // an ordinal of ServerInfo::devices; unset: the server chooses
};

struct CompileSummary {
  Fingerprint fingerprint;
  std::string outcome;        // "miss", "memory-hit", "disk-hit", "joined", "shared-hit"
  absl::Duration elapsed;     // from request to artifact, in the server
  absl::Duration build_time;  // of it, spent compiling; 0 on a hit
  Target target;
  // Of a graph with symbols: what finds it at any size. Unset where the server keeps it not: large constants.
  std::optional<Fingerprint> symbolic_fingerprint;
  bool graph_sent = true;  // false: the fingerprint was enough
  bool is_hit() const { return outcome != "miss" && outcome != "joined"; }
};

// How far a compilation has come. Stages come in this order, and some are left out: a hit goes from the first to the
// last.
enum class CompileStage : uint8_t { kCacheCheck = 1, kQueued = 2, kCompiling = 3, kDone = 4 };
// Called on the caller's thread while it waits; from the start again where a broken call is made again.
using StageListener = std::function<void(CompileStage)>;

struct CompileResult {
  CompileSummary summary;
  // With its report and, where asked for, source. Inputs and outputs have canonical names (in0, …, out0, …) in the
  // graph's order.
  ArtifactPtr artifact;
};

struct ExecuteResult {
  CompileSummary summary;
  std::vector<NamedTensor>
      outputs;  // in the graph's order, by the graph's names (by out0, … where only a fingerprint was given)
  absl::Duration queue_time;
  absl::Duration run_time;  // transfers and kernels
  int32_t device = 0;
  std::vector<KeptTensor> kept;  // in the order of ExecuteOptions::keep
};

struct ExplainOptions {
  bool stages = false;  // "graph", "canonical", "loops", "fusion", "plan", "source": needs the graph
  bool key = false;     // the fields of the fingerprint: needs the graph
  bool miss = false;    // what of the cache is nearest to it: needs the graph
};

// A field of the key in which a request and an entry of the cache differ.
struct KeyDifference {
  std::string field;   // as KeyField; "graph.inputs" and "graph.nodes" for the graph
  std::string wanted;  // the request's value
  std::string found;   // the entry's
};

// Why a request misses.
struct MissReport {
  bool is_there = false;               // it does not: an entry was there before it was explained
  std::optional<Fingerprint> nearest;  // of the other entries; unset: there are none
  int64_t compared = 0;                // entries that were compared
  std::vector<KeyDifference> differences;
};

struct ExplainResult {
  CompileSummary summary;
  ArtifactReport report;
  std::vector<std::pair<std::string, std::string>> stages;  // name, text
  std::vector<KeyField> key_fields;
  std::optional<MissReport> miss;  // where asked for
};

struct VerifyResult {
  CompileSummary summary;
  bool passed = false;
  std::vector<OutputComparison> outputs;
};

struct BenchmarkOptions {
  int64_t seed = 1;              // of the random inputs, which the server makes
  int32_t warmup_count = 3;      // runs before the measured ones; 0 to 10,000
  int32_t iteration_count = 20;  // measured runs; 1 to 10,000
};

struct BenchmarkResult {
  CompileSummary summary;
  ArtifactReport report;             // with canonical names of values
  std::vector<double> micros;        // of each measured run, all its kernels together, on the device's clock
  double copy_bytes_per_second = 0;  // what a plain copy on the device moves, read and written together; 0: unknown
  int64_t moved_bytes = 0;           // what a run has to move: the bytes that the report's kernels read and write
  int32_t device = 0;                // an ordinal of ServerInfo::devices
  std::string device_name;
};

struct TargetInfo {
  std::string target;
  bool can_compile = false;
  bool can_execute = false;
  std::string reason;  // why not, and what to install
};

struct DeviceInfo {
  int32_t ordinal = 0;
  std::string name;
  std::string target;
  int64_t memory_bytes = 0;
  bool healthy = true;
  int64_t executions = 0;
  int64_t queue_depth = 0;
};

struct ServerInfo {
  std::string version;
  std::string compiler_identity;
  std::vector<TargetInfo> targets;
  std::vector<DeviceInfo> devices;
  GraphLimits limits;
  int64_t max_message_bytes = 0;
  absl::Duration uptime;
  bool draining = false;
};

struct ServerState {
  std::string address;
  absl::StatusOr<ServerInfo> info;  // or why it does not answer
};

struct CacheLevelStats {
  std::string level;
  int64_t entries = 0;
  int64_t size_bytes = 0;
  int64_t hits = 0;
  int64_t misses = 0;
  int64_t corrupt = 0;
  int64_t evictions = 0;
  int64_t errors = 0;
  int64_t unsigned_entries = 0;  // of `corrupt`: were not signed, or signed wrongly
};

struct CacheStats {
  std::vector<CacheLevelStats> levels;  // fastest first
  int64_t builds = 0;
  int64_t joins = 0;
  int64_t known_errors = 0;  // requests answered with a failure that is remembered
};

// What EvictCache drops: exactly one of these is set.
struct EvictOptions {
  std::vector<Fingerprint> fingerprints;
  bool all = false;
  absl::Duration unused_for = absl::ZeroDuration();  // entries that nobody has used for as long
};

struct EvictResult {
  int64_t entries = 0;
  int64_t size_bytes = 0;
};

struct ImportResult {
  int64_t imported = 0;
  int64_t present = 0;        // were there already
  int64_t refused = 0;        // failed a check
  std::string first_refusal;  // why the first of those was refused
};

class Client {
 public:
  // `address`: "HOST:PORT", "[::1]:PORT" or "unix:/path/of/socket"; "dns:///HOST:PORT" is a server at each address that
  // the name has, looked up again from time to time; several of these, separated by commas. Does not wait for a server:
  // a call that finds none answers UNAVAILABLE. Errors: INVALID_ARGUMENT (kOptionInvalid) for an empty address or a bad
  // option.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const std::string& address, const ClientOptions& options = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // `include_source`: the kernels' source too. With `on_stage`, the server tells meanwhile how far it is.
  absl::StatusOr<CompileResult> Compile(const CompileSpec& spec, bool include_source = false,
                                        const StageListener& on_stage = nullptr);
  // Compiles many graphs in parallel. `on_result` gets each one's position and result, once, on the caller's thread, as
  // they are done. Errors: of the call as a whole; those of single graphs are in their results.
  using BatchListener = std::function<void(size_t position, absl::StatusOr<CompileResult> result)>;
  absl::Status CompileBatch(const std::vector<CompileSpec>& specs, const BatchListener& on_result,
                            bool include_source = false);
  // Compiles where needed and runs. `inputs`: all named, in any order, or all unnamed, by position. Errors:
  // INVALID_ARGUMENT (kTensorMismatch) for a missing, unknown or doubled input; NOT_FOUND (kHandleUnknown) for a
  // handle.
  absl::StatusOr<ExecuteResult> Execute(const CompileSpec& spec, const std::vector<NamedTensor>& inputs,
                                        const ExecuteOptions& options = {});
  // Tensors that stay on the server, for runs of this owner. Of the result, handle, size and lease are set besides the
  // type. Errors: ALREADY_EXISTS (kHandleTaken); RESOURCE_EXHAUSTED (kQuota).
  absl::StatusOr<KeptTensor> PutTensor(const Tensor& tensor, const KeepOptions& options = {});
  // Errors: NOT_FOUND (kHandleUnknown); UNAVAILABLE (kNoHealthyDevice) where it was lost with its device.
  absl::StatusOr<Tensor> GetTensor(const std::string& handle);
  absl::Status DeleteTensor(const std::string& handle);
  absl::StatusOr<KeptTensors> ListTensors();
  // The report has the graph's own names of values where the graph is given.
  absl::StatusOr<ExplainResult> Explain(const CompileSpec& spec, const ExplainOptions& options = {});
  // Runs the graph, which must be given, and compares with `expected`, or with the reference interpreter where it is
  // empty.
  absl::StatusOr<VerifyResult> Verify(const CompileSpec& spec, const std::vector<NamedTensor>& inputs,
                                      const std::vector<NamedTensor>& expected, const Tolerance& tolerance);
  // Measures on a device of the server, with random inputs made there. Sizes of symbolic dims must be given. The
  // deadline covers compiling and measuring.
  absl::StatusOr<BenchmarkResult> Benchmark(const CompileSpec& spec, const BenchmarkOptions& options = {});
  // Of several servers, the first that answers.
  absl::StatusOr<ServerInfo> GetServerInfo();
  absl::StatusOr<CacheStats> GetCacheStats();
  // Asks each server once. Errors: UNAVAILABLE where no DNS name can be resolved.
  absl::StatusOr<std::vector<ServerState>> GetServerStates();
  // Drops entries of the server's cache.
  absl::StatusOr<EvictResult> EvictCache(const EvictOptions& options);
  // Entries of the server's cache as an export file: those with the fingerprints, or all. `sink` takes the file's bytes
  // in order; at offset 0 it begins, also where a broken call is made again. Errors: NOT_FOUND (kFingerprintUnknown).
  using FileSink = std::function<absl::Status(int64_t offset, std::string_view bytes)>;
  absl::Status ExportCache(const std::vector<Fingerprint>& fingerprints, const FileSink& sink);
  // Gives the server such a file. `source` gives bytes of it that begin at `offset`, as many as it likes up to 4 MiB;
  // none at the end. Errors: INVALID_ARGUMENT (kDataLoss) for a damaged file, whose entries up to there are kept.
  using FileSource = std::function<absl::StatusOr<std::string>(int64_t offset)>;
  absl::StatusOr<ImportResult> ImportCache(const FileSource& source);

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace fuseline::client
