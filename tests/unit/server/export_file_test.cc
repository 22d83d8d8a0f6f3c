#include "server/cache/export_file.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/artifact/codec/artifact_codec.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/server/test_artifacts.h"

namespace fuseline::cache {
namespace {

using ::fuseline::testing::IsOk;
using ::fuseline::testing::KeyOf;
using ::fuseline::testing::StatusIs;
using ::fuseline::testing::StoredArtifact;

std::shared_ptr<RecordSigner> SignerWith(const std::string& key) {
  std::string path = (std::filesystem::temp_directory_path() / "fuseline-test-XXXXXX").string();
  const int file = mkstemp(path.data());  // mode 0600
  EXPECT_GE(file, 0);
  close(file);
  std::ofstream(path) << "k " << key << "\n";
  auto signer = RecordSigner::Create({.key_file = path});
  EXPECT_THAT(signer, IsOk());
  std::filesystem::remove(path);
  return *signer;
}

const RecordSigner& Unsigned() {
  static const std::shared_ptr<RecordSigner> signer = *RecordSigner::Create({});
  return *signer;
}

std::string FileOf(const std::vector<int>& entries, const RecordSigner& signer = Unsigned()) {
  std::string file;
  ExportWriter writer(
      [&file](std::string_view bytes) {
        file.append(bytes);
        return absl::OkStatus();
      },
      signer);
  for (const int n : entries)
    EXPECT_THAT(writer.Add(*StoredArtifact(KeyOf(n), std::string(1000, static_cast<char>('a' + n)))), IsOk());
  EXPECT_THAT(writer.Finish(), IsOk());
  return file;
}

struct Content {
  std::vector<Fingerprint> good;
  std::vector<std::string> refusals;
  absl::Status status;
};

// Read in pieces of `piece` bytes.
Content Read(const std::string& file, const RecordSigner& signer = Unsigned(), size_t piece = 777) {
  size_t at = 0;
  ExportReader reader(
      [&]() -> absl::StatusOr<std::string> {
        const std::string bytes = file.substr(at, piece);
        at += bytes.size();
        return bytes;
      },
      signer);
  Content content;
  while (true) {
    auto entry = reader.Next();
    content.status = entry.status();
    if (!entry.ok() || !entry->has_value()) return content;
    if ((*entry)->artifact != nullptr) {
      EXPECT_EQ((*entry)->artifact->fingerprint, (*entry)->key);
      content.good.push_back((*entry)->key);
    } else {
      content.refusals.push_back((*entry)->refusal);
    }
  }
}

absl::StatusOr<std::vector<ExportPlace>> List(const std::string& file) {
  return ListExportEntries(
      [&file](int64_t offset, size_t size) -> absl::StatusOr<std::string> {
        EXPECT_LE(static_cast<size_t>(offset) + size, file.size());
        return file.substr(static_cast<size_t>(offset), size);
      },
      static_cast<int64_t>(file.size()));
}

TEST(ExportFileTest, WhatIsWrittenIsReadInPiecesOfAnySize) {
  const std::string file = FileOf({1, 2, 3});
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{4096}, file.size()}) {
    const Content content = Read(file, Unsigned(), piece);
    EXPECT_THAT(content.status, IsOk());
    EXPECT_EQ(content.good, (std::vector<Fingerprint>{KeyOf(1), KeyOf(2), KeyOf(3)}));
    EXPECT_TRUE(content.refusals.empty());
  }
  EXPECT_THAT(Read(FileOf({})).status, IsOk());
}

TEST(ExportFileTest, PlacesOfEntriesAreFoundWithoutReadingThem) {
  const std::string file = FileOf({1, 2});
  const auto places = List(file);
  ASSERT_THAT(places, IsOk());
  ASSERT_EQ(places->size(), 2u);
  for (const ExportPlace& place : *places) {
    const std::string_view record = std::string_view(file).substr(place.record_offset, place.record_bytes);
    const std::string_view body =
        std::string_view(file).substr(place.record_offset + place.record_bytes, place.body_bytes);
    const auto artifact = ReadExportEntry(place.key, record, body, Unsigned(), nullptr);
    ASSERT_THAT(artifact, IsOk());
    EXPECT_EQ((*artifact)->fingerprint, place.key);
  }
}

