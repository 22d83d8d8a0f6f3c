// The table of ops: one row holds everything about an op, and the rest derives from it. To add an op, add a row to the
// file of its kind (ops/pointwise_arith.cc, pointwise_math.cc, activations.cc, creation.cc, views.cc, reductions.cc,
// composites.cc, layout.cc, indexing.cc, ordered.cc, contractions.cc, windows.cc, losses.cc, random.cc; CONTRIBUTING.md
// has the recipe). Three rows are internal: `philox`, and for 16-bit floats `widen` and `narrow` to the f32 in which
// they are computed and back, with no rounding (`cast` rounds its operand and its result). Tested by
// tests/unit/reference/op_table_test.cc Thread-safety: the table is immutable.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ir/graph.h"
#include "common/ir/scalar_expr.h"

namespace fuseline {

enum class OpKind : uint8_t {
  kPointwise,    // one element of the result depends on one element of each (broadcast) operand: `scalar`
  kCreation,     // no operand: full, iota, constant
  kView,         // the result's elements are the operand's elsewhere: server/lowering/view_rules
  kReduction,    // `reduction` over the attribute dims
  kLayout,       // elements of the operands elsewhere, or a filling value: pad, concat, stack, tril, triu
  kIndexing,     // elements at positions that another operand gives: gather, scatter and their kin
  kOrdered,      // what runs along a dim in order: scans, sort, topk
  kContraction,  // sums of products: matmul, linear, einsum, conv, conv_transpose
  kWindow,       // reductions over sliding windows: pooling
  kComposite,    // decomposed into other ops: `decompose`
};

enum class AttrType : uint8_t {
  kInt,
  kFloat,
  kBool,
  kString,
  kDType,
  kIntList,
  kFloatList,
  kScalar /* int, float or bool */,
  kData
};

struct AttrSpec {
  const char* name;
  AttrType type;
  bool required = false;
  std::optional<AttrValue> default_value = std::nullopt;  // absent and not required: stays absent
};

// What a type rule sees: operand types (a literal operand has the type it takes: the other operand's dtype, 0-d) and
// attributes with defaults filled in. All types are static.
struct InferArgs {
  std::vector<TensorType> operands;
  const AttrMap& attrs;
  const GraphLimits& limits;
  bool HasAttr(const char* name) const;
  int64_t Int(const char* name) const;
  double Number(const char* name) const;
  bool Bool(const char* name) const;
  DType Type(const char* name) const;
  const std::vector<int64_t>& Ints(const char* name) const;
};
// Returns the types of the results. Errors are messages without the node's name: VerifyGraph adds op and node.
using TypeRule = absl::StatusOr<std::vector<TensorType>> (*)(const InferArgs& args);

using ScalarRule = Scalar (*)(ScalarArgs& args);

// A pointwise op's element for the reference interpreter: computed in double (floats) or int64 (integers and bool),
// then rounded or wrapped to the result's dtype. Written independently of `scalar`, as the arbiter of it. Exactly the
// ones that apply are set.
struct ReferenceArgs {
  const double* f = nullptr;              // operands as doubles (exact for every float dtype; also set for integers)
  const int64_t* i = nullptr;             // operands as integers (exact for integers and bool; 0 for float operands)
  DType operand_dtype = DType::kInvalid;  // of operand 0
  DType result_dtype = DType::kInvalid;
  const AttrMap* attrs = nullptr;
  double Number(const char* attr) const;
  bool Has(const char* attr) const;
  const std::string& String(const char* attr) const;
};
using FloatReference = double (*)(const ReferenceArgs& args);  // operands are floats (result float or bool)
using IntReference = int64_t (*)(const ReferenceArgs& args);   // operands are integers or bool (result integer or bool)

enum class ReductionKind : uint8_t { kNone, kSum, kProd, kAmax, kAmin, kAny, kAll, kArgmax, kArgmin, kVarMean };

// A graph under construction, handed to a composite's decomposition: Emit infers types, so that wrong ones are found at
// once.
class GraphBuilder;
using Decomposition = absl::StatusOr<std::vector<ValueId>> (*)(GraphBuilder& builder, const Node& node,
                                                               absl::Span<const ValueId> operands);

struct OpDef {
  const char* name = nullptr;
  OpKind kind = OpKind::kComposite;
  int min_operands = 0;
  int max_operands = 0;
  int results = 1;
  std::vector<AttrSpec> attrs;
  TypeRule infer = nullptr;
  ScalarRule scalar = nullptr;  // kPointwise
  FloatReference reference_float = nullptr;
  IntReference reference_int = nullptr;
  ReductionKind reduction =
      ReductionKind::kNone;           // kReduction: only the primitive ones; mean, std, norm … are composites
  Decomposition decompose = nullptr;  // kComposite
};

// The row, or null.
const OpDef* FindOp(std::string_view name);
// All rows, sorted by name.
const std::vector<const OpDef*>& AllOps();

// Shared pieces of type rules (op_rules.cc).
absl::StatusOr<Shape> BroadcastShapes(absl::Span<const Shape> shapes);
// Sorted, non-negative, unique dims from a "dims" attribute; all dims where it is absent.
absl::StatusOr<std::vector<int64_t>> NormalizeDims(const std::vector<int64_t>* dims, int rank);
absl::StatusOr<int64_t> NormalizeDim(int64_t dim, int rank);
// The literal as `dtype`, or an error where that dtype cannot hold it.
absl::Status CheckLiteral(const Literal& literal, DType dtype);

}  // namespace fuseline
