#include "server/cache/record_signer.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"

namespace fuseline::cache {
namespace {

// No index record begins so: those begin with a small number.
constexpr std::string_view kMagic = "\xf5sig";
constexpr char kSignatureVersion = 1;
constexpr size_t kSignatureBytes = 32;
constexpr std::string_view kDomain = "fuseline-signature-1";
constexpr std::string_view kNamespaceDomain = "fuseline-namespace-1";

constexpr size_t kMaxFileBytes = 64 << 10;
constexpr size_t kMaxKeys = 64;
constexpr size_t kMaxIdBytes = 64;
constexpr size_t kMaxBuilderBytes = 255;
// Shorter ones can be guessed; longer ones than SHA-256's block are hashed first and gain nothing.
constexpr size_t kMinKeyBytes = 16;
constexpr size_t kMaxKeyBytes = 64;

absl::Status BadRecord(std::string_view what) {
  return InvalidArgument(ErrorReason::kDataLoss, "signature", StrCat("cache entry: ", what));
}

absl::Status BadLine(size_t line, std::string_view what) {
  return InvalidArgument(ErrorReason::kOptionInvalid, "cache_key_file", StrCat("key file, line ", line, ": ", what));
}

absl::Status FileError(absl::StatusCode code, const std::string& path, std::string_view what) {
  return MakeError(code, ErrorReason::kInputOutput, "cache_key_file", StrCat("key file '", path, "' ", what));
}

// The length before the bytes: no two lists of strings share an encoding.
void AppendSized(std::string_view value, std::string* bytes) {
  const uint64_t size = value.size();
  for (int i = 0; i < 8; ++i) bytes->push_back(static_cast<char>(size >> (8 * i)));
  bytes->append(value);
}

std::string_view BytesOf(const Fingerprint& key) {
  return {reinterpret_cast<const char*>(key.bytes.data()), key.bytes.size()};
}

bool IsId(std::string_view id) {
  return !id.empty() && id.size() <= kMaxIdBytes && std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-' ||
           c == '.';
  });
}

// Hex where all are hexadecimal digits, else base64. Empty where it is neither.
std::string DecodeKey(absl::string_view text) {
  const bool is_hex = text.size() % 2 == 0 && text.find_first_not_of("0123456789abcdefABCDEF") == text.npos;
  if (is_hex) return absl::HexStringToBytes(text);
  std::string bytes;
  return absl::Base64Unescape(text, &bytes) ? bytes : "";
}

absl::Status ReadFile(const std::string& path, std::string& text) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (file < 0) return FileError(absl::StatusCode::kNotFound, path, StrCat("can't be read: ", strerror(errno)));
  struct stat info {};
  absl::Status status;
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
    status = FileError(absl::StatusCode::kFailedPrecondition, path, "is no regular file");
  } else if ((info.st_mode & (S_IWGRP | S_IRWXO)) != 0) {
    // The group may read: that is how Kubernetes mounts secrets for a user that is not root.
    status =
        FileError(absl::StatusCode::kFailedPrecondition, path,
                  "may be read or changed by others: its owner alone may write, owner and group may read (chmod 0400)");
  }
  text.resize(kMaxFileBytes + 1);
  size_t size = 0;
  while (status.ok() && size < text.size()) {
    const ssize_t got = read(file, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) status = FileError(absl::StatusCode::kNotFound, path, StrCat("can't be read: ", strerror(errno)));
    if (got <= 0) break;
    size += static_cast<size_t>(got);
  }
  close(file);
  if (status.ok() && size > kMaxFileBytes) {
    status = InvalidArgument(ErrorReason::kOptionInvalid, "cache_key_file",
                             StrCat("key file '", path, "' is larger than ", kMaxFileBytes, " bytes"));
  }
  text.resize(std::min(size, kMaxFileBytes));
  return status;
}

// A signed record, taken apart.
struct SignedRecord {
  std::string_view key_id;
  std::string_view builder;
  std::string_view payload;
  std::string_view signature;
};

bool IsSigned(std::string_view record) { return record.substr(0, kMagic.size()) == kMagic; }

absl::StatusOr<SignedRecord> TakeApart(std::string_view record) {
  record.remove_prefix(kMagic.size());
  if (record.empty() || record[0] != kSignatureVersion) return BadRecord("the signature has another version");
  record.remove_prefix(1);
  SignedRecord out;
  for (std::string_view* field : {&out.key_id, &out.builder}) {
    const size_t size = record.empty() ? 0 : static_cast<uint8_t>(record[0]);
    if (record.size() < 1 + size) return BadRecord("the signature is cut off");
    *field = record.substr(1, size);
    record.remove_prefix(1 + size);
  }
  if (record.size() < kSignatureBytes) return BadRecord("the signature is cut off");
  out.payload = record.substr(0, record.size() - kSignatureBytes);
  out.signature = record.substr(out.payload.size());
  return out;
}

}  // namespace

RecordSigner::Keys::~Keys() {
  for (SigningKey& key : list) OPENSSL_cleanse(key.bytes.data(), key.bytes.size());
}

absl::StatusOr<std::shared_ptr<RecordSigner>> RecordSigner::Create(const Options& options) {
  if (options.builder.size() > kMaxBuilderBytes) {
    return InvalidArgument(ErrorReason::kOptionInvalid, "builder",
                           StrCat("the builder's name is longer than ", kMaxBuilderBytes, " bytes"));
  }
  std::shared_ptr<RecordSigner> signer(new RecordSigner(options));
  FUSELINE_RETURN_IF_ERROR(signer->Reload());
  return signer;
}

