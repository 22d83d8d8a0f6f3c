// Request ids: what ties a client's error to a line of the server's log. Taken from the call's metadata, or made up.
// Thread-safety: pure functions (NewRequestId asks the system for randomness).
// Tested by tests/unit/service/request_id_test.cc
#pragma once

#include <string>

namespace fuseline::service {

// Of the request's metadata, and of the response's initial and trailing metadata.
inline constexpr char kRequestIdKey[] = "x-request-id";

// 1 to 128 of [A-Za-z0-9._:-]: whatever else a client sends would not be safe to copy into logs and headers.
bool IsValidRequestId(const std::string& text);
// 32 hex digits.
std::string NewRequestId();

}  // namespace fuseline::service
