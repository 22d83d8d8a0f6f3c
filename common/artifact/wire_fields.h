// Walks over the fields of one message in protobuf's wire form, without protobuf: for readers that must not bring it
// into a process. Source: protobuf.dev/programming-guides/encoding. Groups, which no message of ours has, are
// malformed. Ownership: fields point into the bytes walked over. Units: bytes. Thread-safety: thread-compatible.
// Errors: ok() is false after malformed bytes, and Next has ended. Tested by tests/unit/codec/artifact_reader_test.cc
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace fuseline {

struct WireField {
  enum class Type : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  uint32_t number = 0;
  Type type = Type::kVarint;
  uint64_t value = 0;      // of all but kBytes
  std::string_view bytes;  // of kBytes: text, bytes, a message, packed numbers

  bool is(uint32_t wanted, Type wanted_type) const { return number == wanted && type == wanted_type; }
};

class WireFields {
 public:
  explicit WireFields(std::string_view message) : rest_(message) {}
  // The next field; false at the end and where the bytes are malformed.
  bool Next(WireField& field);
  bool ok() const { return ok_; }

 private:
  bool Malformed();

  std::string_view rest_;
  bool ok_ = true;
};

// Takes a varint from the front of `bytes`; false if there is none.
bool TakeVarint(std::string_view& bytes, uint64_t& value);
// Appends the numbers of an occurrence of a repeated integer field, packed or not; false if it is malformed.
bool AppendVarints(const WireField& field, std::vector<int64_t>& values);
bool AppendVarints(const WireField& field, std::vector<int32_t>& values);

}  // namespace fuseline
