#include "server/cache/record_signer.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/server/test_artifacts.h"

namespace fuseline::cache {
namespace {

using ::fuseline::testing::IsOk;
using ::fuseline::testing::KeyOf;
using ::fuseline::testing::StatusIs;

constexpr char kFirst[] = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
constexpr char kSecond[] = "/+7dzLuqmYh3ZlVEMyIRAP/u3cy7qpmId2ZVRDMiEQA=";
const std::string kPayload("\x01 digests\0and more", 18);

class RecordSignerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = (std::filesystem::temp_directory_path() / "fuseline-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(path.data()), nullptr);
    directory_ = path;
    file_ = path + "/keys";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void WriteKeys(const std::string& text, mode_t mode = 0600) {
    std::filesystem::remove(file_);
    std::ofstream(file_) << text;
    ASSERT_EQ(chmod(file_.c_str(), mode), 0);
  }
  std::shared_ptr<RecordSigner> SignerOf(const std::string& keys, const std::string& name_space = "") {
    WriteKeys(keys);
    auto signer = RecordSigner::Create({.key_file = file_, .name_space = name_space, .builder = "compiler 1"});
    EXPECT_THAT(signer, IsOk());
    return signer.ok() ? *signer : nullptr;
  }
  absl::Status StatusOf(const std::string& keys, mode_t mode = 0600) {
    WriteKeys(keys, mode);
    return RecordSigner::Create({.key_file = file_}).status();
  }
  static std::string Line(const std::string& id, const std::string& key) { return id + " " + key + "\n"; }

  std::string directory_;
  std::string file_;
};

TEST_F(RecordSignerTest, WithoutKeysARecordIsThePayload) {
  const auto signer = RecordSigner::Create({});
  ASSERT_THAT(signer, IsOk());
  EXPECT_FALSE((*signer)->has_keys());
  EXPECT_EQ((*signer)->Sign(KeyOf(1), kPayload), kPayload);
  EXPECT_EQ(*(*signer)->Verify(KeyOf(1), kPayload), kPayload);
  EXPECT_EQ(*(*signer)->Verify(KeyOf(1), ""), "");
  // Turning signatures off loses nothing.
  EXPECT_EQ(*(*signer)->Verify(KeyOf(1), SignerOf(Line("a", kFirst))->Sign(KeyOf(1), kPayload)), kPayload);
}

TEST_F(RecordSignerTest, SignedRecordVerifiesForItsKeyAlone) {
  const auto signer = SignerOf(Line("a", kFirst));
  EXPECT_TRUE(signer->has_keys());
  const std::string record = signer->Sign(KeyOf(1), kPayload);
  EXPECT_EQ(*signer->Verify(KeyOf(1), record), kPayload);
  EXPECT_THAT(signer->Verify(KeyOf(2), record), StatusIs(absl::StatusCode::kInvalidArgument, "its signature is wrong"));
  EXPECT_THAT(signer->Verify(KeyOf(1), kPayload), StatusIs(absl::StatusCode::kInvalidArgument, "it is not signed"));
}

TEST_F(RecordSignerTest, SignatureIsThatOfTheDocumentedForm) {
  // By python3: hmac.new(bytes(range(32)), b"".join(len(f).to_bytes(8, "little") + f for f in [b"fuseline-signature-1",
  // b"salt", b"\1" + bytes(31), b"a", b"compiler 1", b"payload"]), "sha256").hexdigest()
  const std::string record = SignerOf(Line("a", kFirst), "salt")->Sign(KeyOf(1), "payload");
  EXPECT_EQ(record.substr(0, record.size() - 32), std::string("\xf5sig\x01\x01") + "a\x0a" + "compiler 1payload");
  std::string hex;
  for (const char c : record.substr(record.size() - 32)) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[static_cast<uint8_t>(c) >> 4];
    hex += kDigits[static_cast<uint8_t>(c) & 15];
  }
  EXPECT_EQ(hex, "f88af9202f5904410efcdbfb17d48de20c1a24998566ff360fcf429f8778bd58");
}

TEST_F(RecordSignerTest, EveryChangedBitIsFound) {
  const auto signer = SignerOf(Line("a", kFirst));
  const std::string record = signer->Sign(KeyOf(1), kPayload);
  for (size_t i = 0; i < record.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = record;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      EXPECT_FALSE(signer->Verify(KeyOf(1), changed).ok()) << "byte " << i << ", bit " << bit;
    }
  }
}

