// About how much memory an artifact takes: what the memory level's limit counts.
// Units: bytes. Thread-safety: a pure function.
#pragma once

#include <cstdint>

#include "common/artifact/artifact.h"

namespace fuseline::cache {

int64_t ArtifactMemoryBytes(const Artifact& artifact);

}  // namespace fuseline::cache
