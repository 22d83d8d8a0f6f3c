#include "tests/cuda_host/block_scheduler.h"

#include <sys/mman.h>

#include <algorithm>
#include <boost/context/detail/fcontext.hpp>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/case_file/random_values.h"
#include "common/status/error.h"
#include "common/status/str_cat.h"

namespace fuseline::cuda_host {
namespace {

namespace context = boost::context::detail;

constexpr uint32_t kLanes = 32;
constexpr int64_t kMostThreads = 1024;  // of a block; CUDA's limit
constexpr int64_t kMostBlocks = 2147483647;
constexpr size_t kMostGroups = 4;  // of waiting threads that an error lists
constexpr int kPoison = 0xa5;
constexpr size_t kGuardBytes = 4096;

// What is wrong with a shuffle that `lane` calls, by itself; empty: nothing.
std::string WrongShuffle(uint32_t lane, uint32_t mask, int operand, int width) {
  if ((mask >> lane & 1) == 0) return absl::StrFormat("lane %u is not in the mask 0x%08x of its shuffle", lane, mask);
  if (width < 1 || width > static_cast<int>(kLanes) || (width & (width - 1)) != 0)
    return StrCat("a shuffle of width ", width);
  if (operand < 0 || operand >= static_cast<int>(kLanes))
    return StrCat("a shuffle's operand is ", operand, ", out of [0, 32)");
  return "";
}

}  // namespace

struct BlockScheduler::Thread {
  enum class State : uint8_t { kReady, kAtBarrier, kAtShuffle, kExited } state = State::kReady;
  Fiber* fiber = nullptr;
  Site site = nullptr;  // of the barrier or shuffle
  HostShuffle shuffle = kShuffleXor;
  uint32_t mask = 0;
  int32_t operand = 0;
  int32_t width = 0;
  uint64_t value = 0;   // given to the shuffle
  uint64_t result = 0;  // got from it
};

struct BlockScheduler::Fiber {
  Fiber() = default;
  ~Fiber() {
    if (mapping != nullptr) munmap(mapping, 2 * kFiberStackBytes);
  }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void* mapping = nullptr;  // twice the stack's size, so that an aligned stack lies in it
  HostThread* record = nullptr;
  void* context = nullptr;
  bool is_fresh = true;  // has not run yet, or was left in the middle of a kernel
};

// What kernels call, on a fiber. The return address is the place in the kernel.
struct BlockScheduler::Callbacks {
  static BlockScheduler& Self(HostThread* record) { return *static_cast<BlockScheduler*>(record->scheduler); }

  // Leaves the fiber for good.
  static void Stop(BlockScheduler& self) {
    while (true) self.Suspend();
  }

  static void Access(HostThread* record, const void* address, unsigned long bytes, int write, void* site) {
    BlockScheduler& self = Self(record);
    const std::optional<MemoryFault> fault =
        self.check_->Check({record->thread, address, static_cast<int64_t>(bytes), write != 0, site});
    if (!fault.has_value()) return;
    self.Fault(record->thread, fault->text, site, fault->earlier);
    Stop(self);
  }

  static void IndexOutOfBounds(HostThread* record, const void* check, unsigned long index, void* site) {
    // The layout that g++ gives the check's description: file, line, column, and the types of array and index, whose
    // names follow two 16-bit fields.
    struct Description {
      const char* file;
      uint32_t line, column;
      const char* array_type;
      const char* index_type;
    };
    BlockScheduler& self = Self(record);
    self.Fault(record->thread,
               StrCat("index ", static_cast<int64_t>(index), " is out of range for ",
                      static_cast<const Description*>(check)->array_type + 4),
               site);
    Stop(self);
  }

  static void Barrier(HostThread* record) {
    BlockScheduler& self = Self(record);
    Thread& thread = self.threads_[record->thread];
    thread.state = Thread::State::kAtBarrier;
    thread.site = __builtin_return_address(0);
    self.Suspend();
  }

  static unsigned long long Shuffle(HostThread* record, int kind, unsigned mask, int operand, int width,
                                    unsigned long long value) {
    BlockScheduler& self = Self(record);
    Thread& thread = self.threads_[record->thread];
    thread.state = Thread::State::kAtShuffle;
    thread.site = __builtin_return_address(0);
    thread.shuffle = static_cast<HostShuffle>(kind);
    thread.mask = mask;
    thread.operand = operand;
    thread.width = width;
    thread.value = value;
    if (const std::string wrong = WrongShuffle(record->thread % kLanes, mask, operand, width); !wrong.empty()) {
      self.Fault(record->thread, wrong, thread.site);
      Stop(self);
    }
    self.Suspend();
    return thread.result;
  }

