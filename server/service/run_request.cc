#include "server/service/run_request.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/ir/verify_graph.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/tensor/stream/pooled_tensor.h"
#include "server/service/message_codec.h"

namespace fuseline::service {
namespace {

absl::StatusOr<size_t> OutputIndex(const std::vector<std::string>& names, const std::string& name,
                                   const std::string& field) {
  const auto it = std::find(names.begin(), names.end(), name);
  if (it != names.end()) return static_cast<size_t>(it - names.begin());
  return InvalidArgument(ErrorReason::kOptionInvalid, field, absl::StrCat("the graph has no output '", name, "'"));
}

// Whether a tensor of this dtype and shape can be one of `want`. Symbolic dims take any size.
bool Fits(const TensorType& want, DType dtype, const Shape& shape) {
  if (want.dtype != dtype || want.dims.size() != shape.size()) return false;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (!want.dims[d].is_symbolic() && want.dims[d].size != shape[d]) return false;
  }
  return true;
}

}  // namespace

absl::Status RunRequest::Prepare() {
  if (request_->has_device() && request_->device() < 0) {
    return InvalidArgument(ErrorReason::kOptionInvalid, "device",
                           "'device' is negative: leave it unset for any device");
  }
  FUSELINE_RETURN_IF_ERROR(ResolveSignature());
  FUSELINE_RETURN_IF_ERROR(ResolveOutputs());
  std::vector<std::string> names;
  for (const Input& input : inputs_) names.push_back(input.name);
  std::vector<std::string> given;
  for (const v1::InputTensor& input : request_->inputs()) given.push_back(input.name());
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<size_t> found, BindNames(names, given, "input"));
  for (size_t i = 0; i < inputs_.size(); ++i) {
    inputs_[i].position = found[i];
    FUSELINE_RETURN_IF_ERROR(ResolveInput(inputs_[i]));
  }
  return absl::OkStatus();
}

absl::Status RunRequest::ResolveSignature() {
  if (request_->spec().source_case() == v1::CompileSpec::kFingerprint) {
    FUSELINE_ASSIGN_OR_RETURN(const Fingerprint fingerprint, DecodeFingerprint(request_->spec()));
    FUSELINE_ASSIGN_OR_RETURN(compiled_, engine_.Find(fingerprint));
    compile_ = std::move(compiled_.symbolic);
  } else {
    FUSELINE_ASSIGN_OR_RETURN(compile_, DecodeGraphSpec(request_->spec(), engine_));
  }
  if (!compile_.has_value()) {
    NoteCompiled(compiled_, context_);
    for (const PlanTensor& input : compiled_.artifact->plan.inputs) {
      inputs_.push_back({input.name, input.type()});
    }
    for (const PlanTensor& output : compiled_.artifact->plan.outputs) output_names_.push_back(output.name);
    return absl::OkStatus();
  }
  const Graph& graph = compile_->graph;
  for (const ValueId id : graph.inputs) inputs_.push_back({graph.value(id).name, graph.type(id)});
  output_names_ = OutputNames(graph);
  return absl::OkStatus();
}

absl::Status RunRequest::ResolveOutputs() {
  returned_.assign(output_names_.size(), request_->output_names_size() == 0);
  std::vector<bool> is_kept(output_names_.size(), false);
  for (const v1::KeptOutput& kept : request_->kept_outputs()) {
    Kept out;
    FUSELINE_ASSIGN_OR_RETURN(out.output, OutputIndex(output_names_, kept.name(), "kept_outputs"));
    if (is_kept[out.output]) {
      return InvalidArgument(ErrorReason::kOptionInvalid, "kept_outputs",
                             absl::StrCat("output '", kept.name(), "' is to be kept twice"));
    }
    is_kept[out.output] = true;
    returned_[out.output] = false;
    out.options.handle = kept.handle();
    out.options.owner = context_.owner;
    out.options.lease = DecodeDuration(kept.lease());
    kept_.push_back(std::move(out));
  }
  for (const std::string& name : request_->output_names()) {
    FUSELINE_ASSIGN_OR_RETURN(const size_t output, OutputIndex(output_names_, name, "output_names"));
    returned_[output] = true;
  }
  return absl::OkStatus();
}

absl::Status RunRequest::CheckType(const Input& input, DType dtype, const Shape& shape,
                                   const std::string& handle) const {
  if (Fits(input.want, dtype, shape)) return absl::OkStatus();
  TensorType dense = input.want;
  dense.strides.reset();
  return InvalidArgument(ErrorReason::kTensorMismatch, absl::StrCat("inputs.", input.name),
                         absl::StrCat("input '", input.name, "' is ", dense.ToString(), ", the tensor ",
                                      handle.empty() ? "given" : absl::StrCat("of handle '", handle, "'"), " is ",
                                      TensorType::Make(dtype, shape).ToString()));
}

