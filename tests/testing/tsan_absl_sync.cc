// Makes Abseil's locks visible to the thread sanitizer. Debian's Abseil is not built with it, so that it would report
// every access that absl::Mutex guards as a race. Linked into a program, these definitions stand in front of the shared
// library's (which they call), for the program and for the libraries that it loads, gRPC's included. Only for builds
// with the thread sanitizer and shared Abseil. Thread-safety: as the functions that are stood in for.
#include <dlfcn.h>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

extern "C" {
// Of the sanitizer's run-time library: what happened before a release of `address` happened before an acquire of it
// that follows.
void __tsan_acquire(void* address);  // NOLINT(bugprone-reserved-identifier): the library's own name
void __tsan_release(void* address);  // NOLINT(bugprone-reserved-identifier)
}

namespace {

// The shared library's own function. Non-static members are called as functions that take `this` first: so the ABI has
// it.
template <typename F>
F Real(const char* symbol) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, symbol));
}

template <typename T>
void Acquire(const T* object) {
  __tsan_acquire(const_cast<T*>(object));
}
template <typename T>
void Release(const T* object) {
  __tsan_release(const_cast<T*>(object));
}

}  // namespace

// The static local of each function is the library's function, looked up once.
#define FUSELINE_REAL(symbol, ...) static const auto real = Real<__VA_ARGS__>(symbol)

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  FUSELINE_REAL("_ZN4absl7debian35Mutex4LockEv", void (*)(Mutex*));
  real(this);
  Acquire(this);
}
void Mutex::Unlock() {
  FUSELINE_REAL("_ZN4absl7debian35Mutex6UnlockEv", void (*)(Mutex*));
  Release(this);
  real(this);
}
bool Mutex::TryLock() {
  FUSELINE_REAL("_ZN4absl7debian35Mutex7TryLockEv", bool (*)(Mutex*));
  const bool locked = real(this);
  if (locked) Acquire(this);
  return locked;
}
void Mutex::ReaderLock() {
  FUSELINE_REAL("_ZN4absl7debian35Mutex10ReaderLockEv", void (*)(Mutex*));
  real(this);
  Acquire(this);
}
void Mutex::ReaderUnlock() {
  FUSELINE_REAL("_ZN4absl7debian35Mutex12ReaderUnlockEv", void (*)(Mutex*));
  Release(this);
  real(this);
}
bool Mutex::ReaderTryLock() {
  FUSELINE_REAL("_ZN4absl7debian35Mutex13ReaderTryLockEv", bool (*)(Mutex*));
  const bool locked = real(this);
  if (locked) Acquire(this);
  return locked;
}
void Mutex::LockWhen(const Condition& cond) {
  FUSELINE_REAL("_ZN4absl7debian35Mutex8LockWhenERKNS0_9ConditionE", void (*)(Mutex*, const Condition&));
  Release(this);  // whoever unlocks evaluates the condition, which this thread has made
  real(this, cond);
  Acquire(this);
}
void Mutex::Await(const Condition& cond) {
  FUSELINE_REAL("_ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE", void (*)(Mutex*, const Condition&));
  Release(this);
  real(this, cond);
  Acquire(this);
}
bool Mutex::AwaitWithTimeout(const Condition& cond, Duration timeout) {
  FUSELINE_REAL("_ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE",
                bool (*)(Mutex*, const Condition&, Duration));
  Release(this);
  const bool holds = real(this, cond, timeout);
  Acquire(this);
  return holds;
}
bool Mutex::AwaitWithDeadline(const Condition& cond, Time deadline) {
  FUSELINE_REAL("_ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE",
                bool (*)(Mutex*, const Condition&, Time));
  Release(this);
  const bool holds = real(this, cond, deadline);
  Acquire(this);
  return holds;
}

void CondVar::Wait(Mutex* mu) {
  FUSELINE_REAL("_ZN4absl7debian37CondVar4WaitEPNS0_5MutexE", void (*)(CondVar*, Mutex*));
  Release(mu);
  real(this, mu);
  Acquire(mu);
}
bool CondVar::WaitWithTimeout(Mutex* mu, Duration timeout) {
  FUSELINE_REAL("_ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE",
                bool (*)(CondVar*, Mutex*, Duration));
  Release(mu);
  const bool timed_out = real(this, mu, timeout);
  Acquire(mu);
  return timed_out;
}
bool CondVar::WaitWithDeadline(Mutex* mu, Time deadline) {
  FUSELINE_REAL("_ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE", bool (*)(CondVar*, Mutex*, Time));
  Release(mu);
  const bool timed_out = real(this, mu, deadline);
  Acquire(mu);
  return timed_out;
}

void Notification::Notify() {
  FUSELINE_REAL("_ZN4absl7debian312Notification6NotifyEv", void (*)(Notification*));
  Release(this);
  real(this);
}
void Notification::WaitForNotification() const {
  FUSELINE_REAL("_ZNK4absl7debian312Notification19WaitForNotificationEv", void (*)(const Notification*));
  real(this);
  Acquire(this);
}
bool Notification::WaitForNotificationWithTimeout(absl::Duration timeout) const {
  FUSELINE_REAL("_ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE",
                bool (*)(const Notification*, Duration));
  const bool notified = real(this, timeout);
  if (notified) Acquire(this);
  return notified;
}

ABSL_NAMESPACE_END
}  // namespace absl