  static void* Shared(HostThread* record, const void* key, const char* name, unsigned long bytes,
                      unsigned long element_bytes) {
    BlockScheduler& self = Self(record);
    auto found = self.shared_.find(key);
    if (found == self.shared_.end()) {
      const absl::StatusOr<void*> memory = self.shared_memory_.Take(bytes);
      if (!memory.ok()) {
        self.Fault(record->thread, std::string(memory.status().message()), __builtin_return_address(0));
        Stop(self);
      }
      std::memset(*memory, kPoison, bytes);
      found =
          self.shared_
              .emplace(std::piecewise_construct, std::forward_as_tuple(key),
                       std::forward_as_tuple(StrCat("shared array '", name, "'"), *memory, static_cast<int64_t>(bytes),
                                             static_cast<int64_t>(element_bytes), true, false))
              .first;
      self.check_->AddShared(&found->second);
    }
    return found->second.begin();
  }

  static constexpr HostCalls kCalls = {Access, IndexOutOfBounds, Barrier, Shuffle, Shared};
};

std::string ThreadOrder::ToString() const {
  switch (kind) {
    case Kind::kForward:
      return "forward";
    case Kind::kReverse:
      return "reverse";
    case Kind::kRandom:
      return StrCat("random ", seed);
  }
  return "unknown";
}

BlockScheduler::BlockScheduler() = default;
BlockScheduler::~BlockScheduler() = default;

std::vector<uint32_t> BlockScheduler::Order(size_t count) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  if (order_.kind == ThreadOrder::Kind::kReverse) std::reverse(order.begin(), order.end());
  if (order_.kind == ThreadOrder::Kind::kRandom) {
    for (size_t i = count; i > 1; --i) std::swap(order[i - 1], order[RandomWord(order_.seed, draws_++) % i]);
  }
  return order;
}

void BlockScheduler::RunFiber(Fiber* fiber) {
  BlockScheduler& self = *static_cast<BlockScheduler*>(fiber->record->scheduler);
  while (true) {
    self.kernel_->entry(self.arguments_->data());
    Thread& thread = self.threads_[fiber->record->thread];
    thread.state = Thread::State::kExited;
    self.Suspend();
  }
}

