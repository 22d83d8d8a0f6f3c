// Runs ONNX's own backend tests: imports each model, runs it on its inputs and compares with the given results.
//   conformance_onnx [--target cpu|cuda|cuda:sm_NN|reference] [--data DIR] [--filter TEXT] [--jobs N] [--list]
//   [--trace] [--weights constants|inputs] [--tolerance X] [--must-pass PERCENT]
// DIR (default: where Debian's libonnx-testdata lies) holds node/, simple/, pytorch-converted/, pytorch-operator/ or
// models/, with a folder for each test: model.onnx, and test_data_set_N with input_K.pb and output_K.pb. Tolerances are
// those of ONNX's runner, or rtol and atol of the test's file tolerance.txt; with --tolerance each element may differ
// by X times the largest magnitude of the wanted output, and the largest difference is printed. Out of scope are tests
// of dtypes that the IR lacks, of sequences, maps, optional values and strings, with subgraphs, and with random
// results. Exit code 0: nothing in scope is wrong, and enough of it passes; 1: not so; 77: skipped. Tested models are
// ONNX's; none is changed.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "client/onnx/import_model.h"
#include "client/onnx/model_reader.h"
#include "common/case_file/compare_tensors.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "tests/testing/engines.h"

namespace fuseline::testing {
namespace {

using onnx_import::FileTensor;
using onnx_import::ImportedModel;
using onnx_import::Model;
using onnx_import::ModelNode;

constexpr char kDebianData[] = "/usr/share/libonnx-testdata/data";
constexpr const char* kFolders[] = {"node", "simple", "pytorch-converted", "pytorch-operator", "models"};
constexpr int kSkipped = 77;
constexpr Tolerance kOnnxTolerance{1e-3, 1e-7};

struct Flags {
  std::string target = "cpu";
  std::string data = kDebianData;
  std::string filter;
  std::string weights = "constants";
  double tolerance = 0;   // 0: ONNX's
  double must_pass = 97;  // of the tests in scope, in percent
  int jobs = 0;
  bool list = false;   // also those out of scope
  bool trace = false;  // each test as it ends, on standard error
};

enum class Verdict : uint8_t { kPassed, kWrong, kRefused, kFailed, kOutOfScope };

struct Outcome {
  std::string name;
  std::string op;
  Verdict verdict = Verdict::kFailed;
  std::string reason;
  double error = 0;  // the largest one of all outputs, in magnitudes of the output
};

absl::StatusOr<std::string> ReadWhole(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return InvalidArgument(ErrorReason::kInputOutput, "", StrCat("can't read ", path.string()));
  std::ostringstream bytes;
  bytes << in.rdbuf();
  return std::move(bytes).str();
}

// Why the model is out of scope, or "".
std::string OutOfScope(const Model& model, const std::string& name) {
  static const std::set<std::string> kRandom = {"Bernoulli",    "RandomUniform",    "RandomUniformLike",
                                                "RandomNormal", "RandomNormalLike", "Multinomial"};
  for (const auto& values : {model.inputs, model.outputs}) {
    for (const auto& value : values) {
      if (!value.problem.empty()) return StrCat("'", value.name, "' is ", value.problem);
    }
  }
  for (const FileTensor& tensor : model.initializers) {
    if (!tensor.problem.empty()) return tensor.problem;
  }
  for (const ModelNode& node : model.nodes) {
    if (kRandom.count(node.op) > 0) return "random";
    if (node.op.find("Sequence") != std::string::npos && node.op != "ReverseSequence") return "sequences";
    if (node.op.find("Optional") != std::string::npos) return "optional values";
    for (const auto& [attribute, value] : node.attributes) {
      if (value.problem.find("subgraph") != std::string::npos) return "subgraphs";
    }
  }
  // Data of bf16 made from f32 by cutting bits off, where ONNX says to round.
  const bool to_bf16 = name.find("FLOAT_to_BFLOAT16") != std::string::npos;
  if (to_bf16) return "its data are not rounded";
  // Made with an epsilon of 1e-2, which the model leaves out: the default is 1e-6.
  if (name == "node/test_adam_multiple") return "its data are not those of the model";
  // Dropout in training mode, but for a ratio of 0.
  const bool dropout =
      name.find("training_dropout") != std::string::npos && name.find("zero_ratio") == std::string::npos;
  return dropout ? "random" : "";
}

// What a test is counted under: its one op, but for constants.
std::string OpOf(const Model& model) {
  std::set<std::string> ops;
  for (const ModelNode& node : model.nodes) {
    if (node.op != "Constant") ops.insert(node.op);
  }
  if (ops.empty()) return "Constant";
  return ops.size() == 1 ? *ops.begin() : "(several)";
}

struct DataSet {
  std::map<std::string, Tensor, std::less<>> inputs;
  std::vector<Tensor> outputs;
};

// bf16 stands in the data as its bits.
absl::StatusOr<Tensor> ReadOne(const std::filesystem::path& path, std::string& name) {
  FUSELINE_ASSIGN_OR_RETURN(const std::string bytes, ReadWhole(path));
  FUSELINE_ASSIGN_OR_RETURN(const FileTensor tensor, onnx_import::ReadTensorFile(bytes, DType::kBF16));
  if (!tensor.problem.empty()) return Unimplemented("onnx", StrCat(path.filename().string(), ": ", tensor.problem));
  name = tensor.name;
  return tensor.tensor;
}

absl::StatusOr<DataSet> ReadDataSet(const Model& model, const std::filesystem::path& folder) {
  std::set<std::string> initialized;
  for (const FileTensor& tensor : model.initializers) initialized.insert(tensor.name);
  std::vector<std::string> names;
  for (const auto& input : model.inputs) {
    if (initialized.count(input.name) == 0) names.push_back(input.name);
  }
  DataSet set;
  std::string name;
  for (size_t k = 0;; ++k) {
    const auto path = folder / StrCat("input_", k, ".pb");
    if (!std::filesystem::exists(path)) break;
    FUSELINE_ASSIGN_OR_RETURN(Tensor tensor, ReadOne(path, name));
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      if (k >= names.size()) return Unimplemented("onnx", "there are more inputs than the model has");
      name = names[k];
    }
    set.inputs[name] = std::move(tensor);
  }
  for (size_t k = 0;; ++k) {
    const auto path = folder / StrCat("output_", k, ".pb");
    if (!std::filesystem::exists(path)) break;
    FUSELINE_ASSIGN_OR_RETURN(Tensor tensor, ReadOne(path, name));
    set.outputs.push_back(std::move(tensor));
  }
  return set;
}

class Runner {
 public:
  Runner(EngineSet& engines, EngineKind kind, const Flags& flags) : engines_(engines), kind_(kind), flags_(flags) {}

