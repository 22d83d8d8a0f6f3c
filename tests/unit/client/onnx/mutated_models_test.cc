// Models with anything wrong in them are errors or graphs, never crashes: ONNX's test models with ops, operands,
// attributes and shapes changed at random, and with bytes changed. Skipped where the models are not installed.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "client/onnx/import_model.h"
#include "client/onnx/importers.h"
#include "common/ir/verify_graph.h"
#include "gtest/gtest.h"
#include "onnx/onnx.pb.h"

namespace fuseline::onnx_import {
namespace {

constexpr char kModels[] = "/usr/share/libonnx-testdata/data/node";
constexpr size_t kEvery = 4;  // of the models, so that it is fast
constexpr int kMutations = 8;

std::vector<std::string> ModelFiles() {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(kModels, error)) {
    files.push_back((entry.path() / "model.onnx").string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string ReadBytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << in.rdbuf();
  return std::move(bytes).str();
}

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {
    for (const auto& [name, importer] : MakeImporterTable()) ops_.push_back(name);
  }

  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(std::max<int64_t>(n, 1))); }

  int64_t OddNumber() {
    constexpr int64_t kOdd[] = {-1, 0, 1, 2, 3, 7, -7, 64, 1000, 1 << 20, int64_t{1} << 40, INT64_MAX, INT64_MIN};
    return kOdd[Below(std::size(kOdd))];
  }

  void Mutate(::onnx::GraphProto& graph) {
    if (graph.node_size() == 0) return;
    ::onnx::NodeProto& node = *graph.mutable_node(static_cast<int>(Below(graph.node_size())));
    switch (Below(6)) {
      case 0:
        node.set_op_type(ops_[static_cast<size_t>(Below(static_cast<int64_t>(ops_.size())))]);
        break;
      case 1:
        if (node.input_size() > 0) node.mutable_input()->RemoveLast();
        break;
      case 2:
        if (node.input_size() > 0) node.set_input(static_cast<int>(Below(node.input_size())), node.input(0));
        break;
      case 3:
        if (node.attribute_size() > 0)
          MutateAttribute(*node.mutable_attribute(static_cast<int>(Below(node.attribute_size()))));
        break;
      case 4: {
        if (graph.input_size() == 0) break;
        auto& type =
            *graph.mutable_input(static_cast<int>(Below(graph.input_size())))->mutable_type()->mutable_tensor_type();
        if (Below(2) == 0 || type.shape().dim_size() == 0) {
          type.mutable_shape()->add_dim()->set_dim_value(OddNumber());
        } else {
          type.mutable_shape()
              ->mutable_dim(static_cast<int>(Below(type.shape().dim_size())))
              ->set_dim_value(OddNumber());
        }
        break;
      }
      default: {
        if (graph.input_size() == 0) break;
        auto& type =
            *graph.mutable_input(static_cast<int>(Below(graph.input_size())))->mutable_type()->mutable_tensor_type();
        if (Below(2) == 0) {
          type.set_elem_type(static_cast<int>(Below(20)));
        } else if (type.shape().dim_size() > 0) {
          type.mutable_shape()->mutable_dim()->RemoveLast();
        }
      }
    }
  }

 private:
  void MutateAttribute(::onnx::AttributeProto& attribute) {
    if (Below(8) == 0) {
      attribute.set_type(::onnx::AttributeProto::STRING);
    } else if (attribute.ints_size() > 0) {
      if (Below(2) == 0) {
        attribute.mutable_ints()->RemoveLast();
      } else {
        attribute.set_ints(static_cast<int>(Below(attribute.ints_size())), OddNumber());
      }
    } else {
      attribute.set_i(OddNumber());
      attribute.set_f(Below(2) == 0 ? 1e38f : -0.5f);
    }
  }

  std::mt19937_64 random_;
  std::vector<std::string> ops_;
};

// Values for inputs, so that what must be known at import is.
ImportOptions OptionsFor(const ::onnx::GraphProto& graph, Mutator& mutator) {
  ImportOptions options;
  for (const auto& input : graph.input()) {
    const int type = input.type().tensor_type().elem_type();
    if (type != ::onnx::TensorProto::INT64 && type != ::onnx::TensorProto::FLOAT) continue;
    const int64_t count = mutator.Below(6);
    const DType dtype = type == ::onnx::TensorProto::INT64 ? DType::kI64 : DType::kF32;
    Tensor tensor = Tensor::Allocate(dtype, mutator.Below(4) == 0 ? Shape{} : Shape{count});
    for (int64_t i = 0; i < tensor.element_count(); ++i) {
      if (dtype == DType::kI64) {
        tensor.SetInt(i, mutator.OddNumber());
      } else {
        tensor.SetDouble(i, static_cast<double>(mutator.OddNumber()));
      }
    }
    options.known_inputs[input.name()] = tensor;
  }
  return options;
}

void ExpectErrorOrGraph(const std::string& bytes, const ImportOptions& options, const std::string& file) {
  absl::StatusOr<ImportedModel> imported = ImportModelBytes(bytes, options);
  if (!imported.ok()) return;
  const absl::Status verified = VerifyGraph(imported->graph);
  EXPECT_TRUE(verified.ok()) << file << ": " << verified;
}

TEST(MutatedModelsTest, AreErrorsOrGraphs) {
  const std::vector<std::string> files = ModelFiles();
  if (files.empty()) GTEST_SKIP() << "no ONNX test data: install libonnx-testdata";
  Mutator mutator(1);
  for (size_t f = 0; f < files.size(); f += kEvery) {
    ::onnx::ModelProto model;
    if (!model.ParseFromString(ReadBytes(files[f]))) continue;
    for (int m = 0; m < kMutations; ++m) {
      ::onnx::ModelProto changed = model;
      for (int64_t n = mutator.Below(3); n >= 0; --n) mutator.Mutate(*changed.mutable_graph());
      ExpectErrorOrGraph(changed.SerializeAsString(), OptionsFor(changed.graph(), mutator), files[f]);
    }
  }
}

TEST(MutatedModelsTest, WithBytesChangedAreErrorsOrGraphs) {
  const std::vector<std::string> files = ModelFiles();
  if (files.empty()) GTEST_SKIP() << "no ONNX test data: install libonnx-testdata";
  Mutator mutator(2);
  for (size_t f = 1; f < files.size(); f += kEvery) {
    const std::string bytes = ReadBytes(files[f]);
    if (bytes.empty()) continue;
    for (int m = 0; m < kMutations; ++m) {
      std::string changed = bytes;
      for (int n = 0; n < 3; ++n) {
        changed[static_cast<size_t>(mutator.Below(static_cast<int64_t>(changed.size())))] =
            static_cast<char>(mutator.Below(256));
      }
      ExpectErrorOrGraph(changed, {}, files[f]);
    }
  }
}

}  // namespace
}  // namespace fuseline::onnx_import
