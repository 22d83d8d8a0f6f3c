#include "common/tensor/stream/chunk_format.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "fuseline/v1/execute_service.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fuseline {
namespace {

std::string Data(const ChunkView& chunk) {
  std::string data;
  for (const std::string_view piece : chunk.pieces) data.append(piece);
  return data;
}

struct Case {
  std::string name;
  int64_t offset_bytes;
  std::string data;
};

const Case kCases[] = {
    {"", 0, ""},       {"x", 0, "abc"},
    {"", 1, "abc"},    {"a.long/name", 127, std::string(128, 'q')},
    {"x", 128, "abc"}, {"x", int64_t{1} << 62, std::string(100'000, 'z')},
    {"x", -1, "abc"},
};

v1::PutTensorRequest Message(const Case& c) {
  v1::PutTensorRequest message;
  message.mutable_chunk()->set_name(c.name);
  message.mutable_chunk()->set_offset_bytes(c.offset_bytes);
  message.mutable_chunk()->set_data(c.data);
  return message;
}

TEST(ChunkFormatTest, HeadAndDataAreWhatProtobufMakes) {
  for (const Case& c : kCases) {
    EXPECT_EQ(absl::StrCat(ChunkHead(c.name, c.offset_bytes, static_cast<int64_t>(c.data.size())), c.data),
              Message(c).SerializeAsString())
        << c.name << " " << c.offset_bytes;
  }
}

TEST(ChunkFormatTest, WhatProtobufMakesIsReadWhereverItIsSplit) {
  for (const Case& c : kCases) {
    const std::string bytes = Message(c).SerializeAsString();
    const std::string_view whole = bytes;
    for (size_t cut = 0; cut <= std::min<size_t>(whole.size(), 40); ++cut) {
      ChunkView chunk;
      ASSERT_TRUE(ReadChunk({whole.substr(0, cut), std::string_view(), whole.substr(cut)}, chunk)) << c.name << cut;
      EXPECT_EQ(chunk.name, c.name);
      EXPECT_EQ(chunk.offset_bytes, c.offset_bytes);
      EXPECT_EQ(chunk.size_bytes, static_cast<int64_t>(c.data.size()));
      EXPECT_EQ(Data(chunk), c.data);
    }
  }
}

TEST(ChunkFormatTest, FieldsInAnotherOrderAreRead) {
  ChunkView chunk;
  ASSERT_TRUE(ReadChunk({std::string_view("\x12\x08\x1a\x02hi\x10\x05\x0a\x00", 10)}, chunk));
  EXPECT_EQ(chunk.offset_bytes, 5);
  EXPECT_EQ(Data(chunk), "hi");
}

TEST(ChunkFormatTest, CutOffOrUnusualMessagesAreLeftToTheParser) {
  const std::string bytes = Message({"x", 300, "abc"}).SerializeAsString();
  ChunkView chunk;
  EXPECT_FALSE(ReadChunk({}, chunk));
  for (size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(ReadChunk({bytes.substr(0, size)}, chunk)) << size;
  v1::PutTensorRequest header;
  header.mutable_header()->set_handle("h");
  const std::string header_bytes = header.SerializeAsString();
  const std::string cases[] = {
      header_bytes,
      bytes + bytes,                                       // two chunks: protobuf merges them
      bytes + header_bytes,                                // the last one of a oneof counts
      std::string("\x12\x06\x1a\x01q\x1a\x01r", 8),        // data twice
      std::string("\x12\x04\x22\x02hi", 6),                // an unknown field
      std::string("\x12\x03\x1a\x09q", 5),                 // data longer than its message
      "\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",  // a varint without an end
  };
  for (const std::string& message : cases) EXPECT_FALSE(ReadChunk({message}, chunk)) << absl::StrCat(message.size());
}

}  // namespace
}  // namespace fuseline
