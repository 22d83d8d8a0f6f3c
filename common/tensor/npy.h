// Reads and writes tensors as NumPy's .npy files.
// dtypes: as NumPy has them, little-endian; NumPy has no bf16 and f8, so these are written as ml_dtypes does: bf16 as
// '<V2', both f8 types as '<V1'. '<V2' is read as bf16; '<V1' is one of two types, so that reading it needs `as`.
// Ownership: values. Thread-safety: pure functions. Blocking: file access.
// Errors: INVALID_ARGUMENT (kTensorMismatch) for bytes that are no .npy file or of a dtype that there is none for;
// NOT_FOUND, INTERNAL (kInputOutput) for files. Tested by tests/unit/reference/npy_test.cc
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tensor/tensor.h"

namespace fuseline {

// Versions 1 to 3 of the format; either byte order; Fortran order is converted. With `as`, elements of the same size
// are taken for that dtype ('<u2' or '<V2' as bf16, '<V1' or '|u1' as an f8). Every size in the header is checked
// against the bytes that are there.
absl::StatusOr<Tensor> ParseNpy(std::string_view bytes, std::optional<DType> as = std::nullopt);
// Version 1, C order, data at a multiple of 64 bytes.
std::string FormatNpy(const Tensor& tensor);

absl::StatusOr<Tensor> ReadNpyFile(const std::string& path, std::optional<DType> as = std::nullopt);
absl::Status WriteNpyFile(const std::string& path, const Tensor& tensor);

}  // namespace fuseline
