// Compares a result with the wanted one, by the rule of docs/ir.md ("Comparing").
// Pipeline: got, want -> CompareTensors -> OutputComparison; used by the engine's verify and by `fuseline verify`.
// Rule: |got - want| <= atol + rtol |want|; NaN equals NaN; infinities must be equal; integers and bool must be equal.
// Thread-safety: pure functions. Linear in the elements.
// Tested by tests/unit/client/compare_tensors_test.cc
#pragma once

#include <cstdint>
#include <string>

#include "common/tensor/tensor.h"

namespace fuseline {

// One output's comparison with the wanted values.
struct OutputComparison {
  std::string name;
  int64_t mismatches = 0;
  int64_t elements = 0;
  double max_abs_error = 0;    // infinite where a NaN or an infinity is on one side only
  double max_rel_error = 0;    // |got - want| / |want|; elements with want = 0 are left out
  std::string first_mismatch;  // "at [1, 2]: got 3, want 4"; empty if none
  bool passed() const { return mismatches == 0 && first_mismatch.empty(); }
};

struct Tolerance {
  double rtol = 0;
  double atol = 0;
  bool negative_zero_matters =
      false;  // a wanted -0.0 is met by -0.0 alone (case files); a wanted 0.0 is always met by either zero
};

// A difference in dtype or shape is one mismatch, said in `first_mismatch`; then no element is compared.
OutputComparison CompareTensors(const std::string& name, const Tensor& got, const Tensor& want,
                                const Tolerance& tolerance);

// "[1, 2]": the position of element `flat` of a row-major tensor; "[]" for a 0-d one.
std::string ElementPosition(const Shape& shape, int64_t flat);
// The element as people read it: enough digits to tell it from its neighbours, "nan", "-0.0", "true".
std::string ElementText(const Tensor& tensor, int64_t flat);

}  // namespace fuseline
