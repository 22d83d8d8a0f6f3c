// What the server and a compiler worker say to each other, and how it is written.
// Pipeline: WorkerSetup, WorkerRequest -> FrameChannel -> worker -> FrameChannel -> WorkerReply.
// The order: setup, ready, then any number of (request, begun, reply). `begun` tells a worker that a request ended from
// one that was dead before. Both ends are the same program, so there are no versions.
// Errors: the decoders return false for anything but what the encoders write. Thread-safety: pure functions.
// Tested by tests/unit/compiler/worker_messages_test.cc
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/artifact/kernel_image.h"
#include "server/codegen/kernel_source.h"
#include "server/compiler/worker_compiler.h"

namespace fuseline::compiler {

struct WorkerSetup {
  CompilerSpec compiler;
  int64_t memory_limit_bytes = 0;  // 0: none
  std::string scratch_folder;      // the worker's own; removed by the server, or by the worker if the server is gone
  std::string identity;            // what the compiler must be; empty: anything
};

struct WorkerRequest {
  // On the wire.
  enum class Kind : uint8_t { kDescribe = 1, kCompile = 2, kPtx = 3 } kind = Kind::kDescribe;
  KernelSource source;  // not for kDescribe
};

struct WorkerReply {
  absl::Status status;            // the compiler's, with its reason and subject
  bool out_of_memory = false;     // `status` comes from the memory limit
  bool identity_changed = false;  // `status` says that the compiler is not the one of the setup
  std::string text;               // kDescribe: the identity; kPtx: the text
  KernelImage image;              // kCompile; entry and source are left out where they are the request's
  int64_t resident_bytes = 0;     // of the worker, now
};

std::string EncodeSetup(const WorkerSetup& setup);
bool DecodeSetup(std::string_view bytes, WorkerSetup& setup);
std::string EncodeRequest(const WorkerRequest& request);
bool DecodeRequest(std::string_view bytes, WorkerRequest& request);
std::string EncodeReply(const WorkerReply& reply, const KernelSource& source);
bool DecodeReply(std::string_view bytes, const KernelSource& source, WorkerReply& reply);

}  // namespace fuseline::compiler
