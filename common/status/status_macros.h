// Early return on error. The names are upstream Abseil's with our prefix, so that a later move is a rename.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define FUSELINE_RETURN_IF_ERROR(expr)                                                          \
  do {                                                                                          \
    if (::absl::Status fuseline_status = (expr); !fuseline_status.ok()) return fuseline_status; \
  } while (false)

#define FUSELINE_STATUS_CONCAT_INNER(a, b) a##b
#define FUSELINE_STATUS_CONCAT(a, b) FUSELINE_STATUS_CONCAT_INNER(a, b)

// FUSELINE_ASSIGN_OR_RETURN(auto x, F()): assigns the value, or returns the status. Not usable as an unbraced if-body.
#define FUSELINE_ASSIGN_OR_RETURN(lhs, expr) \
  FUSELINE_ASSIGN_OR_RETURN_IMPL(FUSELINE_STATUS_CONCAT(fuseline_statusor_, __LINE__), lhs, expr)
#define FUSELINE_ASSIGN_OR_RETURN_IMPL(statusor, lhs, expr) \
  auto statusor = (expr);                                   \
  if (!statusor.ok()) return std::move(statusor).status();  \
  lhs = std::move(statusor).value()
