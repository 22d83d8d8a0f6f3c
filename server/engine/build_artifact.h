// Runs the stages from a canonical graph to an artifact.
// Pipeline: Graph (canonical) -> LowerGraph -> Fuse -> GenerateKernels -> CompileKernels -> Artifact.
// Thread-safety: a pure function apart from the compiler it is given.
// Errors: those of the stages: UNIMPLEMENTED, INTERNAL, FAILED_PRECONDITION; that of `stop`.
#pragma once

#include "absl/status/statusor.h"
#include "common/artifact/artifact.h"
#include "common/ir/graph.h"
#include "common/ir/verify_graph.h"
#include "server/codegen/generate_kernels.h"
#include "server/compiler/kernel_compiler.h"
#include "server/fuser/fusion_plan.h"
#include "server/lowering/loop_program.h"

namespace fuseline {

// Everything before the compilers.
struct GeneratedCode {
  lowering::LoopProgram loops;
  fuser::FusionPlan fusion;
  codegen::GeneratedKernels kernels;
  std::map<std::string, int64_t> stage_micros;
};
// `stop` is asked between the stages; may be empty.
absl::StatusOr<GeneratedCode> GenerateCode(const Graph& canonical, const Target& target, const CompileOptions& options,
                                           const compiler::StopCheck& stop = {});

// A graph with symbols, and their sizes in the artifact to build.
struct SymbolBinding {
  const Graph* graph = nullptr;  // null: the client's graph has no symbols
  SymbolSizes sizes;
  GraphLimits limits;
};
// Makes the integers that depend on the symbols' sizes parameters of the kernels, as far as that can be done, so that
// artifacts for many sizes share them. The plan's steps get the values.
void ShareKernelsAcrossSizes(const SymbolBinding& binding, const Target& target, const CompileOptions& options,
                             codegen::GeneratedKernels& kernels);

// Fingerprint, canonical bytes and identity are the caller's to fill in. `stop` is asked between the stages and before
// each kernel; may be empty.
absl::StatusOr<Artifact> BuildArtifact(const Graph& canonical, const SymbolBinding& binding, const Target& target,
                                       const CompileOptions& options, compiler::KernelCompiler& compiler, int threads,
                                       const compiler::StopCheck& stop = {});

// The launch plan as text, for people and golden files.
std::string PrintLaunchPlan(const LaunchPlan& plan, const std::vector<KernelSource>& kernels);

}  // namespace fuseline
