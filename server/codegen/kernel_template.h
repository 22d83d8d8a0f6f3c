// Makes one kernel text serve many sizes: integers that differ between two bindings of a graph's symbols become
// parameters of the kernel.
// Pipeline: KernelSource (at two bindings) -> MakeKernelTemplate -> KernelSource with parameters, their values.
// Before:  if (e >= 4096) return;                    at another binding:  if (e >= 12288) return;
// After:   (…, const long long size_0) { if (e >= (int)size_0) return;     size_0 = 4096
// A template is right for the first binding by construction: with its values put in, it is that binding's own text.
// Two bindings share a kernel exactly where their templates' texts are equal; nothing else is assumed of the sizes.
// Thread-safety: a pure function. Linear in the text. Tested by tests/unit/codegen/kernel_template_test.cc
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "server/codegen/kernel_source.h"

namespace fuseline::codegen {

// Parameters of one kernel, at most.
inline constexpr size_t kMaxSizeParameters = 64;

struct KernelTemplate {
  KernelSource source;         // `sizes.size()` long long parameters follow the pointers, see launch_plan.h
  std::vector<int64_t> sizes;  // of the first binding
};

// `at` and `elsewhere`: the same kernel at two bindings, with `pointers` pointer parameters. Nothing where the texts
// differ in more than integers of expressions (another schedule, a width that must be constant).
std::optional<KernelTemplate> MakeKernelTemplate(const KernelSource& at, const KernelSource& elsewhere,
                                                 size_t pointers);

}  // namespace fuseline::codegen
