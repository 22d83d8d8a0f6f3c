#include "client/cli/json_output.h"

#include <algorithm>
#include <cmath>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "client/cpp/error_details.h"
#include "common/status/error.h"

namespace fuseline::cli {

void PrintJson(const Json& json) { std::cout << json.dump(2, ' ', false, Json::error_handler_t::replace) << std::endl; }

Json NumberJson(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  return value;
}

Json SummaryJson(const client::CompileSummary& summary) {
  return {{"fingerprint", summary.fingerprint.ToHex()},
          {"target", summary.target.ToString()},
          {"outcome", summary.outcome},
          {"compile_ms", absl::ToDoubleMilliseconds(summary.elapsed)},
          {"build_ms", absl::ToDoubleMilliseconds(summary.build_time)},
          {"graph_sent", summary.graph_sent}};
}

Json ReportJson(const ArtifactReport& report) {
  Json kernels = Json::array();
  for (const KernelReport& k : report.kernels) {
    kernels.push_back({{"name", k.name},
                       {"kind", k.kind},
                       {"schedule", k.schedule},
                       {"ops", k.ops},
                       {"tensors_read", k.tensors_read},
                       {"tensors_written", k.tensors_written},
                       {"bytes_read", k.bytes_read},
                       {"bytes_written", k.bytes_written},
                       {"unfused_kernels", k.unfused_kernels},
                       {"unfused_transfers", k.unfused_transfers},
                       {"unfused_bytes", k.unfused_bytes}});
  }
  Json refusals = Json::array();
  for (const FusionRefusal& r : report.refusals)
    refusals.push_back({{"producer", r.producer}, {"consumer", r.consumer}, {"reason", r.reason}});
  Json stages = Json::object();
  for (const auto& [stage, micros] : report.stage_micros) stages[stage] = micros;
  return {{"kernels_before", report.kernels_before()},
          {"kernels_after", report.kernels_after()},
          {"transfers_before", report.transfers_before()},
          {"transfers_after", report.transfers_after()},
          {"bytes_before", report.bytes_before()},
          {"bytes_after", report.bytes_after()},
          {"intermediates_removed", report.intermediates_removed},
          {"kernels", std::move(kernels)},
          {"refusals", std::move(refusals)},
          {"stage_micros", std::move(stages)}};
}

Json KeyFieldsJson(const std::vector<KeyField>& fields) {
  Json json = Json::array();
  for (const KeyField& f : fields) json.push_back({{"name", f.name}, {"value", f.value}, {"digest", f.digest}});
  return json;
}

Json ComparisonJson(const OutputComparison& c) {
  return {{"name", c.name},
          {"elements", c.elements},
          {"mismatches", c.mismatches},
          {"max_abs_error", NumberJson(c.max_abs_error)},
          {"max_rel_error", NumberJson(c.max_rel_error)},
          {"first_mismatch", c.first_mismatch}};
}

Json TensorJson(const std::string& name, const Tensor& tensor, int64_t max_values) {
  Json values = Json::array();
  const int64_t shown = std::min(max_values, tensor.element_count());
  for (int64_t i = 0; i < shown; ++i) {
    if (IsBool(tensor.dtype())) {
      values.push_back(tensor.GetInt(i) != 0);
    } else if (IsInteger(tensor.dtype())) {
      values.push_back(tensor.GetInt(i));
    } else {
      values.push_back(NumberJson(tensor.GetDouble(i)));
    }
  }
  return {{"name", name},
          {"dtype", std::string(DTypeName(tensor.dtype()))},
          {"shape", tensor.shape()},
          {"first_values", std::move(values)}};
}

Json KeptTensorJson(const client::KeptTensor& tensor) {
  Json json = {{"handle", tensor.handle},
               {"dtype", std::string(DTypeName(tensor.dtype))},
               {"shape", tensor.shape},
               {"size_bytes", tensor.size_bytes},
               {"lease_seconds", absl::ToDoubleSeconds(tensor.lease)}};
  if (!tensor.name.empty()) json["name"] = tensor.name;
  return json;
}

Json ErrorJson(const absl::Status& status) {
  return {{"code", absl::StatusCodeToString(status.code())},
          {"reason", std::string(ErrorReasonName(GetErrorReason(status)))},
          {"subject", GetErrorSubject(status)},
          {"message", std::string(status.message())},
          {"request_id", client::GetRequestId(status)}};
}

std::string ErrorText(const absl::Status& status) {
  std::string text = absl::StatusCodeToString(status.code());
  const ErrorReason reason = GetErrorReason(status);
  if (reason != ErrorReason::kUnspecified) absl::StrAppend(&text, " (", std::string(ErrorReasonName(reason)), ")");
  absl::StrAppend(&text, ": ", status.message());
  const std::string id = client::GetRequestId(status);
  if (!id.empty()) absl::StrAppend(&text, " [request ", id, "]");
  return text;
}

}  // namespace fuseline::cli