  Outcome Run(const std::filesystem::path& folder) {
    Outcome outcome;
    outcome.name = StrCat(folder.parent_path().filename().string(), "/", folder.filename().string());
    const absl::Status status = RunInto(folder, outcome);
    if (!status.ok()) {
      outcome.verdict = absl::IsUnimplemented(status) ? Verdict::kRefused : Verdict::kFailed;
      outcome.reason = std::string(status.message());
    }
    return outcome;
  }

 private:
  absl::Status RunInto(const std::filesystem::path& folder, Outcome& outcome) {
    FUSELINE_ASSIGN_OR_RETURN(const std::string bytes, ReadWhole(folder / "model.onnx"));
    FUSELINE_ASSIGN_OR_RETURN(const Model model, onnx_import::ReadModel(bytes));
    outcome.op = OpOf(model);
    outcome.reason = OutOfScope(model, outcome.name);
    if (!outcome.reason.empty()) {
      outcome.verdict = Verdict::kOutOfScope;
      return absl::OkStatus();
    }
    Tolerance tolerance = kOnnxTolerance;
    std::ifstream(folder / "tolerance.txt") >> tolerance.rtol >> tolerance.atol;
    int sets = 0;
    for (; std::filesystem::exists(folder / StrCat("test_data_set_", sets)); ++sets) {
      FUSELINE_ASSIGN_OR_RETURN(const DataSet set, ReadDataSet(model, folder / StrCat("test_data_set_", sets)));
      FUSELINE_ASSIGN_OR_RETURN(outcome.reason, RunDataSet(model, set, tolerance, outcome.error));
      if (!outcome.reason.empty()) {
        outcome.verdict = Verdict::kWrong;
        return absl::OkStatus();
      }
    }
    if (sets == 0) return Internal("there is no test data set");
    outcome.verdict = Verdict::kPassed;
    return absl::OkStatus();
  }

