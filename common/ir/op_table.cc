#include "common/ir/op_table.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>

#include "common/ir/ops/op_rows.h"

namespace fuseline {
namespace {

struct Table {
  std::vector<OpDef> rows;
  std::vector<const OpDef*> sorted;
  std::unordered_map<std::string_view, const OpDef*> by_name;
};

// Built once and never destroyed: graphs hold pointers to rows.
const Table& GetTable() {
  static const Table* const kTable = [] {
    auto* table = new Table();
    ops::AddPointwiseArithRows(table->rows);
    ops::AddPointwiseMathRows(table->rows);
    ops::AddActivationRows(table->rows);
    ops::AddCreationRows(table->rows);
    ops::AddViewRows(table->rows);
    ops::AddReductionRows(table->rows);
    ops::AddCompositeRows(table->rows);
    ops::AddLayoutRows(table->rows);
    ops::AddIndexingRows(table->rows);
    ops::AddOrderedRows(table->rows);
    ops::AddContractionRows(table->rows);
    ops::AddWindowRows(table->rows);
    ops::AddLossRows(table->rows);
    ops::AddRandomRows(table->rows);
    ops::AddResizeRow(table->rows);
    ops::AddQuantizationRows(table->rows);
    for (const OpDef& row : table->rows) {
      table->sorted.push_back(&row);
      table->by_name.emplace(row.name, &row);
    }
    std::sort(table->sorted.begin(), table->sorted.end(),
              [](const OpDef* a, const OpDef* b) { return std::string_view(a->name) < b->name; });
    return table;
  }();
  return *kTable;
}

}  // namespace

const OpDef* FindOp(std::string_view name) {
  const auto& by_name = GetTable().by_name;
  const auto it = by_name.find(name);
  return it == by_name.end() ? nullptr : it->second;
}

const std::vector<const OpDef*>& AllOps() { return GetTable().sorted; }

double ReferenceArgs::Number(const char* attr) const {
  const auto it = attrs->find(attr);
  if (it == attrs->end()) return 0.0;
  if (const auto* i = std::get_if<int64_t>(&it->second)) return static_cast<double>(*i);
  if (const auto* f = std::get_if<double>(&it->second)) return *f;
  if (const auto* b = std::get_if<bool>(&it->second)) return *b ? 1.0 : 0.0;
  return 0.0;
}

bool ReferenceArgs::Has(const char* attr) const { return attrs->find(attr) != attrs->end(); }

const std::string& ReferenceArgs::String(const char* attr) const {
  static const std::string* const kEmpty = new std::string();
  const auto it = attrs->find(attr);
  if (it == attrs->end()) return *kEmpty;
  const auto* text = std::get_if<std::string>(&it->second);
  return text != nullptr ? *text : *kEmpty;
}

}  // namespace fuseline