absl::Status RunRequest::ResolveInput(Input& input) {
  const v1::InputTensor& proto = request_->inputs(static_cast<int>(input.position));
  switch (proto.source_case()) {
    case v1::InputTensor::kHandle: {
      absl::StatusOr<executor::StoredTensorPtr> stored = engine_.tensors().Get(proto.handle(), context_.owner);
      if (!stored.ok()) return Wrap(stored.status(), absl::StrCat("input '", input.name, "'"));
      input.stored = *std::move(stored);
      return CheckType(input, executor::StoredDType(*input.stored), executor::StoredShape(*input.stored),
                       proto.handle());
    }
    case v1::InputTensor::kTensor: {
      const v1::Tensor& tensor = proto.tensor();
      if (streamed_ && tensor.data().empty()) {
        FUSELINE_ASSIGN_OR_RETURN(TensorHeader header,
                                  DecodeTensorHeader(tensor.dtype(), tensor.shape(), input.name, engine_.limits()));
        FUSELINE_RETURN_IF_ERROR(CheckType(input, header.dtype, header.shape, ""));
        if (__builtin_add_overflow(streamed_bytes_, header.size_bytes, &streamed_bytes_)) {
          return InvalidArgument(ErrorReason::kLimitExceeded, "inputs", "the inputs have too many bytes together");
        }
        input.is_streamed = true;
        input.tensor = Tensor::Borrow(header.dtype, std::move(header.shape), nullptr, nullptr);
        return absl::OkStatus();
      }
      FUSELINE_ASSIGN_OR_RETURN(input.tensor, DecodeTensor(tensor, input.name, engine_.limits(), request_));
      return absl::OkStatus();
    }
    case v1::InputTensor::SOURCE_NOT_SET:
      break;
  }
  return InvalidArgument(ErrorReason::kTensorMismatch, input.name,
                         absl::StrCat("input '", input.name, "' has no tensor"));
}

absl::StatusOr<std::vector<StreamedTensor>> RunRequest::AllocateStreamed(launch::BlockPool& pool) {
  std::vector<Input*> in_order;
  for (Input& input : inputs_) {
    if (input.is_streamed) in_order.push_back(&input);
  }
  std::sort(in_order.begin(), in_order.end(), [](const Input* a, const Input* b) { return a->position < b->position; });
  std::vector<StreamedTensor> tensors;
  for (Input* input : in_order) {
    FUSELINE_ASSIGN_OR_RETURN(input->tensor, AllocatePooled(pool, input->tensor.dtype(), input->tensor.shape()));
    tensors.push_back({request_->inputs(static_cast<int>(input->position)).name(), input->tensor});
  }
  return tensors;
}