absl::Status RecordSigner::Reload(bool* lost_key) {
  if (lost_key != nullptr) *lost_key = false;
  if (options_.key_file.empty()) return absl::OkStatus();
  auto keys = std::make_shared<Keys>();
  FUSELINE_RETURN_IF_ERROR(ReadKeys(options_.key_file, *keys));
  absl::MutexLock lock(&mutex_);
  if (lost_key != nullptr) {
    *lost_key = std::any_of(keys_->list.begin(), keys_->list.end(), [&](const SigningKey& had) {
      return std::none_of(keys->list.begin(), keys->list.end(),
                          [&](const SigningKey& has) { return has.id == had.id && has.bytes == had.bytes; });
    });
  }
  keys_ = std::move(keys);
  return absl::OkStatus();
}

absl::Status RecordSigner::ReadKeys(const std::string& path, Keys& keys) {
  std::string text;
  FUSELINE_RETURN_IF_ERROR(ReadFile(path, text));
  size_t number = 0;
  absl::Status status;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    // A key is never said in a message.
    if (words.size() != 2) {
      status = BadLine(number, "expected an ID and a key");
    } else if (!IsId(words[0])) {
      status = BadLine(number, StrCat("an ID is 1 to ", kMaxIdBytes, " of [A-Za-z0-9_.-]"));
    } else if (keys.list.size() == kMaxKeys) {
      status = BadLine(number, StrCat("more than ", kMaxKeys, " keys"));
    } else if (std::any_of(keys.list.begin(), keys.list.end(),
                           [&](const SigningKey& other) { return other.id == words[0]; })) {
      status = BadLine(number, StrCat("the ID '", words[0], "' is there twice"));
    } else {
      SigningKey key = {words[0], DecodeKey(words[1])};
      if (key.bytes.size() < kMinKeyBytes || key.bytes.size() > kMaxKeyBytes) {
        status = BadLine(number, StrCat("a key is ", kMinKeyBytes, " to ", kMaxKeyBytes, " bytes in hex or base64"));
      } else {
        keys.list.push_back(std::move(key));
      }
    }
    if (!status.ok()) break;
  }
  OPENSSL_cleanse(text.data(), text.size());
  if (status.ok() && keys.list.empty()) {
    status = InvalidArgument(ErrorReason::kOptionInvalid, "cache_key_file", StrCat("key file '", path, "' has no key"));
  }
  return status;
}

bool RecordSigner::has_keys() const { return !keys()->list.empty(); }

std::shared_ptr<const RecordSigner::Keys> RecordSigner::keys() const {
  absl::MutexLock lock(&mutex_);
  return keys_;
}

std::string RecordSigner::Sign(const Fingerprint& key, std::string_view payload) const {
  const std::shared_ptr<const Keys> keys = this->keys();
  if (keys->list.empty()) return std::string(payload);
  const SigningKey& signing = keys->list.front();
  std::string record(kMagic);
  record += kSignatureVersion;
  for (const std::string* field : {&signing.id, &options_.builder}) {
    record += static_cast<char>(field->size());
    record += *field;
  }
  record.append(payload);
  return record + Signature(signing, key, options_.builder, payload);
}

absl::StatusOr<std::string> RecordSigner::Verify(const Fingerprint& key, std::string_view record) const {
  const std::shared_ptr<const Keys> keys = this->keys();
  if (!IsSigned(record)) {
    if (keys->list.empty()) return std::string(record);
    return BadRecord("it is not signed");
  }
  FUSELINE_ASSIGN_OR_RETURN(const SignedRecord parts, TakeApart(record));
  if (keys->list.empty()) return std::string(parts.payload);
  for (const SigningKey& signing : keys->list) {
    if (signing.id != parts.key_id) continue;
    const std::string expected = Signature(signing, key, parts.builder, parts.payload);
    if (CRYPTO_memcmp(expected.data(), parts.signature.data(), kSignatureBytes) != 0)
      return BadRecord("its signature is wrong");
    return std::string(parts.payload);
  }
  return BadRecord("it is signed with a key that is not known here");
}

absl::StatusOr<std::string_view> RecordSigner::UnverifiedPayload(std::string_view record) {
  if (!IsSigned(record)) return record;
  FUSELINE_ASSIGN_OR_RETURN(const SignedRecord parts, TakeApart(record));
  return parts.payload;
}

Fingerprint RecordSigner::StoredKey(const Fingerprint& key) const {
  if (options_.name_space.empty()) return key;
  std::string text;
  for (const std::string_view field : {kNamespaceDomain, std::string_view(options_.name_space), BytesOf(key)})
    AppendSized(field, &text);
  return {ComputeDigest(text).sha256};
}

std::string RecordSigner::Signature(const SigningKey& signing, const Fingerprint& key, std::string_view builder,
                                    std::string_view payload) const {
  std::string text;
  for (const std::string_view field :
       {kDomain, std::string_view(options_.name_space), BytesOf(key), std::string_view(signing.id), builder, payload})
    AppendSized(field, &text);
  std::string signature(kSignatureBytes, '\0');
  unsigned size = 0;
  if (HMAC(EVP_sha256(), signing.bytes.data(), static_cast<int>(signing.bytes.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(),
           reinterpret_cast<unsigned char*>(signature.data()), &size) == nullptr ||
      size != kSignatureBytes) {
    // Only a libcrypto without SHA-256 or without memory gets here. A signature that says nothing would let anything
    // in: stop instead.
    std::fputs("fuseline: HMAC-SHA-256 is not available in this libcrypto\n", stderr);
    std::abort();
  }
  return signature;
}

}  // namespace fuseline::cache
