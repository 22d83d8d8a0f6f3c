#include "common/target/target.h"

#include <charconv>

#include "common/status/error.h"
#include "common/status/str_cat.h"

namespace fuseline {
namespace {

constexpr std::string_view kCpu = "cpu";
constexpr std::string_view kCudaPrefix = "cuda:sm_";

absl::Status BadTarget(std::string_view text) {
  return InvalidArgument(ErrorReason::kOptionInvalid, "target",
                         StrCat("target '", text.substr(0, 64), "' is neither 'cpu' nor 'cuda:sm_XX'"));
}

}  // namespace

std::string Target::ToString() const {
  if (!is_cuda()) return std::string(kCpu);
  return StrCat(kCudaPrefix, sm, arch_specific ? "a" : "");
}

absl::StatusOr<Target> ParseTarget(std::string_view text) {
  if (text == kCpu) return Target::Cpu();
  if (text.substr(0, kCudaPrefix.size()) != kCudaPrefix) return BadTarget(text);
  std::string_view arch = text.substr(kCudaPrefix.size());
  const bool arch_specific = !arch.empty() && arch.back() == 'a';
  if (arch_specific) arch.remove_suffix(1);
  // Two or three digits, the first not zero: one spelling for each target, since the spelling is in keys and messages.
  if (arch.size() < 2 || arch.size() > 3 || arch[0] < '1' || arch[0] > '9') return BadTarget(text);
  int sm = 0;
  const auto [end, error] = std::from_chars(arch.data(), arch.data() + arch.size(), sm);
  if (error != std::errc() || end != arch.data() + arch.size()) return BadTarget(text);
  return Target::Cuda(sm, arch_specific);
}

}  // namespace fuseline
