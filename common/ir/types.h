// Element types, dims and tensor types of the graph IR (docs/ir.md).
// Units: sizes in elements unless the name ends in _bytes. Ownership: values. Thread-safety: immutable values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fuseline {

// Element types. On the wire and in cache entries: never renumber.
enum class DType : uint8_t {
  kInvalid = 0,
  kF64 = 1,
  kF32 = 2,
  kF16 = 3,
  kBF16 = 4,
  kF8E4M3 = 5,
  kF8E5M2 = 6,
  kI64 = 7,
  kI32 = 8,
  kI16 = 9,
  kI8 = 10,
  kU8 = 11,
  kBool = 12,
};
inline constexpr int kDTypeCount = 13;

enum class DTypeKind : uint8_t { kInvalid, kFloat, kInteger, kBool };

// "f32"; "invalid" for kInvalid.
std::string_view DTypeName(DType dtype);
std::optional<DType> ParseDType(std::string_view name);
int DTypeSizeBytes(DType dtype);
DTypeKind GetDTypeKind(DType dtype);
inline bool IsFloat(DType d) { return GetDTypeKind(d) == DTypeKind::kFloat; }
inline bool IsInteger(DType d) { return GetDTypeKind(d) == DTypeKind::kInteger; }
inline bool IsBool(DType d) { return d == DType::kBool; }
inline bool IsF8(DType d) { return d == DType::kF8E4M3 || d == DType::kF8E5M2; }
// f16 and bf16: stored in 16 bits, computed in f32.
inline bool IsHalf(DType d) { return d == DType::kF16 || d == DType::kBF16; }
// The dtype in which arithmetic on `d` is carried out: f32 for the 16- and 8-bit floats, otherwise `d` itself.
DType ComputeDType(DType d);

// A dim: a size, or a symbol whose size is bound when the graph is compiled.
struct Dim {
  int64_t size = 0;    // meaningless while symbolic
  std::string symbol;  // empty: static

  Dim() = default;
  Dim(int64_t s) : size(s) {}  // NOLINT(google-explicit-constructor): shapes are written as lists of sizes
  static Dim Symbol(std::string name) {
    Dim d;
    d.symbol = std::move(name);
    return d;
  }
  bool is_symbolic() const { return !symbol.empty(); }
  friend bool operator==(const Dim& a, const Dim& b) {
    return a.symbol == b.symbol && (a.is_symbolic() || a.size == b.size);
  }
};

using Shape = std::vector<int64_t>;  // of a static tensor

// A tensor's type. Strides, in elements, are kept only where they differ from dense row-major.
struct TensorType {
  DType dtype = DType::kInvalid;
  std::vector<Dim> dims;
  std::optional<std::vector<int64_t>> strides;

  static TensorType Make(DType dtype, const Shape& shape);
  int rank() const { return static_cast<int>(dims.size()); }
  bool is_static() const;
  // The sizes of a static type.
  Shape shape() const;
  // Number of elements of a static type. The verifier has bounded it (kMaxElements), so it can't overflow.
  int64_t element_count() const;
  int64_t size_bytes() const { return element_count() * DTypeSizeBytes(dtype); }
  // "f32[2, 3]{1, 2}".
  std::string ToString() const;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

int64_t ElementCount(const Shape& shape);
Shape DenseStrides(const Shape& shape);

}  // namespace fuseline
