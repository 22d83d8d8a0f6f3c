// Of Abseil's StatusOr, what common/launch and below it use. See status.h beside it.
// Invariant: exactly one of an error and a value. Thread-safety: thread-compatible.
#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"

namespace absl {

template <typename T>
class [[nodiscard]] StatusOr {
  template <typename U>
  static constexpr bool kIsValue =
      std::is_constructible_v<T, U&&> && !std::is_same_v<std::remove_cvref_t<U>, StatusOr> &&
      !std::is_same_v<std::remove_cvref_t<U>, Status>;

 public:
  // Implicit, as errors and values are returned.
  StatusOr(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)
  template <typename U = T>
  requires kIsValue<U> StatusOr(U&& value)
      : value_(std::in_place, std::forward<U>(value)) {}  // NOLINT(google-explicit-constructor)
  template <typename U>
  requires(!std::is_same_v<T, U> && std::is_constructible_v<T, U&&>)
      StatusOr(StatusOr<U>&& other) {  // NOLINT(google-explicit-constructor)
    if (other.ok()) {
      value_.emplace(*std::move(other));
    } else {
      status_ = other.status();
    }
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T&& value() && { return *std::move(value_); }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace absl
