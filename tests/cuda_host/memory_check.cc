#include "tests/cuda_host/memory_check.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/status/str_cat.h"

namespace fuseline::cuda_host {
namespace {

// Element::write_info and read_info: thread 10 bits, then two flags of reads, then the site, 20 bits.
constexpr uint32_t kThreadMask = (1u << 10) - 1;
constexpr uint32_t kManyThreads = 1u << 10;  // other threads of the block have read it in this epoch
constexpr uint32_t kOtherBlock = 1u << 11;   // an earlier block of the launch has read it
constexpr uint32_t kSiteShift = 12;
constexpr uint32_t kSiteMask = (1u << 20) - 1;

// How an access lies beside `region`, for people.
std::string Position(const MemoryAccess& access, const MemoryRegion& region) {
  const char* address = static_cast<const char*>(access.address);
  const int64_t offset = address - region.begin();
  const char* verb = access.write ? "writes " : "reads ";
  if (offset < 0)
    return StrCat(verb, access.bytes, " bytes, ", -offset, " bytes before ", region.name(), " (", region.bytes(),
                  " bytes)");
  if (offset >= region.bytes()) {
    return StrCat(verb, access.bytes, " bytes, ", offset - region.bytes(), " bytes past the end of ", region.name(),
                  " (", region.bytes(), " bytes)");
  }
  return StrCat(verb, access.bytes, " bytes at byte ", offset, " of ", region.name(), " (", region.bytes(), " bytes)");
}

bool IsMisaligned(const MemoryAccess& access) {
  return access.bytes <= 16 && (access.bytes & (access.bytes - 1)) == 0 &&
         (reinterpret_cast<uintptr_t>(access.address) & static_cast<uintptr_t>(access.bytes - 1)) != 0;
}

std::string Misaligned(const MemoryAccess& access) {
  return IsMisaligned(access) ? StrCat(": not aligned to ", access.bytes, " bytes") : "";
}

}  // namespace

MemoryRegion::MemoryRegion(std::string name, void* begin, int64_t bytes, int64_t element_bytes, bool writable,
                           bool initialized)
    : name_(std::move(name)),
      begin_(static_cast<char*>(begin)),
      bytes_(bytes),
      shift_(0),
      writable_(writable),
      initialized_(initialized) {
  while (shift_ < 4 && (int64_t{1} << shift_) < element_bytes) ++shift_;
  elements_.resize(static_cast<size_t>((bytes + (int64_t{1} << shift_) - 1) >> shift_));
}

void MemoryCheck::BeginLaunch(const std::vector<MemoryRegion*>& regions, Site code) {
  launch_epoch_ = block_epoch_ = ++epoch_;
  regions_ = regions;
  recent_.fill(nullptr);
  blocks_.clear();
  code_ = code;
}

void MemoryCheck::BeginBlock(int64_t block) {
  block_epoch_ = ++epoch_;
  blocks_.push_back({epoch_, block});
}

void MemoryCheck::AddShared(MemoryRegion* region) {
  region->is_shared_ = true;
  regions_.push_back(region);
}

MemoryRegion* MemoryCheck::Find(const MemoryAccess& access) {
  const auto inside = [&](const MemoryRegion& region) {
    const int64_t offset = static_cast<const char*>(access.address) - region.begin_;
    return offset >= 0 && access.bytes <= region.bytes_ && offset <= region.bytes_ - access.bytes;
  };
  // A statement mostly accesses one region.
  MemoryRegion*& recent = recent_[(reinterpret_cast<uintptr_t>(access.site) >> 2) % kRecent];
  if (recent != nullptr && inside(*recent)) return recent;
  for (MemoryRegion* region : regions_) {
    if (!inside(*region)) continue;
    recent = region;
    return region;
  }
  return nullptr;
}

MemoryFault MemoryCheck::Outside(const MemoryAccess& access) const {
  const MemoryRegion* nearest = nullptr;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const MemoryRegion* region : regions_) {
    const int64_t offset = static_cast<const char*>(access.address) - region->begin_;
    const int64_t distance = offset < 0 ? -offset : std::max<int64_t>(0, offset - region->bytes_);
    if (distance >= least) continue;
    least = distance;
    nearest = region;
  }
  if (nearest == nullptr) return {StrCat(access.write ? "writes" : "reads", " outside all buffers"), nullptr};
  const int64_t offset = static_cast<const char*>(access.address) - nearest->begin_;
  const bool across = offset >= 0 && offset < nearest->bytes_;
  return {StrCat(Position(access, *nearest), across ? ": across its end" : "", Misaligned(access)), nullptr};
}

