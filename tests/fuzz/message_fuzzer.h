// FUSELINE_MESSAGE_FUZZER(type, words): makes libFuzzer change the inputs of this fuzzer as messages of `type`
// (message_input.h). `words` is a function that returns what strings may become. Nothing in builds without libFuzzer.
#pragma once

#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/message_input.h"

#if defined(FUSELINE_FUZZ) && !defined(FUSELINE_FUZZ_REPLAY)
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

#define FUSELINE_MESSAGE_FUZZER(type, words)                                                                          \
  extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {         \
    static const std::vector<std::string> kWords = words();                                                           \
    return ::fuseline::fuzz::MutateMessage(type::default_instance(), kWords, LLVMFuzzerMutate, data, size, max_size,  \
                                           seed);                                                                     \
  }                                                                                                                   \
  extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* first, size_t first_size, const uint8_t* second,         \
                                              size_t second_size, uint8_t* out, size_t max_size, unsigned int seed) { \
    return ::fuseline::fuzz::CrossMessages(type::default_instance(), ::fuseline::fuzz::AsText(first, first_size),     \
                                           ::fuseline::fuzz::AsText(second, second_size), out, max_size, seed);       \
  }
#else
#define FUSELINE_MESSAGE_FUZZER(type, words)
#endif
