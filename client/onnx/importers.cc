#include "client/onnx/importers.h"

#include <algorithm>
#include <iterator>

namespace fuseline::onnx_import {

ImporterTable MakeImporterTable() {
  ImporterTable table;
  AddElementwiseImporters(table);
  AddLayoutImporters(table);
  AddCreationImporters(table);
  AddReductionImporters(table);
  AddNormalizationImporters(table);
  AddContractionImporters(table);
  AddWindowImporters(table);
  AddIndexingImporters(table);
  AddQuantizationImporters(table);
  AddLossImporters(table);
  AddResizeImporters(table);
  AddRecurrentImporters(table);
  AddSignalImporters(table);
  AddTextImporters(table);
  AddAttentionImporters(table);
  return table;
}

std::string RefusalReason(const std::string& domain, const std::string& op) {
  static constexpr const char* kControlFlow[] = {"If", "Loop", "Scan"};
  static constexpr const char* kDataShapes[] = {"NonMaxSuppression", "Unique"};
  static constexpr const char* kStrings[] = {"StringNormalizer", "StringConcat", "StringSplit", "RegexFullMatch"};
  const auto is_in = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), op) != std::end(names);
  };
  if (!domain.empty()) return "of a domain that is not imported";
  if (is_in(kControlFlow)) return "control flow with subgraphs is not imported";
  if (is_in(kDataShapes)) return "the shape of its result depends on values";
  if (is_in(kStrings)) return "strings are not supported";
  if (op.find("Sequence") != std::string::npos) return "sequences are not supported";
  if (op.find("Optional") != std::string::npos) return "optional values are not supported";
  return "not imported";
}

}  // namespace fuseline::onnx_import