MemoryFault MemoryCheck::Race(const MemoryAccess& access, const MemoryRegion& region, int64_t element, bool other_wrote,
                              uint32_t epoch, uint32_t info) const {
  MemoryFault fault;
  const auto after = std::upper_bound(blocks_.begin(), blocks_.end(), epoch,
                                      [](uint32_t e, const BlockStart& start) { return e < start.epoch; });
  std::string who = StrCat("thread ", info & kThreadMask);
  if (epoch < block_epoch_ && after != blocks_.begin()) {
    who = StrCat("block ", std::prev(after)->block, ", ", who);
  } else if ((info & kThreadMask) == access.thread) {
    who = "another thread";
  }
  fault.text =
      StrCat(Position(access, region), ": a race: ", who, other_wrote ? " writes" : " reads", " element ", element,
             epoch >= block_epoch_ ? " as well, with no barrier between" : " as well, in the same launch");
  const uint32_t site = info >> kSiteShift;
  if (site != kSiteMask) fault.earlier = static_cast<const char*>(code_) + site;
  return fault;
}

std::optional<MemoryFault> MemoryCheck::CheckElement(const MemoryAccess& access, MemoryRegion& region,
                                                     int64_t element) {
  MemoryRegion::Element& e = region.elements_[static_cast<size_t>(element)];
  const bool written_in_launch = e.write_epoch >= (region.is_shared_ ? block_epoch_ : launch_epoch_);
  if (written_in_launch) {
    const bool same_thread = (e.write_info & kThreadMask) == access.thread;
    if (e.write_epoch < block_epoch_ || (e.write_epoch == epoch_ && !same_thread)) {
      return Race(access, region, element, true, e.write_epoch, e.write_info);
    }
  }
  if (!access.write) {
    if (!written_in_launch && (region.is_shared_ || (!region.initialized_ && e.write_epoch == 0))) {
      return MemoryFault{StrCat(Position(access, region), ": nothing has been written there"), nullptr};
    }
    uint32_t info = here_;
    if (e.read_epoch >= launch_epoch_) {
      const bool earlier_block = e.read_epoch < block_epoch_;
      if (earlier_block || (e.read_info & kOtherBlock) != 0) info |= kOtherBlock;
      if (e.read_epoch == epoch_ && ((e.read_info & kManyThreads) != 0 || (e.read_info & kThreadMask) != access.thread))
        info |= kManyThreads;
    }
    e.read_epoch = epoch_;
    e.read_info = info;
    return std::nullopt;
  }
  if (e.read_epoch >= launch_epoch_ && !(region.is_shared_ && e.read_epoch < block_epoch_)) {
    const bool other_block = e.read_epoch < block_epoch_ || ((e.read_info & kOtherBlock) != 0 && !region.is_shared_);
    const bool other_thread =
        e.read_epoch == epoch_ && ((e.read_info & kManyThreads) != 0 || (e.read_info & kThreadMask) != access.thread);
    if (other_block || other_thread) return Race(access, region, element, false, e.read_epoch, e.read_info);
  }
  e.write_epoch = epoch_;
  e.write_info = here_;
  return std::nullopt;
}

std::optional<MemoryFault> MemoryCheck::Check(const MemoryAccess& access) {
  MemoryRegion* region = Find(access);
  if (region == nullptr) return Outside(access);
  if (IsMisaligned(access)) return MemoryFault{StrCat(Position(access, *region), Misaligned(access)), nullptr};
  if (access.write && !region->writable_)
    return MemoryFault{StrCat(Position(access, *region), ", which is not to be written"), nullptr};
  if (region->races_allowed_) return std::nullopt;
  const int64_t site = static_cast<const char*>(access.site) - static_cast<const char*>(code_);
  here_ = access.thread | (site >= 0 && site < kSiteMask ? static_cast<uint32_t>(site) : kSiteMask) << kSiteShift;
  const int64_t offset = static_cast<const char*>(access.address) - region->begin_;
  const int64_t last = (offset + access.bytes - 1) >> region->shift_;
  for (int64_t element = offset >> region->shift_; element <= last; ++element) {
    if (std::optional<MemoryFault> fault = CheckElement(access, *region, element); fault.has_value()) return fault;
  }
  return std::nullopt;
}

int64_t MemoryCheck::FirstUnwritten(const MemoryRegion& region) const {
  const auto at = std::find_if(region.elements_.begin(), region.elements_.end(),
                               [](const MemoryRegion::Element& e) { return e.write_epoch == 0; });
  return at == region.elements_.end() ? -1 : (at - region.elements_.begin()) << region.shift_;
}

}  // namespace fuseline::cuda_host
