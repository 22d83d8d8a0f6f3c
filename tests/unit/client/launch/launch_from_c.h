// The C ABI, called from C.
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// Loads the artifact on a CPU device and runs it once on `x`, into `y`, of `count` floats each. Null, or the call that
// failed.
const char* LaunchFromC(const void* artifact, size_t artifact_bytes, const float* x, float* y, int count);

#ifdef __cplusplus
}  // extern "C"
#endif
