// Launches compiled graphs in the caller's own process: a C ABI over the launch-plan runner that the server uses.
// Pipeline: the bytes of a fuseline.v1.Artifact (what Compile answers) -> fuseline_load -> fuseline_launch.
//
// libfuseline_launch.so needs libc alone (glibc 2.35), exports these functions alone, and may be loaded beside PyTorch,
// or beside any other Abseil, protobuf or C++ library. libcuda.so.1 is opened when a CUDA device is.
//
// Results: every function that can fail returns FUSELINE_OK or another code below; fuseline_last_error then has the
// text, fuseline_last_error_reason the finer reason of docs/errors.md. Out-parameters are written on success only.
//
// Ownership: devices and callables are handles, given back with fuseline_device_close and fuseline_callable_release;
// both take null. A callable keeps its device alive, so the two may be given back in any order. Text and arrays that
// are answered about a handle live as long as the handle. Artifact bytes are not kept.
//
// Threads: handles may be used from any thread. Launches of one callable exclude each other for the few microseconds
// that enqueueing takes, launches of different callables do not (on one CPU device they do: all of its threads work on
// one call). No function may be called with a handle that another thread gives back at the same time.
//
// CUDA: devices use the primary context of the process, the one that CUDA's runtime and PyTorch use, whatever is
// current on the calling thread, and leave the current context as it was. `stream` is a CUstream (cudaStream_t); null
// is the legacy default stream, as in CUDA's own functions. Launches are asynchronous and ordered by their stream
// alone: pointers must stay valid, and their content unchanged, until the stream has come past the launch. A stream
// that was launched on must outlive the callable or be forgotten with fuseline_callable_forget_stream before it is
// destroyed.
//
// Graph capture: fuseline_launch may be called while `stream` is captured; nothing in it synchronises. What a graph has
// captured is only valid while the callable lives, with the arena that was used then: one graph must not be replayed
// while the same callable runs elsewhere with the same arena. fuseline_callable_check may not be called for a stream
// that is being captured.
//
// CPU: `stream` is not looked at, and a launch has been done when it returns. After fork() a device may not be used in
// the child.
//
// Units: bytes where a name ends in _bytes, elements for shapes and strides. The ABI only grows: structs begin with
// their size, and functions are added, never changed.

#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(FUSELINE_LAUNCH_BUILDING)
#define FUSELINE_LAUNCH_API __attribute__((visibility("default")))
#else
#define FUSELINE_LAUNCH_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// Grows when functions are added.
#define FUSELINE_LAUNCH_ABI_VERSION 1

// The numbers of google.rpc.Code, so that local and remote errors have one meaning.
typedef int32_t fuseline_code;
enum {
  FUSELINE_OK = 0,
  FUSELINE_INVALID_ARGUMENT = 3,     // a bad argument or artifact, or a tensor with an index out of range
  FUSELINE_RESOURCE_EXHAUSTED = 8,   // no device memory
  FUSELINE_FAILED_PRECONDITION = 9,  // no such device or driver, or the artifact is for another one
  FUSELINE_UNIMPLEMENTED = 12,
  FUSELINE_INTERNAL = 13,
  FUSELINE_UNAVAILABLE = 14,  // the CUDA context is lost: the process must be started again
  FUSELINE_DATA_LOSS = 15     // the artifact's bytes are not those that were asked for
};

// Element types, by the numbers of fuseline.v1.DataType.
typedef int32_t fuseline_dtype;
enum {
  FUSELINE_F64 = 1,
  FUSELINE_F32 = 2,
  FUSELINE_F16 = 3,
  FUSELINE_BF16 = 4,
  FUSELINE_F8E4M3 = 5,
  FUSELINE_F8E5M2 = 6,
  FUSELINE_I64 = 7,
  FUSELINE_I32 = 8,
  FUSELINE_I16 = 9,
  FUSELINE_I8 = 10,
  FUSELINE_U8 = 11,
  FUSELINE_BOOL = 12
};

typedef struct fuseline_device fuseline_device;      // a GPU or the CPU
typedef struct fuseline_callable fuseline_callable;  // an artifact loaded on a device, ready to be launched

// FUSELINE_LAUNCH_ABI_VERSION of the library; a caller that was built for a higher one must not go on.
FUSELINE_LAUNCH_API int32_t fuseline_abi_version(void);
// "0.1.0".
FUSELINE_LAUNCH_API const char* fuseline_version(void);
// Of this thread's last call that failed: the text, "" where none has; the reason, "DEVICE_MEMORY". Both valid until
// this thread's next call that fails.
FUSELINE_LAUNCH_API const char* fuseline_last_error(void);
FUSELINE_LAUNCH_API const char* fuseline_last_error_reason(void);

// --- Devices ---

// How many CUDA devices the driver shows; 0 without a driver, and fuseline_last_error then says why.
FUSELINE_LAUNCH_API int32_t fuseline_cuda_device_count(void);
// FAILED_PRECONDITION: no driver, or no such device.
FUSELINE_LAUNCH_API fuseline_code fuseline_open_cuda(int32_t ordinal, fuseline_device** device);
// A CPU device that runs kernels on up to `threads` threads, the caller's among them; 0: one for each core.
FUSELINE_LAUNCH_API fuseline_code fuseline_open_cpu(int32_t threads, fuseline_device** device);
FUSELINE_LAUNCH_API void fuseline_device_close(fuseline_device* device);