  // What is wrong, or "".
  absl::StatusOr<std::string> RunDataSet(const Model& model, const DataSet& set, const Tolerance& given,
                                         double& error) {
    onnx_import::ImportOptions options;
    options.weights_as_inputs = flags_.weights == "inputs";
    options.known_inputs = set.inputs;
    for (const auto& [name, tensor] : set.inputs) options.shapes[name] = tensor.shape();
    FUSELINE_ASSIGN_OR_RETURN(const ImportedModel imported, onnx_import::ImportModel(model, options));
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < imported.input_names.size(); ++i) {
      const std::string& name = imported.input_names[i];
      const auto at = set.inputs.find(name);
      const Tensor* tensor = at != set.inputs.end() ? &at->second : FindWeight(imported, i);
      if (tensor == nullptr) return Internal(StrCat("there is no value for input '", name, "'"));
      inputs.push_back(*tensor);
    }
    FUSELINE_ASSIGN_OR_RETURN(const std::vector<Tensor> got, engines_.Run(kind_, imported.graph, inputs, {}));
    if (got.size() < set.outputs.size()) return StrCat(got.size(), " outputs, want ", set.outputs.size());
    for (size_t i = 0; i < set.outputs.size(); ++i) {
      const double magnitude = flags_.tolerance > 0 ? Magnitude(set.outputs[i]) : 1;
      const Tolerance tolerance = flags_.tolerance > 0 ? Tolerance{0, flags_.tolerance * magnitude} : given;
      const OutputComparison c = CompareTensors(imported.output_names[i], got[i], set.outputs[i], tolerance);
      error = std::max(error, c.max_abs_error / magnitude);
      if (!c.passed()) {
        return StrCat("output '", c.name, "' ", c.first_mismatch, " (", c.mismatches, " of ", c.elements,
                      ", largest relative error ", c.max_rel_error, ")");
      }
    }
    return std::string();
  }

  static const Tensor* FindWeight(const ImportedModel& imported, size_t input) {
    const std::string& name = imported.graph.value(imported.graph.inputs[input]).name;
    for (const onnx_import::GraphWeight& weight : imported.weights) {
      if (weight.input == name) return &weight.tensor;
    }
    return nullptr;
  }

  // The largest of all elements, or 1 where all are 0.
  static double Magnitude(const Tensor& tensor) {
    double largest = 0;
    for (int64_t i = 0; i < tensor.element_count(); ++i) largest = std::max(largest, std::abs(tensor.GetDouble(i)));
    return largest > 0 ? largest : 1;
  }

  EngineSet& engines_;
  EngineKind kind_;
  const Flags& flags_;
};

std::vector<std::filesystem::path> FindTests(const Flags& flags) {
  std::vector<std::filesystem::path> tests;
  for (const char* folder : kFolders) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(flags.data) / folder, error)) {
      const bool wanted = flags.filter.empty() || entry.path().string().find(flags.filter) != std::string::npos;
      if (wanted && std::filesystem::exists(entry.path() / "model.onnx")) tests.push_back(entry.path());
    }
  }
  std::sort(tests.begin(), tests.end());
  return tests;
}

struct Counts {
  int passed = 0, wrong = 0, refused = 0, failed = 0, out = 0;
  int in_scope() const { return passed + wrong + refused + failed; }
};

void Count(Verdict verdict, Counts& counts) {
  switch (verdict) {
    case Verdict::kPassed:
      ++counts.passed;
      break;
    case Verdict::kWrong:
      ++counts.wrong;
      break;
    case Verdict::kRefused:
      ++counts.refused;
      break;
    case Verdict::kFailed:
      ++counts.failed;
      break;
    case Verdict::kOutOfScope:
      ++counts.out;
      break;
  }
}

int Report(const std::vector<Outcome>& outcomes, const Flags& flags, double seconds) {
  std::map<std::string, Counts> by_op;
  Counts all;
  for (const Outcome& outcome : outcomes) {
    Count(outcome.verdict, all);
    Count(outcome.verdict, by_op[outcome.op]);
  }
  std::printf("%-28s %7s %7s %7s %7s %7s\n", "op", "passed", "wrong", "failed", "refused", "(out)");
  for (const auto& [op, c] : by_op) {
    std::printf("%-28s %7d %7d %7d %7d %7d\n", op.c_str(), c.passed, c.wrong, c.failed, c.refused, c.out);
  }
  for (const Outcome& outcome : outcomes) {
    const char* word = outcome.verdict == Verdict::kWrong     ? "WRONG"
                       : outcome.verdict == Verdict::kFailed  ? "FAILED"
                       : outcome.verdict == Verdict::kRefused ? "refused"
                                                              : "out of scope";
    const bool shown = outcome.verdict != Verdict::kPassed && (flags.list || outcome.verdict != Verdict::kOutOfScope);
    if (shown) std::printf("%s %s (%s): %s\n", word, outcome.name.c_str(), outcome.op.c_str(), outcome.reason.c_str());
  }
  for (const Outcome& outcome : outcomes) {
    if (flags.tolerance <= 0 || outcome.verdict != Verdict::kPassed) continue;
    std::printf("passed %s: largest difference %.2g of the output's magnitude\n", outcome.name.c_str(), outcome.error);
  }
  const double percent = all.in_scope() == 0 ? 0 : 100.0 * all.passed / all.in_scope();
  std::printf(
      "%zu tests, %d in scope: %d passed (%.1f %%), %d wrong, %d failed, %d refused; %d out of scope; %.0f s on %s\n",
      outcomes.size(), all.in_scope(), all.passed, percent, all.wrong, all.failed, all.refused, all.out, seconds,
      flags.target.c_str());
  if (!flags.filter.empty()) return all.wrong + all.failed + all.refused > 0 ? 1 : 0;
  if (percent < flags.must_pass) std::printf("FAILED: %.1f %% of the tests in scope must pass\n", flags.must_pass);
  return all.wrong + all.failed == 0 && percent >= flags.must_pass ? 0 : 1;
}

