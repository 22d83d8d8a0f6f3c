#include "client/launch/sha256.h"

#include <gtest/gtest.h>

#include <string>

#include "common/fingerprint/fingerprint.h"

namespace fuseline::local {
namespace {

TEST(Sha256Test, PublishedDigestsAreMet) {
  EXPECT_EQ(HexOf(Sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(HexOf(Sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256Test, EveryLengthAroundABlockAgreesWithLibcrypto) {
  std::string bytes;
  for (int n = 0; n < 200; ++n) {
    EXPECT_EQ(Sha256(bytes), ComputeDigest(bytes).sha256) << n << " bytes";
    bytes += static_cast<char>(n * 37);
  }
}

}  // namespace
}  // namespace fuseline::local
