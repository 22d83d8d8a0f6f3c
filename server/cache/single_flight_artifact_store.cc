// Tested by tests/unit/server/single_flight_artifact_store_test.cc
#include <algorithm>
#include <atomic>
#include <deque>
#include <exception>
#include <list>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/status/error.h"
#include "common/status/str_cat.h"
#include "server/cache/artifact_store.h"

namespace fuseline::cache {
namespace {

// How often a caller that waits asks its `stop`, and draining asks whether anybody waits.
constexpr absl::Duration kStopInterval = absl::Milliseconds(10);
// How often an artifact that was said to be there, and then was not, is looked for before it is built without asking.
constexpr int kMostClaims = 3;

absl::Status Draining() {
  return MakeError(absl::StatusCode::kUnavailable, ErrorReason::kDraining, "", "the server is shutting down");
}

// OK, or why a caller waits no longer.
absl::Status CheckCaller(const WaitOptions& wait) {
  if (wait.stop) {
    if (absl::Status status = wait.stop(); !status.ok()) return status;
  }
  if (absl::Now() < wait.deadline) return absl::OkStatus();
  return MakeError(absl::StatusCode::kDeadlineExceeded, ErrorReason::kCancelled, "",
                   "the deadline passed before the artifact was built");
}

// One build, from its request to its end. It belongs to the table and to those who wait for it.
class Flight {
 public:
  explicit Flight(Builder build) : build_(std::move(build)) {}

  // One more waits for it. False where the build has been told to stop, or soon will be: it is not to be joined.
  bool Attach(bool is_draining) {
    absl::MutexLock lock(&mutex_);
    if (!stop_.ok() || (is_draining && waiting_ == 0)) return false;
    ++waiting_;
    return true;
  }

  // Blocks until the build has ended or the caller gives up. The caller has attached.
  absl::StatusOr<Lookup> Wait(const WaitOptions& wait) {
    const auto tell = [&](BuildStage stage) {
      if (wait.on_stage) wait.on_stage(stage);
    };
    tell(BuildStage::kQueued);
    State heard = State::kQueued;
    while (true) {
      absl::Status given_up = CheckCaller(wait);
      State now;
      {
        absl::MutexLock lock(&mutex_);
        if (given_up.ok() && state_ == heard) {
          const absl::Time next = wait.stop ? std::min(wait.deadline, absl::Now() + kStopInterval) : wait.deadline;
          const auto moved = [this, heard]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return state_ != heard; };
          mutex_.AwaitWithDeadline(absl::Condition(&moved), next);
        }
        now = state_;
        if (now == State::kLanded || !given_up.ok()) {
          if (--waiting_ == 0) abandoned_ = absl::Now();
        }
        // Who gives up just when the build ends gets what was built.
        if (now == State::kLanded) given_up = absl::OkStatus();
      }
      if (!given_up.ok()) return given_up;
      if (now == heard) continue;
      if (heard == State::kQueued && (now == State::kBuilding || was_building_)) tell(BuildStage::kBuilding);
      heard = now;
      if (now != State::kLanded) continue;
      absl::MutexLock lock(&mutex_);
      return result_;
    }
  }

  // OK while the build is wanted: somebody waits, or did less than `linger` ago. What it once refuses stays refused.
  absl::Status CheckWanted(absl::Duration linger, bool is_draining) {
    absl::MutexLock lock(&mutex_);
    if (!stop_.ok() || waiting_ > 0) return stop_;
    if (is_draining) {
      stop_ = Draining();
    } else if (absl::Now() - abandoned_ >= linger) {
      stop_ =
          MakeError(absl::StatusCode::kCancelled, ErrorReason::kCancelled, "", "nobody waits for the build any more");
    }
    return stop_;
  }

  void Begin() {
    absl::MutexLock lock(&mutex_);
    was_building_ = true;
    state_ = State::kBuilding;
  }