bool ParseFlags(int argc, char** argv, Flags& flags) {
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&](const char* name, std::string& to) {
      const std::string prefix = StrCat(name, "=");
      if (arg.rfind(prefix, 0) == 0) {
        to = arg.substr(prefix.size());
        return true;
      }
      if (arg != name || i + 1 >= argc) return false;
      to = argv[++i];
      return true;
    };
    std::string jobs, number;
    if (arg == "--list") {
      flags.list = true;
    } else if (arg == "--trace") {
      flags.trace = true;
    } else if (value("--jobs", jobs)) {
      flags.jobs = std::atoi(jobs.c_str());
    } else if (value("--tolerance", number)) {
      flags.tolerance = std::atof(number.c_str());
    } else if (value("--must-pass", number)) {
      flags.must_pass = std::atof(number.c_str());
    } else if (!value("--target", flags.target) && !value("--data", flags.data) && !value("--filter", flags.filter) &&
               !value("--weights", flags.weights)) {
      std::fprintf(stderr, "conformance_onnx: unknown argument: %s\n", arg.c_str());
      return false;
    }
  }
  if (flags.weights != "constants" && flags.weights != "inputs") {
    std::fprintf(stderr, "conformance_onnx: --weights is constants or inputs\n");
    return false;
  }
  return true;
}

int Skip(const std::string& reason) {
  std::printf("conformance_onnx: Skipped\n%s\n", reason.c_str());
  return kSkipped;
}

int Main(int argc, char** argv) {
  Flags flags;
  if (!ParseFlags(argc, argv, flags)) return 2;
  const std::vector<std::filesystem::path> tests = FindTests(flags);
  if (tests.empty()) return Skip(StrCat("no ONNX test data in ", flags.data, ": install libonnx-testdata"));
  const std::string kind_name = flags.target.rfind("cuda:", 0) == 0 ? "cuda" : flags.target;
  const std::optional<EngineKind> kind = ParseEngineKind(kind_name);
  if (!kind.has_value()) {
    std::fprintf(stderr, "conformance_onnx: unknown target: %s\n", flags.target.c_str());
    return 2;
  }
  absl::StatusOr<std::unique_ptr<EngineSet>> engines = EngineSet::Create();
  if (!engines.ok()) {
    std::fprintf(stderr, "conformance_onnx: %s\n", std::string(engines.status().message()).c_str());
    return 1;
  }
  if (absl::Status can_run = (*engines)->CanRun(*kind); !can_run.ok()) return Skip(std::string(can_run.message()));
  if (flags.target.rfind("cuda:", 0) == 0 && (*engines)->TargetOf(*kind).ToString() != flags.target) {
    return Skip(StrCat("the device is for ", (*engines)->TargetOf(*kind).ToString(), ", not ", flags.target));
  }

  const auto started = std::chrono::steady_clock::now();
  Runner runner(**engines, *kind, flags);
  std::vector<Outcome> outcomes(tests.size());
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  const unsigned jobs =
      flags.jobs > 0 ? static_cast<unsigned>(flags.jobs) : std::max(1u, std::thread::hardware_concurrency());
  for (unsigned t = 0; t < jobs; ++t) {
    threads.emplace_back([&] {
      for (size_t i = next++; i < tests.size(); i = next++) {
        if (flags.trace) std::fprintf(stderr, "%s\n", tests[i].filename().c_str());
        outcomes[i] = runner.Run(tests[i]);
        if (flags.trace && outcomes[i].verdict != Verdict::kPassed) {
          std::fprintf(stderr, "%s: not passed: %s\n", outcomes[i].name.c_str(), outcomes[i].reason.c_str());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - started;
  return Report(outcomes, flags, elapsed.count());
}

}  // namespace
}  // namespace fuseline::testing

int main(int argc, char** argv) { return fuseline::testing::Main(argc, argv); }