absl::Status RunRequest::Compile() {
  if (compiled_.artifact != nullptr) return absl::OkStatus();
  if (!compile_->graph.is_static()) {
    std::vector<Shape> shapes;
    for (const Input& input : inputs_)
      shapes.push_back(input.stored != nullptr ? executor::StoredShape(*input.stored) : input.tensor.shape());
    FUSELINE_ASSIGN_OR_RETURN(const SymbolSizes solved, SolveSymbols(compile_->graph, shapes));
    compile_->symbols.insert(solved.begin(), solved.end());
  }
  FUSELINE_ASSIGN_OR_RETURN(compiled_, engine_.Compile(*compile_, WaitFor(context_)));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::unique_ptr<executor::TensorStore::Reservation>>> RunRequest::ReserveKept() {
  std::vector<std::unique_ptr<executor::TensorStore::Reservation>> reservations;
  const std::vector<PlanTensor>& outputs = compiled_.artifact->plan.outputs;
  for (const Kept& kept : kept_) {
    if (kept.output >= outputs.size())
      return Internal(absl::StrCat("an artifact has ", outputs.size(), " outputs, not ", output_names_.size()));
    absl::StatusOr<std::unique_ptr<executor::TensorStore::Reservation>> reservation =
        engine_.tensors().Reserve(kept.options, outputs[kept.output].type().size_bytes());
    if (!reservation.ok()) return Wrap(reservation.status(), absl::StrCat("output '", output_names_[kept.output], "'"));
    reservations.push_back(*std::move(reservation));
  }
  return reservations;
}

absl::Status RunRequest::Run() {
  executor::ExecuteOptions options;
  options.deadline = context_.deadline;
  options.cancelled = [context = context_] { return context.CheckAlive(); };
  if (request_->has_device()) options.device = request_->device();
  std::vector<executor::Argument> arguments;
  arguments.reserve(inputs_.size());
  for (Input& input : inputs_) {
    if (input.stored != nullptr) {
      arguments.emplace_back(input.stored);
    } else {
      arguments.emplace_back(input.tensor);
    }
  }
  std::vector<std::unique_ptr<executor::TensorStore::Reservation>> reservations;
  if (!kept_.empty()) {
    FUSELINE_RETURN_IF_ERROR(Compile());
    FUSELINE_ASSIGN_OR_RETURN(reservations, ReserveKept());
    options.keep.assign(output_names_.size(), false);
    for (const Kept& kept : kept_) options.keep[kept.output] = true;
  }
  if (compiled_.artifact != nullptr) {
    FUSELINE_ASSIGN_OR_RETURN(execution_, engine_.ExecuteArtifact(compiled_.artifact, arguments, options));
  } else {
    FUSELINE_ASSIGN_OR_RETURN(ExecuteResult result, engine_.Execute(*compile_, arguments, options));
    compiled_ = std::move(result.compiled);
    execution_ = std::move(result.execution);
  }
  if (compile_.has_value()) NoteCompiled(compiled_, context_);
  if (context_.notes != nullptr) {
    context_.notes->run_micros = static_cast<int64_t>(execution_.run_micros);
    context_.notes->device_queue_micros = static_cast<int64_t>(execution_.queue_micros);
  }
  if (execution_.outputs.size() != output_names_.size() ||
      (!kept_.empty() && execution_.kept.size() != output_names_.size())) {
    return Internal(absl::StrCat("a run gave ", execution_.outputs.size(), " outputs, not ", output_names_.size()));
  }
  for (size_t i = 0; i < output_names_.size(); ++i) {
    if (!returned_[i]) continue;
    if (i < execution_.kept.size() && execution_.kept[i] != nullptr) {
      FUSELINE_ASSIGN_OR_RETURN(execution_.outputs[i], engine_.FetchTensor(execution_.kept[i]));
    }
    outputs_.push_back(execution_.outputs[i]);
  }
  FUSELINE_RETURN_IF_ERROR(context_.CheckAlive());  // a client that is gone would not know what it keeps
  return Keep(std::move(reservations));
}

absl::Status RunRequest::Keep(std::vector<std::unique_ptr<executor::TensorStore::Reservation>> reservations) {
  for (size_t i = 0; i < kept_.size(); ++i) {
    absl::StatusOr<executor::StoredTensorInfo> info =
        engine_.tensors().Put(std::move(reservations[i]), execution_.kept[kept_[i].output]);
    if (info.ok()) {
      kept_[i].info = *std::move(info);
      continue;
    }
    // All or nothing. What was deleted meanwhile needs no deleting.
    for (size_t k = 0; k < i; ++k) engine_.tensors().Delete(kept_[k].info.handle, context_.owner).IgnoreError();
    return info.status();
  }
  return absl::OkStatus();
}

v1::ExecuteResponse RunRequest::Response() const {
  v1::ExecuteResponse response;
  EncodeSummary(compiled_, response.mutable_summary());
  size_t next = 0;
  for (size_t i = 0; i < output_names_.size(); ++i) {
    if (!returned_[i]) continue;
    v1::NamedTensor* output = response.add_outputs();
    output->set_name(output_names_[i]);
    EncodeTensorHeader(outputs_[next++], output->mutable_tensor());
  }
  for (const Kept& kept : kept_) {
    v1::KeptTensor* proto = response.add_kept();
    EncodeKeptTensor(kept.info, proto);
    proto->set_name(output_names_[kept.output]);
  }
  EncodeDuration(absl::Microseconds(execution_.queue_micros), response.mutable_timings()->mutable_queue_time());
  EncodeDuration(absl::Microseconds(execution_.run_micros), response.mutable_timings()->mutable_run_time());
  response.set_device(execution_.device);
  return response;
}

void EncodeKeptTensor(const executor::StoredTensorInfo& info, v1::KeptTensor* proto) {
  proto->set_handle(info.handle);
  proto->set_dtype(static_cast<v1::DataType>(info.dtype));
  proto->mutable_shape()->Add(info.shape.begin(), info.shape.end());
  proto->set_size_bytes(info.size_bytes);
  EncodeDuration(info.lease, proto->mutable_lease());
}

}  // namespace fuseline::service