  void Land(absl::StatusOr<Lookup> result) {
    Builder build;  // what it owns is freed outside the lock, and not only once the last caller has left
    absl::MutexLock lock(&mutex_);
    result_ = std::move(result);
    state_ = State::kLanded;
    std::swap(build, build_);
  }

  const Builder& build() const { return build_; }

 private:
  enum class State { kQueued, kBuilding, kLanded };

  Builder build_;  // read by the thread that builds, until it lands
  absl::Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kQueued;
  std::atomic<bool> was_building_{false};
  int64_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time abandoned_ ABSL_GUARDED_BY(mutex_);  // when the last one left
  absl::Status stop_ ABSL_GUARDED_BY(mutex_);
  absl::StatusOr<Lookup> result_ ABSL_GUARDED_BY(mutex_) = absl::UnknownError("not landed");
};

// A flight that has not landed is in the queue, with a thread, or parked while another server builds it; and in the
// table if it has a key and has not been replaced by one that is wanted.
class SingleFlightArtifactStore : public ArtifactStore {
 public:
  SingleFlightArtifactStore(std::unique_ptr<ArtifactStore> inner, const BuildPoolOptions& options)
      : inner_(std::move(inner)), options_(options), threads_wanted_(std::max(options.threads, 1)) {
    if (options_.coordinator != nullptr) options_.coordinator->OnWake([this](const Fingerprint& key) { Resume(key); });
  }

  // Callers are gone; what is still built stops at its next stage.
  ~SingleFlightArtifactStore() override {
    Drain();
    if (options_.coordinator != nullptr) options_.coordinator->Stop();
    std::vector<std::thread> threads;
    {
      absl::MutexLock lock(&mutex_);
      is_closing_ = true;
      threads.swap(threads_);
    }
    for (std::thread& thread : threads) thread.join();
  }

  absl::StatusOr<Lookup> Get(const Fingerprint& key) override { return inner_->Get(key); }
  Lookup GetInMemory(const Fingerprint& key) override { return inner_->GetInMemory(key); }
  absl::Status Put(const Fingerprint& key, const ArtifactPtr& artifact) override { return inner_->Put(key, artifact); }
  absl::Status Delete(const Fingerprint& key) override { return inner_->Delete(key); }
  void Touch(const Fingerprint& key) override { inner_->Touch(key); }
  void ForEachLevel(const std::function<void(ArtifactStore&)>& visit) override { inner_->ForEachLevel(visit); }

  absl::StatusOr<Lookup> GetOrBuild(const Fingerprint& key, const Builder& build, const WaitOptions& wait) override {
    if (wait.on_stage) wait.on_stage(BuildStage::kCacheCheck);
    // What is being built is not there yet: looking for it, with all who wait for it, would take time for nothing.
    if (options_.coordinator != nullptr) {
      if (const std::shared_ptr<Flight> flight = Join(key); flight != nullptr) return WaitFor(*flight, false, wait);
    }
    while (true) {
      // A flight that lands between our look and our taking off is seen by the count, and we look again.
      const int64_t landings = landings_;
      absl::StatusOr<Lookup> found = inner_->Get(key);
      if (found.ok() && found->artifact != nullptr) {
        if (wait.on_stage) wait.on_stage(BuildStage::kDone);
        return found;
      }
      if (absl::Status status = CheckCaller(wait); !status.ok()) return status;
      std::shared_ptr<Flight> flight;
      bool is_leader = false;
      {
        absl::MutexLock lock(&mutex_);
        if (const auto it = flights_.find(key); it != flights_.end() && it->second->Attach(is_draining_)) {
          flight = it->second;
          ++joins_;
        } else if (landings != landings_) {
          continue;
        } else {
          absl::StatusOr<std::shared_ptr<Flight>> taken_off = TakeOff(&key, build);
          if (!taken_off.ok()) return taken_off.status();
          flight = *std::move(taken_off);
          flights_[key] = flight;
          is_leader = true;
        }
      }
      return WaitFor(*flight, is_leader, wait);
    }
  }