BlockScheduler::Fiber* BlockScheduler::TakeFiber() {
  if (!idle_fibers_.empty()) {
    Fiber* fiber = idle_fibers_.back();
    idle_fibers_.pop_back();
    return fiber;
  }
  void* mapping =
      mmap(nullptr, 2 * kFiberStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  auto fiber = std::make_unique<Fiber>();
  fiber->mapping = mapping;
  const uintptr_t stack = (reinterpret_cast<uintptr_t>(mapping) + kFiberStackBytes - 1) & ~(kFiberStackBytes - 1);
  // A stack that overflows ends the program here, rather than go on in what lies below it.
  if (mprotect(reinterpret_cast<void*>(stack), kGuardBytes, PROT_NONE) != 0) {
    munmap(mapping, 2 * kFiberStackBytes);
    return nullptr;
  }
  fiber->record = new (reinterpret_cast<void*>(stack + kFiberStackBytes - sizeof(HostThread))) HostThread{};
  fiber->record->calls = Callbacks::kCalls;
  fiber->record->scheduler = this;
  fibers_.push_back(std::move(fiber));
  return fibers_.back().get();
}

void BlockScheduler::Suspend() { scheduler_context_ = context::jump_fcontext(scheduler_context_, nullptr).fctx; }

void BlockScheduler::Resume(uint32_t index) {
  Thread& thread = threads_[index];
  if (thread.fiber == nullptr) {
    thread.fiber = TakeFiber();
    if (thread.fiber == nullptr) return Fault(index, "there is no memory for its stack", nullptr);
  }
  Fiber& fiber = *thread.fiber;
  fiber.record->thread = index;
  fiber.record->block = static_cast<uint32_t>(block_);
  fiber.record->threads = thread_count_;
  fiber.record->blocks = block_count_;
  if (fiber.is_fresh) {
    // Below the record, aligned as stacks are.
    const uintptr_t top = reinterpret_cast<uintptr_t>(fiber.record) & ~uintptr_t{63};
    const uintptr_t bottom = reinterpret_cast<uintptr_t>(fiber.record) & ~(kFiberStackBytes - 1);
    fiber.context = context::make_fcontext(reinterpret_cast<void*>(top), top - bottom, [](context::transfer_t from) {
      auto* self = static_cast<Fiber*>(from.data);
      static_cast<BlockScheduler*>(self->record->scheduler)->scheduler_context_ = from.fctx;
      RunFiber(self);
    });
    fiber.is_fresh = false;
  }
  fiber.context = context::jump_fcontext(fiber.context, &fiber).fctx;
  if (thread.state == Thread::State::kExited) {
    idle_fibers_.push_back(&fiber);
    thread.fiber = nullptr;
  }
}

void BlockScheduler::Fault(uint32_t thread, const std::string& text, Site site, Site earlier) {
  if (!fault_.has_value()) fault_ = PendingFault{block_, thread, text, site, earlier};
}

absl::Status BlockScheduler::TakeFault() {
  if (!fault_.has_value()) return absl::OkStatus();
  const PendingFault fault = *std::exchange(fault_, std::nullopt);
  std::string message = StrCat("kernel '", kernel_->name, "', block ", fault.block, ", thread ", fault.thread,
                               ", order ", order_.ToString(), ": ", fault.text);
  if (fault.site != nullptr) StrAppend(&message, "; at ", kernel_->Describe(fault.site));
  if (fault.earlier != nullptr) StrAppend(&message, "; the other access: ", kernel_->Describe(fault.earlier));
  return Internal(message);
}

uint64_t BlockScheduler::ShuffledValue(uint32_t index) {
  const Thread& thread = threads_[index];
  const uint32_t first = index / kLanes * kLanes, lane = index % kLanes;
  const auto width = static_cast<uint32_t>(thread.width), operand = static_cast<uint32_t>(thread.operand);
  const uint32_t segment = lane / width * width;
  uint32_t source = lane;
  switch (thread.shuffle) {
    case kShuffleXor:
      source = lane ^ operand;
      if (source >= segment + width) source = lane;
      break;
    case kShuffleUp:
      if (lane - segment >= operand) source = lane - operand;
      break;
    case kShuffleDown:
      if (lane - segment + operand < width) source = lane + operand;
      break;
    case kShuffleIndex:
      source = segment + operand % width;
      break;
  }
  if ((thread.mask >> source & 1) == 0) {
    Fault(index, absl::StrFormat("a shuffle reads lane %u, which its mask 0x%08x leaves out", source, thread.mask),
          thread.site);
    return 0;
  }
  return threads_[first + source].value;
}

bool BlockScheduler::OpenShuffle(uint32_t index) {
  const Thread& thread = threads_[index];
  const uint32_t first = index / kLanes * kLanes;
  const auto fault = [&](const std::string& text) {
    Fault(index, text, thread.site);
    return false;
  };
  for (uint32_t other = 0; other < kLanes; ++other) {
    if ((thread.mask >> other & 1) == 0) continue;
    if (first + other >= thread_count_)
      return fault(absl::StrFormat("a shuffle's mask 0x%08x names lane %u, which does not exist", thread.mask, other));
    const Thread& t = threads_[first + other];
    if (t.state == Thread::State::kExited) {
      return fault(absl::StrFormat("a shuffle's mask 0x%08x names lane %u, thread %u, which has exited", thread.mask,
                                   other, first + other));
    }
    if (t.state != Thread::State::kAtShuffle) return false;
    if (t.site != thread.site || t.mask != thread.mask || t.shuffle != thread.shuffle || t.width != thread.width) {
      const std::string where = t.site == thread.site ? "" : StrCat(" at ", kernel_->Describe(t.site));
      return fault(
          absl::StrFormat("a shuffle's mask 0x%08x names lane %u, thread %u, which is in a shuffle with mask 0x%08x",
                          thread.mask, other, first + other, t.mask) +
          where);
    }
  }
  const uint32_t mask = thread.mask;
  for (uint32_t other = 0; other < kLanes; ++other) {
    if ((mask >> other & 1) != 0) threads_[first + other].result = ShuffledValue(first + other);
  }
  for (uint32_t other = 0; other < kLanes; ++other) {
    if ((mask >> other & 1) != 0) threads_[first + other].state = Thread::State::kReady;
  }
  return true;
}

bool BlockScheduler::OpenShuffles() {
  bool any = false;
  for (uint32_t t = 0; t < thread_count_ && !fault_.has_value(); ++t) {
    if (threads_[t].state == Thread::State::kAtShuffle && OpenShuffle(t)) any = true;
  }
  return any;
}

void BlockScheduler::FaultAllWaiting() {
  struct Group {
    Thread::State state;
    Site site;
    uint32_t first;
    uint32_t count;
  };
  std::vector<Group> groups;
  for (uint32_t t = 0; t < thread_count_; ++t) {
    const Thread& thread = threads_[t];
    const Site site = thread.state == Thread::State::kExited ? nullptr : thread.site;
    const auto same = std::find_if(groups.begin(), groups.end(),
                                   [&](const Group& g) { return g.state == thread.state && g.site == site; });
    if (same != groups.end()) {
      ++same->count;
    } else {
      groups.push_back({thread.state, site, t, 1});
    }
  }
  std::string text = "the block's threads do not come to the same barrier";
  for (size_t g = 0; g < std::min(groups.size(), kMostGroups); ++g) {
    const Group& group = groups[g];
    StrAppend(&text, g == 0 ? ": " : "; ", "thread ", group.first);
    if (group.count > 1) StrAppend(&text, " and ", group.count - 1, " more");
    switch (group.state) {
      case Thread::State::kExited:
        StrAppend(&text, group.count > 1 ? " have exited" : " has exited");
        break;
      default:
        StrAppend(&text, group.count > 1 ? " wait" : " waits", " at the ",
                  group.state == Thread::State::kAtBarrier ? "barrier" : "shuffle", " at ",
                  kernel_->Describe(group.site));
    }
  }
  if (groups.size() > kMostGroups) StrAppend(&text, "; and others elsewhere");
  const auto waits =
      std::find_if(threads_.begin(), threads_.end(), [](const Thread& t) { return t.state != Thread::State::kExited; });
  Fault(static_cast<uint32_t>(waits - threads_.begin()), text, nullptr);
}

void BlockScheduler::OpenBarrier() {
  for (const Thread& thread : threads_) {
    if (thread.state != Thread::State::kAtBarrier || thread.site != threads_[0].site) return FaultAllWaiting();
  }
  for (Thread& thread : threads_) thread.state = Thread::State::kReady;
  check_->PassBarrier();
}

void BlockScheduler::RunBlock(int64_t block) {
  block_ = block;
  threads_.assign(thread_count_, Thread());
  for (auto& [key, region] : shared_) std::memset(region.begin(), kPoison, static_cast<size_t>(region.bytes()));
  check_->BeginBlock(block);
  while (true) {
    for (const uint32_t t : Order(thread_count_)) {
      if (threads_[t].state != Thread::State::kReady) continue;
      Resume(t);
      if (fault_.has_value()) return;
    }
    const bool opened = OpenShuffles();
    if (fault_.has_value()) return;
    if (opened) continue;
    if (std::all_of(threads_.begin(), threads_.end(),
                    [](const Thread& t) { return t.state == Thread::State::kExited; })) {
      return;
    }
    OpenBarrier();
    if (fault_.has_value()) return;
  }
}

absl::Status BlockScheduler::Launch(const HostKernel& kernel, const std::vector<void*>& arguments,
                                    const LaunchDims& dims, const ThreadOrder& order,
                                    const std::vector<MemoryRegion*>& regions, MemoryCheck& check) {
  const auto refuse = [&](const std::string& text) { return Internal(StrCat("kernel '", kernel.name, "': ", text)); };
  if (dims.grid[1] != 1 || dims.grid[2] != 1 || dims.block[1] != 1 || dims.block[2] != 1 ||
      dims.dynamic_shared_bytes != 0)
    return refuse("the host build knows grids and blocks of one dimension and no dynamic shared memory");
  if (dims.block[0] < 1 || dims.block[0] > kMostThreads || dims.grid[0] < 1 || dims.grid[0] > kMostBlocks)
    return refuse(StrCat("a grid of ", dims.grid[0], " blocks of ", dims.block[0], " threads"));
  if (kernel.launch_bound > 0 && dims.block[0] > kernel.launch_bound)
    return refuse(StrCat("blocks of ", dims.block[0], " threads, its launch bound is ", kernel.launch_bound));
  if (arguments.size() != kernel.params.size())
    return refuse(StrCat(arguments.size(), " arguments for ", kernel.params.size(), " parameters"));
  kernel_ = &kernel;
  arguments_ = &arguments;
  check_ = &check;
  order_ = order;
  draws_ = 0;
  fault_.reset();
  thread_count_ = static_cast<uint32_t>(dims.block[0]);
  block_count_ = static_cast<uint32_t>(dims.grid[0]);
  check.BeginLaunch(regions, kernel.base);
  for (const uint32_t block : Order(static_cast<size_t>(dims.grid[0]))) {
    RunBlock(block);
    if (fault_.has_value()) break;
  }
  if (fault_.has_value()) {
    // Fibers that were left in the middle begin anew.
    idle_fibers_.clear();
    for (const auto& fiber : fibers_) {
      fiber->is_fresh = true;
      idle_fibers_.push_back(fiber.get());
    }
  }
  shared_.clear();
  shared_memory_.Reset();
  return TakeFault();
}

}  // namespace fuseline::cuda_host
