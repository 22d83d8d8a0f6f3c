#include "common/fingerprint/fingerprint.h"

#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline {
namespace {

using ::fuseline::testing::StatusIs;

FingerprintInputs Inputs() { return {"graph bytes", Target::Cuda(90), CompileOptions(), "identity"}; }

TEST(FingerprintTest, DigestIsSha256) {
  // The two vectors of FIPS 180-4's examples.
  EXPECT_EQ(ComputeDigest("").ToHex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(ComputeDigest("abc").ToHex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(ComputeDigest("abc").size_bytes, 3);
}

TEST(FingerprintTest, KeyIsTheSameInEveryVersion) {
  // Computed by another SHA-256 over the encoding written out by hand. A change here invalidates every cache entry:
  // bump the magic in fingerprint.cc, and know that you do.
  EXPECT_EQ(ComputeFingerprint(Inputs()).ToHex(), "94160614aefea7353cd71c007182e6751125919e6e62e3db086568b587748deb");
}

TEST(FingerprintTest, EveryFieldChangesTheKey) {
  std::vector<FingerprintInputs> variants(1, Inputs());
  const auto vary = [&variants](auto change) {
    variants.push_back(Inputs());
    change(variants.back());
  };
  vary([](FingerprintInputs& i) { i.canonical_graph = "graph byteS"; });
  vary([](FingerprintInputs& i) { i.canonical_graph = ""; });
  vary([](FingerprintInputs& i) { i.target = Target::Cpu(); });
  vary([](FingerprintInputs& i) { i.target = Target::Cuda(80); });
  vary([](FingerprintInputs& i) { i.target = Target::Cuda(90, true); });
  vary([](FingerprintInputs& i) { i.options.numerics = Numerics::kEager; });
  vary([](FingerprintInputs& i) { i.options.fast_math = true; });
  vary([](FingerprintInputs& i) { i.options.allow_tf32 = true; });
  vary([](FingerprintInputs& i) { i.options.fuse = false; });
  vary([](FingerprintInputs& i) { i.compiler_identity = "other"; });
  std::set<Fingerprint> keys;
  for (const FingerprintInputs& inputs : variants) keys.insert(ComputeFingerprint(inputs));
  EXPECT_EQ(keys.size(), variants.size());
  EXPECT_EQ(ComputeFingerprint(Inputs()), ComputeFingerprint(Inputs()));
}

TEST(FingerprintTest, BytesCannotMoveBetweenFields) {
  FingerprintInputs a = Inputs();
  FingerprintInputs b = Inputs();
  a.canonical_graph = std::string("xy");
  a.compiler_identity = std::string("z");
  b.canonical_graph = std::string("x");
  b.compiler_identity = std::string("yz");
  EXPECT_FALSE(ComputeFingerprint(a) == ComputeFingerprint(b));
}

TEST(FingerprintTest, HexReadsBack) {
  const Fingerprint fingerprint = ComputeFingerprint(Inputs());
  const absl::StatusOr<Fingerprint> back = ParseFingerprint(fingerprint.ToHex());
  ASSERT_OK(back);
  EXPECT_EQ(*back, fingerprint);
  ASSERT_OK(ParseFingerprint(std::string(64, 'A')));
  EXPECT_EQ(ParseFingerprint(std::string(64, 'A'))->ToHex(), std::string(64, 'a'));
  for (const std::string& text :
       {std::string(), std::string(63, '0'), std::string(65, '0'), std::string(63, '0') + "g", std::string(64, ' ')}) {
    EXPECT_THAT(ParseFingerprint(text), StatusIs(absl::StatusCode::kInvalidArgument, "64 hexadecimal digits")) << text;
  }
}

TEST(FingerprintTest, ExplainedKeyNamesEveryField) {
  const std::vector<KeyField> fields = ExplainKey(Inputs());
  std::vector<std::string> names;
  for (const KeyField& field : fields) {
    names.push_back(field.name);
    EXPECT_EQ(field.digest.size(), 64u);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"graph", "target", "options.numerics", "options.fast_math",
                                             "options.allow_tf32", "options.fuse", "compiler_identity"}));
  EXPECT_EQ(fields[0].value, ComputeDigest("graph bytes").ToHex());
  EXPECT_EQ(fields[1].value, "cuda:sm_90");
  EXPECT_EQ(fields[2].value, "fused");
  EXPECT_EQ(fields[5].value, "true");
  EXPECT_EQ(fields[6].digest, ComputeDigest("identity").ToHex());
}

}  // namespace
}  // namespace fuseline
