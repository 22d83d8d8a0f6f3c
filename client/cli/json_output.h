// What the commands print with --json. Keys are stable; units end their names. Numbers that JSON cannot spell are the
// strings "nan", "inf", "-inf". Thread-safety: pure functions, save PrintJson.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/cpp/client.h"
#include "nlohmann/json.hpp"

namespace fuseline::cli {

using Json = nlohmann::ordered_json;

// To standard output, indented.
void PrintJson(const Json& json);

Json NumberJson(double value);
Json SummaryJson(const client::CompileSummary& summary);
Json ReportJson(const ArtifactReport& report);
Json KeyFieldsJson(const std::vector<KeyField>& fields);
Json ComparisonJson(const OutputComparison& comparison);
// Type and the first `max_values` elements.
Json TensorJson(const std::string& name, const Tensor& tensor, int64_t max_values);
Json KeptTensorJson(const client::KeptTensor& tensor);
Json ErrorJson(const absl::Status& status);

// "INVALID_ARGUMENT (GRAPH_TYPE_MISMATCH): node '%t3': …": how errors are printed for people.
std::string ErrorText(const absl::Status& status);

}  // namespace fuseline::cli