TEST(ExportFileTest, EveryCutIsNamed) {
  const std::string file = FileOf({1, 2});
  for (size_t size = 0; size < file.size(); size += size < 200 || size + 200 > file.size() ? 1 : 97) {
    const std::string cut = file.substr(0, size);
    const std::string words = size < 23 ? "this is no export file" : absl::StrCat("is cut off at byte ", size);
    EXPECT_THAT(Read(cut).status, StatusIs(absl::StatusCode::kInvalidArgument, words)) << size;
    EXPECT_THAT(List(cut), StatusIs(absl::StatusCode::kInvalidArgument, size < 23 ? words : "is cut off")) << size;
  }
}

// Either the file is refused, or the entry; never is a changed artifact taken for good.
TEST(ExportFileTest, EveryChangedByteIsFound) {
  const std::string file = FileOf({1});
  for (size_t i = 0; i < file.size(); i += 3) {
    std::string changed = file;
    changed[i] = static_cast<char>(changed[i] ^ 0x20);
    const Content content = Read(changed);
    EXPECT_FALSE(content.status.ok()) << i;
  }
}

TEST(ExportFileTest, DamagedEntryIsRefusedAndTheNextOneRead) {
  std::string file = FileOf({1, 2});
  const auto places = List(file);
  ASSERT_THAT(places, IsOk());
  char& byte = file[static_cast<size_t>((*places)[0].record_offset + (*places)[0].record_bytes + 5)];
  byte = static_cast<char>(byte ^ 1);
  const Content content = Read(file);
  EXPECT_EQ(content.good, std::vector<Fingerprint>{KeyOf(2)});
  ASSERT_EQ(content.refusals.size(), 1u);
  EXPECT_NE(content.refusals[0].find("its digest is wrong"), std::string::npos);
  EXPECT_THAT(content.status, StatusIs(absl::StatusCode::kInvalidArgument, "does not have the digest that it says"));
}

TEST(ExportFileTest, SizesThatAreLiesTakeNoMemory) {
  std::string file = FileOf({1});
  for (size_t i = 0; i < 8; ++i) file[23 + 1 + 32 + 4 + i] = '\xff';
  EXPECT_THAT(Read(file).status, StatusIs(absl::StatusCode::kInvalidArgument, "has sizes out of range"));
  for (size_t i = 0; i < 8; ++i) file[23 + 1 + 32 + 4 + i] = i == 3 ? '\x40' : '\0';  // a gigabyte
  EXPECT_THAT(Read(file).status, StatusIs(absl::StatusCode::kInvalidArgument, "is cut off"));
  EXPECT_THAT(List(file), StatusIs(absl::StatusCode::kInvalidArgument, "is cut off"));
}

TEST(ExportFileTest, OtherFilesAndVersionsAreRefused) {
  EXPECT_THAT(Read("something else that is long enough").status,
              StatusIs(absl::StatusCode::kInvalidArgument, "this is no export file"));
  std::string file = FileOf({1});
  EXPECT_THAT(Read(file + "x").status, StatusIs(absl::StatusCode::kInvalidArgument, "goes on behind its end"));
  EXPECT_THAT(List(file + "x"), StatusIs(absl::StatusCode::kInvalidArgument, ""));
  file[22] = 2;
  EXPECT_THAT(Read(file).status, StatusIs(absl::StatusCode::kInvalidArgument, "version 2, this program reads 1"));
}

TEST(ExportFileTest, WithKeysUnsignedAndWronglySignedEntriesAreRefused) {
  const auto one = SignerWith(std::string(64, '1'));
  const auto two = SignerWith(std::string(64, '2'));
  EXPECT_EQ(Read(FileOf({1}, *one), *one).good.size(), 1u);
  EXPECT_EQ(Read(FileOf({1}, *one)).good.size(), 1u);  // without keys nothing is asked for
  for (const std::string& file : {FileOf({1}), FileOf({1}, *two)}) {
    const Content content = Read(file, *one);
    EXPECT_TRUE(content.good.empty());
    EXPECT_EQ(content.refusals.size(), 1u);
    EXPECT_THAT(content.status, IsOk());
  }
}

}  // namespace
}  // namespace fuseline::cache
