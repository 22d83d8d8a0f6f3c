// What each setting that reaches the engine has to do with the key: one that is not classified here does not compile.
// Pipeline: EngineOptions, CompileRequest -> (this table) -> what docs/fingerprint.md argues.
// CompileOptions has a table of its own, kOptionRows in common/fingerprint/fingerprint.cc. How artifacts are kept and
// run (executor, tensors) is classified as a whole: that code can't include what generates code (docs/pipeline.md).
// To add a field: name it in the function of its struct, in its place, add its row, and list it in
// docs/fingerprint.md. Tested by tests/conformance/key_test.cc
#pragma once

#include <cstdint>
#include <iterator>
#include <tuple>
#include <utility>

#include "server/engine/engine.h"

namespace fuseline {

enum class KeyScope : uint8_t {
  kInKey,            // goes into a field of the key
  kThroughIdentity,  // chooses a compiler, and what that says of itself is in the key
  kNotInKey,         // can't change the code
};

struct ScopedSetting {
  const char* name;
  KeyScope scope;
  const char* why;
};

inline constexpr ScopedSetting kCompileRequestScopes[] = {
    {"graph", KeyScope::kInKey, "in canonical form"},
    {"symbols", KeyScope::kInKey, "in the sizes of the canonical graph, and which dims were symbols behind it"},
    {"target", KeyScope::kInKey, "machine code differs"},
    {"options", KeyScope::kInKey, "each by a row of its own"},
    {"bypass_cache", KeyScope::kNotInKey, "what is built so is not stored"},
};

inline constexpr ScopedSetting kEngineOptionScopes[] = {
    {"cache_dir", KeyScope::kNotInKey, "where artifacts are kept"},
    {"cache_memory_bytes", KeyScope::kNotInKey, "how many artifacts are kept"},
    {"cache_disk_bytes", KeyScope::kNotInKey, "how many artifacts are kept"},
    {"cache_disk_max_idle", KeyScope::kNotInKey, "how many artifacts are kept"},
    {"cache_seed", KeyScope::kNotInKey, "where artifacts are kept"},
    {"cache_key_file", KeyScope::kNotInKey, "which artifacts are believed"},
    {"cache_namespace", KeyScope::kNotInKey, "which artifacts are seen: a salt of the place where they are kept"},
    {"cache_error_duration", KeyScope::kNotInKey, "how long errors are kept"},
    {"shared_cache", KeyScope::kNotInKey, "where artifacts are kept, and who builds them"},
    {"compile_threads", KeyScope::kNotInKey, "each kernel is compiled alone, and kernels are put in order"},
    {"max_builds_waiting", KeyScope::kNotInKey, "refuses builds"},
    {"build_linger", KeyScope::kNotInKey, "ends in an error or not at all"},
    {"report", KeyScope::kNotInKey, "log lines"},
    {"nvrtc_search_paths", KeyScope::kThroughIdentity, "the version of what is found"},
    {"host_compiler", KeyScope::kThroughIdentity, "the version and arguments of what is found"},
    {"compiler_workers", KeyScope::kNotInKey, "see its fields"},
    {"limits", KeyScope::kNotInKey, "see its fields"},
    {"executor", KeyScope::kNotInKey, "runs artifacts"},
    {"tensors", KeyScope::kNotInKey, "keeps tensors"},
};

inline constexpr ScopedSetting kCompilerWorkerScopes[] = {
    {"command", KeyScope::kNotInKey, "where the compiler runs; its version is asked of it there"},
    {"max_workers", KeyScope::kNotInKey, "how many kernels are compiled at once"},
    {"time_limit", KeyScope::kNotInKey, "ends in an error or not at all"},
    {"memory_limit_bytes", KeyScope::kNotInKey, "ends in an error or not at all"},
    {"max_kernels", KeyScope::kNotInKey, "when a process is replaced"},
    {"max_resident_bytes", KeyScope::kNotInKey, "when a process is replaced"},
};

inline constexpr ScopedSetting kGraphLimitScopes[] = {
    {"max_nodes", KeyScope::kNotInKey, "refuses graphs"},
    {"max_rank", KeyScope::kNotInKey, "refuses graphs"},
    {"max_elements", KeyScope::kNotInKey, "refuses graphs"},
    {"max_constant_bytes", KeyScope::kNotInKey, "refuses graphs"},
    {"max_text_bytes", KeyScope::kNotInKey, "refuses graphs"},
};

// Every field of a struct, by name and in order. A struct with another field does not compile here: classify the new
// one above, then name it here.
namespace key_scope {

inline auto Fields(const CompileRequest& request) {
  const auto& [graph, symbols, target, options, bypass_cache] = request;
  return std::tie(graph, symbols, target, options, bypass_cache);
}
inline auto Fields(const EngineOptions& engine) {
  const auto& [cache_dir, cache_memory_bytes, cache_disk_bytes, cache_disk_max_idle, cache_seed, cache_key_file,
               cache_namespace, cache_error_duration, shared_cache, compile_threads, max_builds_waiting, build_linger,
               report, nvrtc_search_paths, host_compiler, compiler_workers, limits, executor, tensors] = engine;
  return std::tie(cache_dir, cache_memory_bytes, cache_disk_bytes, cache_disk_max_idle, cache_seed, cache_key_file,
                  cache_namespace, cache_error_duration, shared_cache, compile_threads, max_builds_waiting,
                  build_linger, report, nvrtc_search_paths, host_compiler, compiler_workers, limits, executor, tensors);
}
inline auto Fields(const compiler::WorkerOptions& workers) {
  const auto& [command, max_workers, time_limit, memory_limit_bytes, max_kernels, max_resident_bytes] = workers;
  return std::tie(command, max_workers, time_limit, memory_limit_bytes, max_kernels, max_resident_bytes);
}
inline auto Fields(const GraphLimits& limits) {
  const auto& [max_nodes, max_rank, max_elements, max_constant_bytes, max_text_bytes] = limits;
  return std::tie(max_nodes, max_rank, max_elements, max_constant_bytes, max_text_bytes);
}

template <typename Struct>
inline constexpr size_t kFieldCount = std::tuple_size_v<decltype(Fields(std::declval<const Struct&>()))>;

static_assert(kFieldCount<CompileRequest> == std::size(kCompileRequestScopes));
static_assert(kFieldCount<EngineOptions> == std::size(kEngineOptionScopes));
static_assert(kFieldCount<compiler::WorkerOptions> == std::size(kCompilerWorkerScopes));
static_assert(kFieldCount<GraphLimits> == std::size(kGraphLimitScopes));

}  // namespace key_scope
}  // namespace fuseline