  absl::StatusOr<Lookup> BuildAnew(const Builder& build, const WaitOptions& wait) override {
    if (absl::Status status = CheckCaller(wait); !status.ok()) return status;
    std::shared_ptr<Flight> flight;
    {
      absl::MutexLock lock(&mutex_);
      absl::StatusOr<std::shared_ptr<Flight>> taken_off = TakeOff(nullptr, build);
      if (!taken_off.ok()) return taken_off.status();
      flight = *std::move(taken_off);
    }
    return WaitFor(*flight, true, wait);
  }

  // What other servers build is waited for while somebody here waits.
  void Drain() override {
    {
      absl::MutexLock lock(&mutex_);
      is_draining_ = true;
      const auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return queue_.empty() && running_ == 0 && parked_.empty() && resuming_ == 0;
      };
      const absl::Duration interval = options_.coordinator == nullptr ? absl::InfiniteDuration() : kStopInterval;
      while (!mutex_.AwaitWithTimeout(absl::Condition(&idle), interval)) DropUnwantedParked();
    }
    inner_->Drain();
  }

  void AddStats(StoreStats& stats) const override {
    inner_->AddStats(stats);
    stats.joins += joins_;
    absl::MutexLock lock(&mutex_);
    stats.builds += builds_;
    stats.build_errors += build_errors_;
    stats.build_seconds += absl::ToDoubleSeconds(build_time_);
    stats.builds_waiting += static_cast<int64_t>(Waiting());
    stats.builds_running += running_;
  }

 private:
  struct Queued {
    std::shared_ptr<Flight> flight;
    bool has_key = false;
    Fingerprint key;
  };
  // Another server has it, or is being asked.
  struct Parked {
    Queued queued;
    bool is_claiming = true;  // with a thread, which asks
    bool is_woken = false;    // while it was
  };

  // The flight of a key that is under way, which the caller waits for now; null where there is none.
  std::shared_ptr<Flight> Join(const Fingerprint& key) {
    absl::MutexLock lock(&mutex_);
    const auto it = flights_.find(key);
    if (it == flights_.end() || !it->second->Attach(is_draining_)) return nullptr;
    ++joins_;
    return it->second;
  }

