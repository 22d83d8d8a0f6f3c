// The names under which the shared level keeps things in Redis (docs/cache_format.md). What belongs to one fingerprint
// lies in one slot of a cluster: what is between braces decides.
// Thread-safety: immutable.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "common/fingerprint/fingerprint.h"

namespace fuseline::cache {

class SharedKeys {
 public:
  // `name_space`: any text; what is not a letter, digit, '-', '_' or '.' is written as %XX.
  explicit SharedKeys(std::string_view name_space) {
    prefix_ = "fuseline:1:";
    constexpr char kDigits[] = "0123456789ABCDEF";
    for (const char c : name_space) {
      const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                         c == '_' || c == '.';
      if (plain) {
        prefix_ += c;
      } else {
        prefix_ += '%';
        prefix_ += kDigits[static_cast<uint8_t>(c) >> 4];
        prefix_ += kDigits[static_cast<uint8_t>(c) & 15];
      }
    }
  }
  std::string Index(const Fingerprint& key) const { return prefix_ + ":i:{" + key.ToHex() + "}"; }
  std::string Lease(const Fingerprint& key) const { return prefix_ + ":l:{" + key.ToHex() + "}"; }
  std::string Blob(const Digest& digest) const { return prefix_ + ":b:{" + digest.ToHex() + "}"; }
  // Where it is said, by its 32 bytes, that the build of a fingerprint has ended.
  std::string Channel() const { return prefix_ + ":built"; }

 private:
  std::string prefix_;
};

}  // namespace fuseline::cache
