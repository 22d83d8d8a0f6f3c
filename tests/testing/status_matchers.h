// Matchers for absl::Status and absl::StatusOr, with upstream Abseil's names (this Abseil does not have them yet).
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"

namespace fuseline::testing {

inline absl::Status GetStatus(const absl::Status& s) { return s; }
template <typename T>
absl::Status GetStatus(const absl::StatusOr<T>& s) {
  return s.status();
}

MATCHER(IsOk, "is OK") {
  *result_listener << GetStatus(arg).ToString();
  return GetStatus(arg).ok();
}
MATCHER_P2(StatusIs, code, substring, "") {
  const absl::Status status = GetStatus(arg);
  *result_listener << status.ToString();
  return status.code() == code && std::string(status.message()).find(substring) != std::string::npos;
}

}  // namespace fuseline::testing

#define EXPECT_OK(expr) EXPECT_THAT((expr), ::fuseline::testing::IsOk())
#define ASSERT_OK(expr) ASSERT_THAT((expr), ::fuseline::testing::IsOk())