  // For a thread, or for another server.
  size_t Waiting() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return queue_.size() + static_cast<size_t>(std::count_if(parked_.begin(), parked_.end(),
                                                             [](const auto& parked) { return !parked->is_claiming; }));
  }

  absl::StatusOr<Lookup> WaitFor(Flight& flight, bool is_leader, const WaitOptions& wait) {
    absl::StatusOr<Lookup> result = flight.Wait(wait);
    if (!result.ok()) return result;
    if (!is_leader) result->outcome = Outcome::kJoined;
    if (wait.on_stage) wait.on_stage(BuildStage::kDone);
    return result;
  }

  // A new flight in the queue, which its caller waits for. `key` is null for one that nobody may join.
  absl::StatusOr<std::shared_ptr<Flight>> TakeOff(const Fingerprint* key, const Builder& build)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (is_draining_) return Draining();
    // What an idle thread is about to take does not wait.
    const int64_t idle = std::max<int64_t>(0, threads_wanted_ - running_);
    const size_t most = static_cast<size_t>(idle + std::max(options_.max_waiting, 0));
    if (Waiting() >= most) {
      DropUnwanted();
      DropUnwantedParked();
    }
    if (const size_t waiting = Waiting(); waiting >= most) {
      return MakeError(absl::StatusCode::kResourceExhausted, ErrorReason::kQueueFull, "",
                       StrCat(waiting, " builds wait already: try again later"));
    }
    if (absl::Status status = StartThread(); !status.ok()) return status;
    Queued& queued = queue_.emplace_back();
    queued.flight = std::make_shared<Flight>(build);
    queued.flight->Attach(false);
    queued.has_key = key != nullptr;
    if (key != nullptr) queued.key = *key;
    return queued.flight;
  }

  // As many threads as there is work for. One that the system refuses is missed only if it would be the first.
  absl::Status StartThread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const size_t wanted = static_cast<size_t>(running_) + queue_.size() + 1;
    if (threads_.size() >= wanted || threads_.size() >= static_cast<size_t>(threads_wanted_)) return absl::OkStatus();
    try {
      threads_.emplace_back([this] { RunBuilds(); });
    } catch (const std::system_error& e) {
      if (!threads_.empty()) return absl::OkStatus();
      return MakeError(absl::StatusCode::kResourceExhausted, ErrorReason::kQueueFull, "",
                       StrCat("no thread to build with: ", e.what()));
    }
    return absl::OkStatus();
  }

  void RunBuilds() {
    const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return is_closing_ || !queue_.empty(); };
    while (true) {
      Queued next;
      {
        absl::MutexLock lock(&mutex_, absl::Condition(&has_work));
        if (queue_.empty()) return;
        next = std::move(queue_.front());
        queue_.pop_front();
        ++running_;
      }
      Fly(next);
    }
  }

  void Fly(const Queued& next) {
    Flight& flight = *next.flight;
    const absl::Duration linger = next.has_key ? options_.linger : absl::ZeroDuration();
    const BuildControl control = {
        [this, flight = next.flight, linger] { return flight->CheckWanted(linger, is_draining_); }};
    const absl::Status unwanted = control.stop();
    absl::StatusOr<Lookup> result = unwanted.ok() ? absl::StatusOr<Lookup>(Lookup{}) : unwanted;
    bool is_claimed = false;
    if (unwanted.ok() && next.has_key && options_.coordinator != nullptr) {
      if (!ClaimOrPark(next, is_claimed, *result)) return;
    }
    if (unwanted.ok() && result->artifact == nullptr) {
      flight.Begin();
      const absl::Time start = absl::Now();
      result = Build(flight, control);
      const absl::Duration took = absl::Now() - start;
      if (result.ok()) {
        result->build_time = took;
        // What can't be kept can still be used; the level that failed has counted it.
        if (next.has_key) inner_->Put(next.key, result->artifact).IgnoreError();
      }
      if (is_claimed) options_.coordinator->Release(next.key);
      absl::MutexLock lock(&mutex_);
      ++(result.ok() ? builds_ : build_errors_);
      build_time_ += took;
    }
    Land(next, std::move(result), true);
  }

  // Asks whether the build is ours. False: another server has it, and the flight is parked. True: `found` has what that
  // has built; or there is nothing in it, and it is to be built, with a claim or without.
  bool ClaimOrPark(const Queued& next, bool& is_claimed, Lookup& found) {
    const auto parked = std::make_shared<Parked>();
    parked->queued = next;
    for (int published = 0; published < kMostClaims;) {
      {
        absl::MutexLock lock(&mutex_);
        parked->is_woken = false;
        parked_.push_back(parked);  // first: it may be woken before the answer is here
      }
      const Claim claim = options_.coordinator->TryClaim(next.key);
      {
        absl::MutexLock lock(&mutex_);
        if (claim == Claim::kOthers && !parked->is_woken) {
          parked->is_claiming = false;
          --running_;
          return false;
        }
        parked_.remove(parked);
      }
      is_claimed = claim == Claim::kMine;
      if (is_claimed || claim == Claim::kUnavailable) return true;
      absl::StatusOr<Lookup> looked = inner_->Get(next.key);
      if (looked.ok() && looked->artifact != nullptr) {
        found = *std::move(looked);
        return true;
      }
      if (claim == Claim::kPublished) ++published;
    }
    return true;
  }

  // Another server has ended its build of the key, well or not, on a thread of the coordinator's.
  void Resume(const Fingerprint& key) {
    std::vector<Queued> resumed;
    {
      absl::MutexLock lock(&mutex_);
      for (auto it = parked_.begin(); it != parked_.end();) {
        Parked& parked = **it;
        if (parked.queued.key != key) {
          ++it;
        } else if (parked.is_claiming) {
          parked.is_woken = true;
          ++it;
        } else {
          resumed.push_back(std::move(parked.queued));
          it = parked_.erase(it);
        }
      }
      if (resumed.empty()) return;
      ++resuming_;
    }
    absl::StatusOr<Lookup> found = inner_->Get(key);
    const bool is_there = found.ok() && found->artifact != nullptr;
    for (Queued& queued : resumed) {
      if (is_there) {
        Land(queued, found, false);
        continue;
      }
      // Not there: it is ours to build now, or else we wait again. Before those that came later.
      absl::MutexLock lock(&mutex_);
      queue_.push_front(std::move(queued));
      StartThread().IgnoreError();  // there is one: it was with a thread before
    }
    absl::MutexLock lock(&mutex_);
    --resuming_;
  }

  static absl::StatusOr<Lookup> Build(const Flight& flight, const BuildControl& control) {
    try {
      absl::StatusOr<ArtifactPtr> artifact = flight.build()(control);
      if (!artifact.ok()) return artifact.status();
      if (*artifact == nullptr) return Internal("the build gave no artifact");
      return Lookup{*std::move(artifact), Outcome::kMiss};
    } catch (const std::exception& e) {  // out of memory, foremost
      return Internal(StrCat("the build threw: ", e.what()));
    }
  }

  // Out of the table first, so that an error is shared with those who wait but with nobody who comes later.
  void Land(const Queued& queued, absl::StatusOr<Lookup> result, bool had_thread) {
    {
      absl::MutexLock lock(&mutex_);
      Forget(queued);
      ++landings_;
      if (had_thread) --running_;  // before a caller hears of it, who may ask for the next
    }
    queued.flight->Land(std::move(result));
  }

  void Forget(const Queued& queued) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!queued.has_key) return;
    const auto it = flights_.find(queued.key);
    if (it != flights_.end() && it->second == queued.flight) flights_.erase(it);
  }

  // Lands what is queued and nobody wants: it waits for nobody, so nobody sees how it ends.
  void DropUnwanted() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::deque<Queued> wanted;
    for (Queued& queued : queue_) {
      const absl::Status status =
          queued.flight->CheckWanted(queued.has_key ? options_.linger : absl::ZeroDuration(), is_draining_);
      if (status.ok()) {
        wanted.push_back(std::move(queued));
      } else {
        Forget(queued);
        queued.flight->Land(status);
      }
    }
    queue_.swap(wanted);
  }

  void DropUnwantedParked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    parked_.remove_if([this](const std::shared_ptr<Parked>& parked) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      if (parked->is_claiming) return false;
      const absl::Status status = parked->queued.flight->CheckWanted(options_.linger, is_draining_);
      if (status.ok()) return false;
      Forget(parked->queued);
      parked->queued.flight->Land(status);
      return true;
    });
  }

  const std::unique_ptr<ArtifactStore> inner_;
  const BuildPoolOptions options_;
  const int64_t threads_wanted_;
  std::atomic<int64_t> joins_{0};
  std::atomic<int64_t> landings_{0};
  std::atomic<bool> is_draining_{false};
  mutable absl::Mutex mutex_;  // before that of a flight
  bool is_closing_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<Fingerprint, std::shared_ptr<Flight>> flights_ ABSL_GUARDED_BY(mutex_);
  std::deque<Queued> queue_ ABSL_GUARDED_BY(mutex_);
  std::list<std::shared_ptr<Parked>> parked_ ABSL_GUARDED_BY(mutex_);
  int64_t resuming_ ABSL_GUARDED_BY(mutex_) = 0;  // that are neither parked nor queued
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
  int64_t running_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t builds_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t build_errors_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Duration build_time_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<ArtifactStore> MakeSingleFlightStore(std::unique_ptr<ArtifactStore> inner,
                                                     const BuildPoolOptions& options) {
  return std::make_unique<SingleFlightArtifactStore>(std::move(inner), options);
}

}  // namespace fuseline::cache
