#include "tests/fuzz/plan_simulator.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "common/artifact/index_checks.h"
#include "common/status/error.h"
#include "common/status/str_cat.h"

namespace fuseline::fuzz {
namespace {

// A byte range of one region of memory, cut where any buffer of the region starts or ends, so that each piece lies
// wholly inside or outside of every buffer. `writers` says which buffer a piece was last written through.
class Region {
 public:
  static constexpr int32_t kNobody = -1;

  explicit Region(int64_t size_bytes) : size_bytes_(size_bytes) {}

  int64_t size_bytes() const { return size_bytes_; }
  void Cut(int64_t begin, int64_t end) {
    cuts_.push_back(begin);
    cuts_.push_back(end);
  }
  void FinishCuts() {
    std::sort(cuts_.begin(), cuts_.end());
    cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
    writers_.assign(cuts_.size(), kNobody);
  }
  void Write(int64_t begin, int64_t end, int32_t writer) {
    for (size_t piece = Piece(begin); piece < Piece(end); ++piece) writers_[piece] = writer;
  }
  // Whether all pieces satisfy it.
  template <typename Predicate>
  bool All(int64_t begin, int64_t end, const Predicate& passes) const {
    for (size_t piece = Piece(begin); piece < Piece(end); ++piece) {
      if (!passes(writers_[piece])) return false;
    }
    return true;
  }

 private:
  size_t Piece(int64_t at) const {
    return static_cast<size_t>(std::lower_bound(cuts_.begin(), cuts_.end(), at) - cuts_.begin());
  }

  int64_t size_bytes_;
  std::vector<int64_t> cuts_;
  std::vector<int32_t> writers_;  // of the piece that starts at the cut
};

// What the caller of a plan brings: the bytes from the first to the last element. Overflow is a finding of the
// sanitizer.
int64_t PromisedBytes(const PlanTensor& tensor) {
  int64_t last = 0;
  bool empty = false;
  for (size_t d = 0; d < tensor.shape.size(); ++d) {
    empty = empty || tensor.shape[d] == 0;
    last += (tensor.shape[d] - 1) * tensor.strides[d];
    // As a walk over the elements does at the end of a row.
    last += tensor.strides[d];
    last -= tensor.strides[d];
  }
  return empty ? 0 : (last + 1) * DTypeSizeBytes(tensor.dtype);
}

class Simulator {
 public:
  explicit Simulator(const Artifact& artifact) : plan_(artifact.plan), artifact_(artifact) {}

  absl::Status Run() {
    for (const PlanTensor& tensor : plan_.inputs) regions_.emplace_back(PromisedBytes(tensor));
    first_output_ = regions_.size();
    for (const PlanTensor& tensor : plan_.outputs) regions_.emplace_back(PromisedBytes(tensor));
    first_constant_ = regions_.size();
    for (const std::string& constant : plan_.constants) regions_.emplace_back(static_cast<int64_t>(constant.size()));
    arena_ = regions_.size();
    regions_.emplace_back(plan_.arena_bytes);
    checks_ = regions_.size();
    regions_.emplace_back(ChecksBytes(plan_));
    if (absl::Status status = PlaceBuffers(); !status.ok()) return status;
    used_.assign(plan_.buffers.size(), false);
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      if (absl::Status status = RunStep(plan_.steps[i]); !status.ok()) return Wrap(status, StrCat("step ", i));
    }
    for (size_t o = 0; o < plan_.outputs.size(); ++o) {
      // Every byte that the client will be sent.
      Region& region = regions_[first_output_ + o];
      if (!region.All(0, region.size_bytes(), [](int32_t writer) { return writer != Region::kNobody; }))
        return Internal(StrCat("output ", o, " is not written as a whole"));
    }
    return absl::OkStatus();
  }

 private:
  struct Place {
    size_t region = 0;
    int64_t begin = 0;
    int64_t end = 0;
  };

  absl::Status PlaceBuffers() {
    for (size_t b = 0; b < plan_.buffers.size(); ++b) {
      const PlanBuffer& buffer = plan_.buffers[b];
      Place place;
      const bool is_temporary = buffer.kind == PlanBuffer::Kind::kTemporary;
      const size_t first = buffer.kind == PlanBuffer::Kind::kInput    ? 0
                           : buffer.kind == PlanBuffer::Kind::kOutput ? first_output_
                                                                      : first_constant_;
      const bool is_checks = buffer.kind == PlanBuffer::Kind::kChecks;
      place.region = is_temporary ? arena_ : (is_checks ? checks_ : first + static_cast<size_t>(buffer.index));
      if (place.region >= regions_.size()) return Internal(StrCat("buffer ", b, " stands for nothing"));
      place.begin = is_temporary ? buffer.arena_offset_bytes : 0;
      place.end = place.begin + buffer.size_bytes;
      if (place.begin < 0 || place.end < place.begin || place.end > regions_[place.region].size_bytes())
        return Internal(StrCat("buffer ", b, " reaches out of its memory"));
      if (is_temporary && place.begin % 256 != 0) return Internal(StrCat("buffer ", b, " is not aligned"));
      places_.push_back(place);
    }
    for (Region& region : regions_) region.Cut(0, region.size_bytes());
    for (const Place& place : places_) regions_[place.region].Cut(place.begin, place.end);
    for (Region& region : regions_) region.FinishCuts();
    for (size_t r = 0; r < regions_.size(); ++r) {
      if (r < first_output_ || (r >= first_constant_ && r != arena_))
        regions_[r].Write(0, regions_[r].size_bytes(), kCaller);
    }
    return absl::OkStatus();
  }