TEST_F(RecordSignerTest, EveryCutIsFoundWithAndWithoutKeys) {
  const auto signer = SignerOf(Line("a", kFirst));
  const auto keyless = RecordSigner::Create({});
  const std::string record = signer->Sign(KeyOf(1), "");
  for (size_t size = 0; size < record.size(); ++size) {
    EXPECT_FALSE(signer->Verify(KeyOf(1), record.substr(0, size)).ok()) << size;
    if (size >= 4) {
      EXPECT_FALSE((*keyless)->Verify(KeyOf(1), record.substr(0, size)).ok()) << size;
    }
  }
}

TEST_F(RecordSignerTest, KeysRotateByTheirIds) {
  const std::string old_record = SignerOf(Line("a", kFirst))->Sign(KeyOf(1), kPayload);
  const auto rotated = SignerOf(Line("b", kSecond) + Line("a", kFirst));
  EXPECT_EQ(*rotated->Verify(KeyOf(1), old_record), kPayload);
  const std::string new_record = rotated->Sign(KeyOf(1), kPayload);
  EXPECT_EQ(*SignerOf(Line("b", kSecond))->Verify(KeyOf(1), new_record), kPayload);
  EXPECT_THAT(SignerOf(Line("b", kSecond))->Verify(KeyOf(1), old_record),
              StatusIs(absl::StatusCode::kInvalidArgument, "a key that is not known here"));
  // The same ID with another key is a wrong signature.
  EXPECT_THAT(SignerOf(Line("a", kSecond))->Verify(KeyOf(1), old_record),
              StatusIs(absl::StatusCode::kInvalidArgument, "its signature is wrong"));
}

TEST_F(RecordSignerTest, NamespaceIsPartOfTheSignature) {
  const std::string record = SignerOf(Line("a", kFirst), "one")->Sign(KeyOf(1), kPayload);
  EXPECT_FALSE(SignerOf(Line("a", kFirst), "two")->Verify(KeyOf(1), record).ok());
  EXPECT_FALSE(SignerOf(Line("a", kFirst))->Verify(KeyOf(1), record).ok());
  EXPECT_TRUE(SignerOf(Line("a", kFirst), "one")->Verify(KeyOf(1), record).ok());
}

TEST_F(RecordSignerTest, StoredKeyIsAnotherOneInEachNamespace) {
  const auto none = RecordSigner::Create({});
  const auto one = RecordSigner::Create({.name_space = "one"});
  const auto two = RecordSigner::Create({.name_space = "two"});
  EXPECT_EQ((*none)->StoredKey(KeyOf(1)), KeyOf(1));
  EXPECT_EQ((*one)->StoredKey(KeyOf(1)), (*one)->StoredKey(KeyOf(1)));
  EXPECT_NE((*one)->StoredKey(KeyOf(1)), KeyOf(1));
  EXPECT_NE((*one)->StoredKey(KeyOf(1)), (*one)->StoredKey(KeyOf(2)));
  EXPECT_NE((*one)->StoredKey(KeyOf(1)), (*two)->StoredKey(KeyOf(1)));
}

TEST_F(RecordSignerTest, UnverifiedPayloadNeedsNoKey) {
  const std::string record = SignerOf(Line("a", kFirst))->Sign(KeyOf(1), kPayload);
  EXPECT_EQ(*RecordSigner::UnverifiedPayload(record), kPayload);
  EXPECT_EQ(*RecordSigner::UnverifiedPayload(kPayload), kPayload);
  EXPECT_FALSE(RecordSigner::UnverifiedPayload(std::string_view(record).substr(0, 20)).ok());
}

