// What the commands print for people. Thread-safety: pure functions.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "client/cpp/client.h"

namespace fuseline::cli {

std::string BytesText(double bytes);              // "12.0 MiB"
std::string MillisText(absl::Duration duration);  // "3.21 ms"
std::string MicrosText(double micros);            // "812.4 us", "3.21 ms"
// "cpu, miss, compiled in 210 ms, fingerprint 12ab…".
std::string SummaryText(const client::CompileSummary& summary);
// "y: f32[1024, 1024] = 0.5, 0.25, …": type and first elements.
std::string TensorText(const std::string& name, const Tensor& tensor, int64_t max_values);

// "y: f32[1024] is kept as 'handle' for 1h without use".
std::string KeptTensorText(const client::KeptTensor& tensor);

}  // namespace fuseline::cli
