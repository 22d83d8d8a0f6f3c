// fuseline tensors put|get|list|delete: tensors that a server keeps between runs.
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/command.h"
#include "client/cli/json_output.h"
#include "client/cli/text_output.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/tensor/npy.h"

namespace fuseline::cli {
namespace {

struct TensorsFlags {
  std::string file;
  std::string handle;
  std::vector<std::string> handles;
  std::string dtype;
  int64_t lease_seconds = 0;
  int64_t values = 8;
};

absl::StatusOr<int> RunPut(const TensorsFlags& flags, CommandContext& context) {
  std::optional<DType> dtype;
  if (!flags.dtype.empty()) {
    dtype = ParseDType(flags.dtype);
    if (!dtype.has_value()) {
      return InvalidArgument(ErrorReason::kOptionInvalid, "--dtype", absl::StrCat("'", flags.dtype, "' is no dtype"));
    }
  }
  FUSELINE_ASSIGN_OR_RETURN(const Tensor tensor, ReadNpyFile(flags.file, dtype));
  FUSELINE_ASSIGN_OR_RETURN(Backend * backend, context.GetBackend());
  context.Progress("sending…");
  FUSELINE_ASSIGN_OR_RETURN(const KeptTensor kept,
                            backend->PutTensor(tensor, {flags.handle, absl::Seconds(flags.lease_seconds)}));
  context.ClearProgress();
  if (context.json()) {
    PrintJson(KeptTensorJson(kept));
  } else {
    std::cout << KeptTensorText(kept) << std::endl;
  }
  return 0;
}

absl::StatusOr<int> RunGet(const TensorsFlags& flags, CommandContext& context) {
  FUSELINE_ASSIGN_OR_RETURN(Backend * backend, context.GetBackend());
  context.Progress("receiving…");
  FUSELINE_ASSIGN_OR_RETURN(const Tensor tensor, backend->GetTensor(flags.handle));
  context.ClearProgress();
  if (!flags.file.empty()) FUSELINE_RETURN_IF_ERROR(WriteNpyFile(flags.file, tensor));
  if (context.json()) {
    PrintJson(TensorJson(flags.handle, tensor, flags.values));
    return 0;
  }
  std::cout << TensorText(flags.handle, tensor, flags.values) << "\n";
  if (!flags.file.empty()) std::cout << "  saved to " << flags.file << "\n";
  std::cout << std::flush;
  return 0;
}

absl::StatusOr<int> RunList(CommandContext& context) {
  FUSELINE_ASSIGN_OR_RETURN(Backend * backend, context.GetBackend());
  FUSELINE_ASSIGN_OR_RETURN(const KeptTensors kept, backend->ListTensors());
  if (context.json()) {
    Json tensors = Json::array();
    for (const KeptTensor& tensor : kept.tensors) {
      Json json = KeptTensorJson(tensor);
      json["remaining_seconds"] = absl::ToDoubleSeconds(tensor.remaining);
      tensors.push_back(std::move(json));
    }
    PrintJson({{"size_bytes", kept.size_bytes}, {"quota_bytes", kept.quota_bytes}, {"tensors", std::move(tensors)}});
    return 0;
  }
  for (const KeptTensor& tensor : kept.tensors) {
    const std::string type =
        absl::StrCat(std::string(DTypeName(tensor.dtype)), "[", absl::StrJoin(tensor.shape, ", "), "]");
    std::cout << absl::StreamFormat(
        "%-40s %-24s %10s, %s left of %s\n", tensor.handle, type, BytesText(static_cast<double>(tensor.size_bytes)),
        absl::FormatDuration(absl::Trunc(tensor.remaining, absl::Seconds(1))), absl::FormatDuration(tensor.lease));
  }
  std::cout << kept.tensors.size() << " tensors, " << BytesText(static_cast<double>(kept.size_bytes)) << " of "
            << BytesText(static_cast<double>(kept.quota_bytes)) << std::endl;
  return 0;
}

absl::StatusOr<int> RunDelete(const TensorsFlags& flags, CommandContext& context) {
  FUSELINE_ASSIGN_OR_RETURN(Backend * backend, context.GetBackend());
  for (const std::string& handle : flags.handles) FUSELINE_RETURN_IF_ERROR(backend->DeleteTensor(handle));
  if (context.json()) PrintJson({{"deleted", flags.handles}});
  return 0;
}

}  // namespace

void RegisterTensorsCommand(CLI::App& app, const SetBody& set_body) {
  auto flags = std::make_shared<TensorsFlags>();
  CLI::App* command = app.add_subcommand("tensors", "tensors that the server keeps between runs");
  command->require_subcommand(1);

  CLI::App* put = command->add_subcommand("put", "send a tensor, and print its handle");
  put->add_option("file", flags->file, "FILE.npy")->required();
  put->add_option("--handle", flags->handle, "handle to keep it under; default: the server makes one up");
  put->add_option("--lease", flags->lease_seconds, "SECONDS without use that it is kept; 0: the server's default")
      ->check(CLI::NonNegativeNumber);
  put->add_option("--dtype", flags->dtype, "take the file's elements as this dtype of the same size, as bf16");
  put->callback([=] { set_body([flags](CommandContext& context) { return RunPut(*flags, context); }); });

  CLI::App* get = command->add_subcommand("get", "receive a tensor");
  get->add_option("handle", flags->handle, "HANDLE")->required();
  get->add_option("file", flags->file, "FILE.npy, where to save it; default: only print its first elements");
  get->add_option("--values", flags->values, "elements to print")->check(CLI::NonNegativeNumber)->capture_default_str();
  get->callback([=] { set_body([flags](CommandContext& context) { return RunGet(*flags, context); }); });

  command->add_subcommand("list", "the owner's tensors")->callback([=] { set_body(RunList); });

  CLI::App* remove = command->add_subcommand("delete", "delete tensors");
  remove->add_option("handles", flags->handles, "HANDLE...")->required();
  remove->callback([=] { set_body([flags](CommandContext& context) { return RunDelete(*flags, context); }); });
}

}  // namespace fuseline::cli
