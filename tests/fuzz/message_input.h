// Messages as fuzzers read and write them: text format after a first line "# proto-text", so that corpora can be read
// and written by people; anything else is the wire form.
// Pipeline: bytes -> ParseMessage -> message -> the code under test; MutateMessage works on the same bytes.
// Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "google/protobuf/message.h"

namespace fuseline::fuzz {

inline constexpr std::string_view kProtoTextHeader = "# proto-text\n";

inline bool IsProtoText(std::string_view bytes) { return bytes.substr(0, kProtoTextHeader.size()) == kProtoTextHeader; }

// False where the bytes are no such message, or its strings could not have travelled (they are not UTF-8).
bool ParseMessage(std::string_view bytes, google::protobuf::Message* message);
std::string PrintMessage(const google::protobuf::Message& message);

// The engine's own mutator, LLVMFuzzerMutate.
using ByteMutator = size_t (*)(uint8_t* data, size_t size, size_t max_size);

// Changes the message that the bytes hold, in its structure: fields set, cleared and copied from elsewhere in it,
// elements added, removed and moved. Bytes that hold none, and now and then any, are changed as bytes. `words`: what
// strings may become besides those that occur. The result is at most `max_size` long. `prototype` gives the type.
size_t MutateMessage(const google::protobuf::Message& prototype, const std::vector<std::string>& words,
                     ByteMutator mutate_bytes, uint8_t* data, size_t size, size_t max_size, uint64_t seed);

// Puts a part of the second message in the place of a part of the first that has the same type. 0 where there is none.
size_t CrossMessages(const google::protobuf::Message& prototype, std::string_view first, std::string_view second,
                     uint8_t* out, size_t max_size, uint64_t seed);

}  // namespace fuseline::fuzz
