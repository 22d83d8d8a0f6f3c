#include "common/tensor/npy.h"

#include <cstdio>
#include <string>

#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline {
namespace {

using testing::StatusIs;

std::string Npy(const std::string& header, const std::string& data, char version = 1) {
  std::string bytes = "\x93NUMPY";
  bytes.push_back(version);
  bytes.push_back('\0');
  bytes.push_back(static_cast<char>(header.size() & 0xff));
  bytes.push_back(static_cast<char>(header.size() >> 8));
  if (version > 1) bytes.append(2, '\0');
  return bytes + header + data;
}

TEST(NpyTest, EveryDTypeAndRankReadsBackEqual) {
  for (int d = 1; d < kDTypeCount; ++d) {
    const DType dtype = static_cast<DType>(d);
    for (const Shape& shape : {Shape{}, Shape{5}, Shape{2, 3}, Shape{0, 4}, Shape{2, 1, 3}}) {
      Tensor t = Tensor::Allocate(dtype, shape);
      for (int64_t i = 0; i < t.element_count(); ++i) t.SetDouble(i, static_cast<double>(i % 7));
      const std::string bytes = FormatNpy(t);
      EXPECT_EQ((bytes.size() - static_cast<size_t>(t.size_bytes())) % 64, 0u);
      const auto read = ParseNpy(bytes, IsF8(dtype) ? std::optional<DType>(dtype) : std::nullopt);
      ASSERT_OK(read) << DTypeName(dtype);
      EXPECT_EQ(read->dtype(), dtype);
      EXPECT_EQ(read->shape(), shape);
      EXPECT_EQ(read->bytes(), t.bytes());
    }
  }
}

TEST(NpyTest, HeaderIsTheOneThatNumpyWrites) {
  Tensor t = Tensor::Allocate(DType::kBF16, {3});
  for (int64_t i = 0; i < 3; ++i) t.SetDouble(i, 1);
  const std::string bytes = FormatNpy(t);
  EXPECT_NE(bytes.find("{'descr': '<V2', 'fortran_order': False, 'shape': (3,), }"), std::string::npos);
}

TEST(NpyTest, FortranOrderIsConverted) {
  const std::string data = {1, 4, 2, 5, 3, 6};  // columns of [[1, 2, 3], [4, 5, 6]]
  const auto t = ParseNpy(Npy("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }", data));
  ASSERT_OK(t);
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(t->GetInt(i), i + 1);
}

TEST(NpyTest, BigEndianAndLaterVersionsAreRead) {
  const auto t =
      ParseNpy(Npy("{'shape': (2,), 'fortran_order': False, 'descr': '>i2'}", std::string("\x01\x02\xff\xfe", 4), 2));
  ASSERT_OK(t);
  EXPECT_EQ(t->GetInt(0), 0x102);
  EXPECT_EQ(t->GetInt(1), -2);
}

TEST(NpyTest, BytesCanBeTakenForAnotherDTypeOfTheirSize) {
  const std::string file = Npy("{'descr': '<u2', 'fortran_order': False, 'shape': (), }", std::string("\x80\x3f", 2));
  EXPECT_THAT(ParseNpy(file), StatusIs(absl::StatusCode::kInvalidArgument, "could be several"));
  const auto t = ParseNpy(file, DType::kBF16);
  ASSERT_OK(t);
  EXPECT_EQ(t->GetDouble(0), 1.0);
  EXPECT_THAT(ParseNpy(file, DType::kF32), StatusIs(absl::StatusCode::kInvalidArgument, "can't be taken for f32"));
}

struct BadCase {
  const char* what;
  std::string bytes;
  const char* message;
};

TEST(NpyTest, HostileFilesAreRefused) {
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
  const BadCase cases[] = {
      {"empty", "", "magic"},
      {"not npy", "PK\x03\x04 and more bytes", "magic"},
      {"truncated header", Npy(good, "").substr(0, 20), "ends in the header"},
      {"too few bytes", Npy(good, "1234567"), "8 bytes of data, the file has 7"},
      {"too many bytes", Npy(good, "123456789"), "8 bytes of data, the file has 9"},
      {"huge shape", Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", ""),
       "too large"},
      {"overflowing size", Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999,), }", ""),
       "malformed"},
      {"huge beside zero",
       Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 281474976710656, 281474976710656), }", ""),
       "too large"},
      {"negative size", Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", ""), "malformed"},
      {"no shape", Npy("{'descr': '<f4', 'fortran_order': False, }", ""), "malformed"},
      {"key twice", Npy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (), }", "1234"),
       "malformed"},
      {"open string", Npy("{'descr': '<f4", ""), "structured"},
      {"structured", Npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (), }", "1234"), "structured"},
      {"objects", Npy("{'descr': '|O', 'fortran_order': False, 'shape': (), }", "1234"), "'|O' is not supported"},
      {"complex", Npy("{'descr': '<c8', 'fortran_order': False, 'shape': (), }", "12345678"), "'<c8' is not supported"},
      {"text after the header", Npy(good + "x", "12345678"), "malformed"},
      {"version 9", Npy(good, "12345678", 9), "version 9"},
  };
  for (const BadCase& c : cases)
    EXPECT_THAT(ParseNpy(c.bytes), StatusIs(absl::StatusCode::kInvalidArgument, c.message)) << c.what;
}

TEST(NpyTest, FilesAreWrittenAndRead) {
  const std::string path = ::testing::TempDir() + "/npy_test.npy";
  Tensor t = Tensor::Allocate(DType::kF64, {2, 2});
  for (int64_t i = 0; i < 4; ++i) t.SetDouble(i, 0.1 * static_cast<double>(i));
  ASSERT_OK(WriteNpyFile(path, t));
  const auto read = ReadNpyFile(path);
  ASSERT_OK(read);
  EXPECT_EQ(read->bytes(), t.bytes());
  std::remove(path.c_str());
  EXPECT_THAT(ReadNpyFile(path), StatusIs(absl::StatusCode::kNotFound, "npy_test.npy"));
}

}  // namespace
}  // namespace fuseline
