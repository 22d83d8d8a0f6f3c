#include "common/fingerprint/fingerprint.h"

#include <openssl/evp.h>

#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "absl/strings/escaping.h"
#include "common/status/error.h"
#include "common/status/str_cat.h"

namespace fuseline {
namespace {

// Bumped whenever the encoding of the key changes.
constexpr std::string_view kKeyMagic = "fuseline-key-1";

std::array<uint8_t, 32> Sha256(std::string_view bytes) {
  std::array<uint8_t, 32> digest{};
  unsigned size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1 ||
      size != digest.size()) {
    // Only a libcrypto without SHA-256 or without memory gets here. A wrong key would serve wrong results: stop
    // instead.
    std::fputs("fuseline: SHA-256 is not available in this libcrypto\n", stderr);
    std::abort();
  }
  return digest;
}

std::string BoolText(bool value) { return value ? "true" : "false"; }

// Whether an option changes what is compiled. docs/fingerprint.md argues each row.
enum class OptionClass : uint8_t { kInKey, kNotInKey };

struct OptionRow {
  const char* name;
  OptionClass option_class;
  std::string (*text)(const CompileOptions& options);
};

// Every option is in this one table.
constexpr OptionRow kOptionRows[] = {
    {"options.numerics", OptionClass::kInKey,
     [](const CompileOptions& o) { return std::string(NumericsName(o.numerics)); }},
    {"options.fast_math", OptionClass::kInKey, [](const CompileOptions& o) { return BoolText(o.fast_math); }},
    {"options.allow_tf32", OptionClass::kInKey, [](const CompileOptions& o) { return BoolText(o.allow_tf32); }},
    {"options.fuse", OptionClass::kInKey, [](const CompileOptions& o) { return BoolText(o.fuse); }},
};

// Does not compile once CompileOptions has another field: classify the new one in kOptionRows, then name it here.
constexpr bool EveryOptionIsClassified() {
  constexpr CompileOptions kOptions;
  const auto& [numerics, fast_math, allow_tf32, fuse] = kOptions;
  const void* const fields[] = {&numerics, &fast_math, &allow_tf32, &fuse};
  return std::size(fields) == std::size(kOptionRows);
}
static_assert(EveryOptionIsClassified());

struct RawField {
  std::string_view name;
  std::string bytes;
  bool is_text;  // short and readable
};

// The fields of the key, in order.
std::vector<RawField> KeyFields(const FingerprintInputs& inputs) {
  std::vector<RawField> fields;
  fields.push_back({"graph", inputs.canonical_graph, false});
  fields.push_back({"target", inputs.target.ToString(), true});
  for (const OptionRow& row : kOptionRows) {
    if (row.option_class == OptionClass::kInKey) fields.push_back({row.name, row.text(inputs.options), true});
  }
  fields.push_back({"compiler_identity", inputs.compiler_identity, true});
  return fields;
}

// The length before the bytes: no two lists of strings share an encoding.
void AppendSized(std::string_view value, std::string* bytes) {
  const uint64_t size = value.size();
  for (int i = 0; i < 8; ++i) bytes->push_back(static_cast<char>(size >> (8 * i)));
  bytes->append(value);
}

}  // namespace

absl::StatusOr<Fingerprint> ParseFingerprint(std::string_view hex) {
  Fingerprint fingerprint;
  const auto bad = [hex] {
    return InvalidArgument(
        ErrorReason::kOptionInvalid, "fingerprint",
        StrCat("fingerprint '", absl::CHexEscape(std::string(hex.substr(0, 80))), "' is not 64 hexadecimal digits"));
  };
  if (hex.size() != 2 * fingerprint.bytes.size()) return bad();
  for (size_t i = 0; i < hex.size(); ++i) {
    const char c = hex[i];
    int digit = 0;
    if (c >= '0' && c <= '9') {
      digit = c - '0';
    } else if (c >= 'a' && c <= 'f') {
      digit = c - 'a' + 10;
    } else if (c >= 'A' && c <= 'F') {
      digit = c - 'A' + 10;
    } else {
      return bad();
    }
    fingerprint.bytes[i / 2] = static_cast<uint8_t>(fingerprint.bytes[i / 2] << 4 | digit);
  }
  return fingerprint;
}

Digest ComputeDigest(std::string_view bytes) { return {Sha256(bytes), static_cast<int64_t>(bytes.size())}; }

Fingerprint ComputeFingerprint(const FingerprintInputs& inputs) {
  std::string key;
  AppendSized(kKeyMagic, &key);
  for (const RawField& field : KeyFields(inputs)) {
    AppendSized(field.name, &key);
    AppendSized(field.bytes, &key);
  }
  return {Sha256(key)};
}

std::vector<KeyField> ExplainKey(const FingerprintInputs& inputs) {
  std::vector<KeyField> result;
  for (RawField& field : KeyFields(inputs)) {
    std::string digest = HexOf(Sha256(field.bytes));
    result.push_back({std::string(field.name), field.is_text ? std::move(field.bytes) : digest, digest});
  }
  return result;
}

}  // namespace fuseline
