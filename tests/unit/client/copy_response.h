// What a fake server answers to Compile: a plan for the CPU that copies its input, f32[2].
#pragma once

#include <string>

#include "common/artifact/codec/artifact_codec.h"
#include "fuseline/v1/compile_service.pb.h"

namespace fuseline::client {

inline v1::CompileResponse CopyResponse() {
  Artifact artifact;
  artifact.target = Target::Cpu();
  PlanTensor tensor;
  tensor.name = "in0";
  tensor.dtype = DType::kF32;
  tensor.shape = {2};
  tensor.strides = {1};
  artifact.plan.inputs.push_back(tensor);
  tensor.name = "out0";
  artifact.plan.outputs.push_back(tensor);
  PlanBuffer buffer;
  buffer.kind = PlanBuffer::Kind::kInput;
  buffer.size_bytes = 8;
  artifact.plan.buffers.push_back(buffer);
  buffer.kind = PlanBuffer::Kind::kOutput;
  artifact.plan.buffers.push_back(buffer);
  PlanStep step;
  step.kind = PlanStep::Kind::kCopy;
  step.buffers = {0, 1};
  artifact.plan.steps.push_back(step);
  v1::CompileResponse response;
  ArtifactToProto(artifact, response.mutable_artifact());
  response.mutable_artifact()->clear_report();
  response.mutable_summary()->set_fingerprint(std::string(32, 'f'));
  response.mutable_summary()->set_outcome(v1::CACHE_OUTCOME_MISS);
  response.mutable_summary()->set_target("cpu");
  return response;
}

}  // namespace fuseline::client