TEST_F(RecordSignerTest, ReloadTakesNewKeysAndKeepsTheOldOnesOnErrors) {
  const auto signer = SignerOf(Line("a", kFirst));
  const std::string record = signer->Sign(KeyOf(1), kPayload);
  WriteKeys("nonsense\n");
  EXPECT_THAT(signer->Reload(), StatusIs(absl::StatusCode::kInvalidArgument, "line 1"));
  EXPECT_TRUE(signer->Verify(KeyOf(1), record).ok());
  WriteKeys(Line("b", kSecond));
  bool lost_key = false;
  ASSERT_THAT(signer->Reload(&lost_key), IsOk());
  EXPECT_TRUE(lost_key);
  WriteKeys(Line("b", kSecond) + Line("c", kFirst));
  ASSERT_THAT(signer->Reload(&lost_key), IsOk());
  EXPECT_FALSE(lost_key);
  EXPECT_FALSE(signer->Verify(KeyOf(1), record).ok());
  EXPECT_TRUE(signer->Verify(KeyOf(1), signer->Sign(KeyOf(1), kPayload)).ok());
}

TEST_F(RecordSignerTest, CommentsAndBlankLinesAreAllowed) {
  EXPECT_THAT(StatusOf("# keys\n\n  a\t" + std::string(kFirst) + "  \r\n#b\n" + Line("b.2", kSecond)), IsOk());
}

TEST_F(RecordSignerTest, MalformedFilesAreRefusedWithTheLineAndWithoutTheKey) {
  const struct {
    std::string text;
    std::string message;
  } kCases[] = {
      {"", "has no key"},
      {"# nothing\n", "has no key"},
      {"a\n", "line 1: expected an ID and a key"},
      {"a " + std::string(kFirst) + " c\n", "line 1: expected an ID and a key"},
      {"\na! " + std::string(kFirst) + "\n", "line 2: an ID is 1 to 64"},
      {std::string(65, 'a') + " " + kFirst + "\n", "line 1: an ID is 1 to 64"},
      {"a 00112233\n", "line 1: a key is 16 to 64 bytes"},
      {"a " + std::string(130, '0') + "\n", "line 1: a key is 16 to 64 bytes"},
      {"a ***not*base64***not*base64***\n", "line 1: a key is 16 to 64 bytes"},
      {Line("a", kFirst) + Line("a", kSecond), "line 2: the ID 'a' is there twice"},
      {std::string((64 << 10) + 1, '#'), "is larger than"},
  };
  for (const auto& c : kCases) {
    const absl::Status status = StatusOf(c.text);
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, c.message)) << c.text.substr(0, 80);
    EXPECT_EQ(std::string(status.message()).find(kFirst), std::string::npos);
  }
}

TEST_F(RecordSignerTest, FilesThatOthersMayReadAreRefused) {
  for (const mode_t mode : {0644, 0604, 0602, 0620, 0601}) {
    EXPECT_THAT(StatusOf(Line("a", kFirst), mode),
                StatusIs(absl::StatusCode::kFailedPrecondition, "may be read or changed by others"))
        << mode;
  }
  for (const mode_t mode : {0400, 0440, 0600, 0640}) EXPECT_THAT(StatusOf(Line("a", kFirst), mode), IsOk()) << mode;
}

TEST_F(RecordSignerTest, AbsentFilesAndFoldersAreRefused) {
  EXPECT_THAT(RecordSigner::Create({.key_file = directory_ + "/none"}),
              StatusIs(absl::StatusCode::kNotFound, "can't be read"));
  EXPECT_THAT(RecordSigner::Create({.key_file = directory_}),
              StatusIs(absl::StatusCode::kFailedPrecondition, "is no regular file"));
}

}  // namespace
}  // namespace fuseline::cache