// "NVIDIA H200", or the CPU's model.
FUSELINE_LAUNCH_API const char* fuseline_device_name(const fuseline_device* device);
// What to compile for: "cuda:sm_90", "cpu".
FUSELINE_LAUNCH_API const char* fuseline_device_target(const fuseline_device* device);
FUSELINE_LAUNCH_API int64_t fuseline_device_memory_bytes(const fuseline_device* device);
// The driver's version, 13000 for CUDA 13.0; 0 on a CPU.
FUSELINE_LAUNCH_API int32_t fuseline_device_driver_version(const fuseline_device* device);

// --- Loading ---

// What an artifact must be; all of it may be left out (null).
typedef struct fuseline_load_options {
  size_t struct_size;          // sizeof(fuseline_load_options)
  const uint8_t* fingerprint;  // 32 bytes: the key that was asked for
  const uint8_t* sha256;       // 32 bytes: the digest of the artifact's bytes
} fuseline_load_options;

// Loads a serialised fuseline.v1.Artifact. All of it is checked here, so that a launch has nothing left to check but
// its pointers. `options` may be null. Blocking: until constants are on the device. INVALID_ARGUMENT     the bytes are
// no artifact that can be run. DATA_LOSS            it is another artifact than `options` names. FAILED_PRECONDITION it
// is for another target, or needs a newer driver. RESOURCE_EXHAUSTED   no device memory for its constants.
FUSELINE_LAUNCH_API fuseline_code fuseline_load(fuseline_device* device, const void* artifact, size_t artifact_bytes,
                                                const fuseline_load_options* options, fuseline_callable** callable);
// Waits for the streams that it was launched on; while one is being captured it is kept instead and goes with the
// device.
FUSELINE_LAUNCH_API void fuseline_callable_release(fuseline_callable* callable);

// --- The signature ---

// An input or output, as the callable wants it in memory.
typedef struct fuseline_tensor_info {
  size_t struct_size;  // in: sizeof(fuseline_tensor_info)
  const char* name;    // "in0", "out0", …
  fuseline_dtype dtype;
  int32_t rank;
  const int64_t* shape;     // `rank` sizes
  const int64_t* strides;   // `rank` strides, in elements; outputs are dense and row-major
  int64_t size_bytes;       // of the memory behind the pointer, up to and with the last element
  int64_t alignment_bytes;  // that the pointer must have
} fuseline_tensor_info;

FUSELINE_LAUNCH_API int32_t fuseline_callable_input_count(const fuseline_callable* callable);
FUSELINE_LAUNCH_API int32_t fuseline_callable_output_count(const fuseline_callable* callable);
// INVALID_ARGUMENT: no such input or output.
FUSELINE_LAUNCH_API fuseline_code fuseline_callable_input(const fuseline_callable* callable, int32_t index,
                                                          fuseline_tensor_info* info);
FUSELINE_LAUNCH_API fuseline_code fuseline_callable_output(const fuseline_callable* callable, int32_t index,
                                                           fuseline_tensor_info* info);
// "f32". "" for no dtype.
FUSELINE_LAUNCH_API const char* fuseline_dtype_name(fuseline_dtype dtype);
// What temporaries take; 0: none.
FUSELINE_LAUNCH_API int64_t fuseline_callable_arena_bytes(const fuseline_callable* callable);
// Launches and copies of one call.
FUSELINE_LAUNCH_API int32_t fuseline_callable_step_count(const fuseline_callable* callable);
// Indices that kernels check while they run; 0: fuseline_callable_check has nothing to say.
FUSELINE_LAUNCH_API int32_t fuseline_callable_check_count(const fuseline_callable* callable);
// The 32 bytes of the artifact's key.
FUSELINE_LAUNCH_API const uint8_t* fuseline_callable_fingerprint(const fuseline_callable* callable);

// --- Launching ---

// Enqueues one call of the graph on `stream`. `inputs` and `outputs`: device pointers in the signature's order, as many
// as it has; the arrays are read before this returns. Of a tensor without elements the pointer may be null. Outputs may
// not overlap inputs or each other.
// `arena`: memory for temporaries, fuseline_callable_arena_bytes large and 256-byte aligned, in the stream's order like
// the other pointers; null: the callable's own for this stream, allocated by the first launch on it.
//   INVALID_ARGUMENT     a pointer is null or not aligned, nothing was enqueued; or (reason INDEX_OUT_OF_RANGE) an
// index was out of range: on a CPU in this call, on CUDA in an earlier one, which is reported once. The outputs of that
// call hold nothing of use. On CUDA this call was not enqueued. RESOURCE_EXHAUSTED   no memory for the arena.
//   UNAVAILABLE          the CUDA context is lost.
// Cost: on CUDA that of the driver's launches, and well under a microsecond besides.
FUSELINE_LAUNCH_API fuseline_code fuseline_launch(fuseline_callable* callable, void* const* inputs,
                                                  void* const* outputs, void* arena, void* stream);
// Makes ready what the first launch on `stream` would: with `own_arena` not 0 also the callable's own arena for it.
FUSELINE_LAUNCH_API fuseline_code fuseline_callable_prepare_stream(fuseline_callable* callable, void* stream,
                                                                   int32_t own_arena);
// Waits for `stream`, and reports an index out of range of any call that is done, once; then the callable is as before.
//   INVALID_ARGUMENT (INDEX_OUT_OF_RANGE): "node '%v3': index 12 is out of range for size 10".
FUSELINE_LAUNCH_API fuseline_code fuseline_callable_check(fuseline_callable* callable, void* stream);
// Waits for `stream` and gives back what the callable keeps for it. For streams that are destroyed before it is.
FUSELINE_LAUNCH_API fuseline_code fuseline_callable_forget_stream(fuseline_callable* callable, void* stream);

#ifdef __cplusplus
}  // extern "C"
#endif