  const Place& place(int32_t b) const { return places_[static_cast<size_t>(b)]; }
  bool is_temporary(int32_t b) const { return place(b).region == arena_; }

  // A temporary that is in use holds what was written through it.
  absl::Status CheckKept(int32_t b) {
    const Place& at = place(b);
    if (!is_temporary(b) || !used_[static_cast<size_t>(b)]) return absl::OkStatus();
    if (!regions_[at.region].All(at.begin, at.end, [b](int32_t writer) { return writer == b; }))
      return Internal(StrCat("buffer ", b, " was overwritten while in use"));
    return absl::OkStatus();
  }
  void Write(int32_t b) {
    const Place& at = place(b);
    used_[static_cast<size_t>(b)] = true;
    if (at.region >= first_output_ && (at.region < first_constant_ || at.region == arena_))
      regions_[at.region].Write(at.begin, at.end, b);
  }

  absl::Status RunStep(const PlanStep& step) {
    for (const int32_t b : step.buffers) {
      if (b < 0 || static_cast<size_t>(b) >= places_.size()) return Internal(StrCat("there is no buffer ", b));
    }
    return step.kind == PlanStep::Kind::kLaunch ? Launch(step) : Copy(step);
  }

  absl::Status Launch(const PlanStep& step) {
    if (step.kernel < 0 || static_cast<size_t>(step.kernel) >= artifact_.kernels.size())
      return Internal(StrCat("there is no kernel ", step.kernel));
    for (const int32_t b : step.buffers) {
      if (absl::Status status = CheckKept(b); !status.ok()) return status;
    }
    // It may read and write all of its buffers at the same time.
    for (const int32_t b : step.buffers) Write(b);
    for (const int32_t b : step.buffers) {
      if (absl::Status status = CheckKept(b); !status.ok()) return status;
    }
    return artifact_.target.is_cuda() ? CheckDims(step.dims) : CheckWork(step);
  }

  absl::Status Copy(const PlanStep& step) {
    if (step.buffers.size() != 2) return Internal("a copy needs two buffers");
    const int32_t from = step.buffers[0];
    const int32_t to = step.buffers[1];
    const Place& source = place(from);
    const Place& target = place(to);
    if (source.end - source.begin != target.end - target.begin) return Internal("copies between different sizes");
    if (absl::Status status = CheckKept(from); !status.ok()) return status;
    const auto written = [](int32_t writer) { return writer != Region::kNobody; };
    if (is_temporary(from) && !used_[static_cast<size_t>(from)] && source.end > source.begin)
      return Internal(StrCat("copies buffer ", from, ", which was never written"));
    if (!regions_[source.region].All(source.begin, source.end, written))
      return Internal(StrCat("copies buffer ", from, ", which was not written as a whole"));
    if (target.region < first_output_ || (target.region >= first_constant_ && target.region < arena_))
      return Internal("copies to what is only read");
    if (source.region == target.region && from != to && source.begin < target.end && target.begin < source.end &&
        source.begin != target.begin) {
      return Internal("copies between places that overlap");
    }
    if (absl::Status status = CheckKept(to); !status.ok()) return status;
    Write(to);
    return CheckKept(from);
  }

  static absl::Status CheckDims(const LaunchDims& dims) {
    int64_t threads = 1;
    for (int i = 0; i < 3; ++i) {
      if (dims.grid[i] < 1 || dims.block[i] < 1) return Internal("an empty launch");
      if (dims.grid[i] > (i == 0 ? 2147483647 : 65535)) return Internal("a grid that no device takes");
      threads *= std::min<int64_t>(dims.block[i], 4096);
    }
    if (threads > 1024 || dims.block[2] > 64) return Internal("a block that no device takes");
    // The driver takes it as an unsigned int.
    if (dims.dynamic_shared_bytes < 0 || dims.dynamic_shared_bytes > 1 << 20) return Internal("too much shared memory");
    return absl::OkStatus();
  }

  // Chunks as ParallelFor makes them tile [0, work_items).
  static absl::Status CheckWork(const PlanStep& step) {
    if (step.work_items < 0 || step.work_grain < 1) return Internal("work that can't be split");
    constexpr int64_t kThreads = 64;
    const int64_t chunks = std::min(kThreads, std::max<int64_t>(1, step.work_items / step.work_grain));
    const int64_t size = step.work_items / chunks;
    const int64_t rest = step.work_items % chunks;
    int64_t end = 0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      if (size * chunk + std::min(chunk, rest) != end) return Internal("work is split with gaps");
      end = size * (chunk + 1) + std::min(chunk + 1, rest);
    }
    return end == step.work_items ? absl::OkStatus() : Internal("work is left over");
  }

  static constexpr int32_t kCaller = -2;

  const LaunchPlan& plan_;
  const Artifact& artifact_;
  std::vector<Region> regions_;  // inputs, outputs, constants, the arena, the index checks
  size_t first_output_ = 0;
  size_t first_constant_ = 0;
  size_t arena_ = 0;
  size_t checks_ = 0;
  std::vector<Place> places_;  // by buffer
  std::vector<bool> used_;     // by buffer: named by a step already
};

}  // namespace

absl::Status SimulatePlan(const Artifact& artifact) { return Simulator(artifact).Run(); }

}  // namespace fuseline::fuzz
