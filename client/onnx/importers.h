// The table of ONNX ops that can be imported: one row an op, in files by kind.
// An importer reads an OpCall and writes its results. To add an op, add a row to the file of its kind; an op that our
// IR lacks is composed of others. Attributes that an importer does not ask for are refused by name. Thread-safety: the
// table is immutable once made.
#pragma once

#include <map>
#include <string>

#include "client/onnx/op_call.h"

namespace fuseline::onnx_import {

using ImportOp = void (*)(OpCall& call);
// By name; ops of other domains as "domain::name".
using ImporterTable = std::map<std::string, ImportOp, std::less<>>;

void AddElementwiseImporters(ImporterTable& table);    // onnx_elementwise.cc
void AddLayoutImporters(ImporterTable& table);         // onnx_layout.cc
void AddCreationImporters(ImporterTable& table);       // onnx_creation.cc
void AddReductionImporters(ImporterTable& table);      // onnx_reductions.cc
void AddNormalizationImporters(ImporterTable& table);  // onnx_normalization.cc
void AddContractionImporters(ImporterTable& table);    // onnx_contractions.cc
void AddWindowImporters(ImporterTable& table);         // onnx_windows.cc
void AddIndexingImporters(ImporterTable& table);       // onnx_indexing.cc
void AddQuantizationImporters(ImporterTable& table);   // onnx_quantization.cc
void AddLossImporters(ImporterTable& table);           // onnx_losses.cc
void AddResizeImporters(ImporterTable& table);         // onnx_resize.cc
void AddRecurrentImporters(ImporterTable& table);      // onnx_recurrent.cc
void AddSignalImporters(ImporterTable& table);         // onnx_signal.cc
void AddTextImporters(ImporterTable& table);           // onnx_text.cc
void AddAttentionImporters(ImporterTable& table);      // onnx_attention.cc

ImporterTable MakeImporterTable();

// Why an op that has no row is refused: it works on sequences, has subgraphs, or is just not known.
std::string RefusalReason(const std::string& domain, const std::string& op);

}  // namespace fuseline::onnx_import
