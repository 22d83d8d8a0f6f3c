// Marks errors that would come again were the same asked again: a graph that this version can't compile, a kernel that
// the compiler rejects. Not those of the moment: time, memory, crashes, queues, disks. Carried as a payload of the
// status. Thread-safety: pure functions. Tested by tests/unit/common/error_test.cc
#pragma once

#include "absl/status/status.h"

namespace fuseline {

// The same status, marked; OK stays OK.
absl::Status MarkLasting(absl::Status status);
// Marked, or UNIMPLEMENTED, which is always so.
bool IsLasting(const absl::Status& status);

}  // namespace fuseline
