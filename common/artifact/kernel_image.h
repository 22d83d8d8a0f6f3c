// A compiled kernel: bytes, entry, source and what the compiler said of it.
// Pipeline: KernelSource -> CompileKernel -> KernelImage -> Artifact.
#pragma once

#include <cstdint>
#include <string>

namespace fuseline {

// On the wire and in cache entries: never renumber.
enum class ImageFormat : uint8_t { kUnspecified = 0, kCubin = 1, kPtx = 2, kSharedObject = 3 };

struct KernelResources {
  int32_t registers = 0;            // a thread
  int64_t static_shared_bytes = 0;  // a block
  int64_t spill_store_bytes = 0;    // a thread; 0 is the goal
  int64_t spill_load_bytes = 0;
  int64_t stack_bytes = 0;
};

struct KernelImage {
  ImageFormat format = ImageFormat::kUnspecified;
  std::string entry;  // the extern "C" function
  std::string bytes;
  std::string source;  // the text it was compiled from, for people
  KernelResources resources;
};

}  // namespace fuseline
