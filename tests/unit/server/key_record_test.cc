#include "server/cache/key_record.h"

#include <string>

#include "common/ir/canonical.h"
#include "common/ir/text_form.h"
#include "common/ir/verify_graph.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/server/test_artifacts.h"

namespace fuseline::cache {
namespace {

using ::fuseline::testing::IsOk;
using ::fuseline::testing::KeyOf;

FingerprintInputs InputsOf(const std::string& text, const std::string& identity = "compiler 1") {
  absl::StatusOr<Graph> graph = ParseGraphText(text);
  EXPECT_THAT(graph, IsOk());
  if (!graph.ok()) return {};
  EXPECT_THAT(VerifyGraph(*graph), IsOk());
  return {CanonicalBytes(Canonicalize(*graph)), Target::Cpu(), {}, identity};
}

KeyRecord RecordOf(int n, const FingerprintInputs& inputs) { return MakeKeyRecord(KeyOf(n), inputs); }

constexpr char kNeg[] = "graph g(x: f32[4]) {\n  %t = neg(x)\n  return y = %t\n}";
constexpr char kNegLarger[] = "graph g(x: f32[8]) {\n  %t = neg(x)\n  return y = %t\n}";
constexpr char kExp[] = "graph g(x: f32[4]) {\n  %t = exp(x)\n  return y = %t\n}";

TEST(KeyRecordTest, EncodesAndDecodes) {
  const KeyRecord record = RecordOf(1, InputsOf(kNeg));
  const auto decoded = DecodeKeyRecord(EncodeKeyRecord(record));
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(decoded->fingerprint, record.fingerprint);
  EXPECT_EQ(decoded->fields, record.fields);
  EXPECT_FALSE(DecodeKeyRecord("").ok());
  std::string other = EncodeKeyRecord(record);
  other[0] = 2;
  EXPECT_FALSE(DecodeKeyRecord(other).ok());
  other[0] = 1;
  EXPECT_TRUE(DecodeKeyRecord(other).ok());
  other.push_back('x');
  EXPECT_FALSE(DecodeKeyRecord(other).ok());
}

// The same ops at another size are nearer than other ops at the same size, and one field is nearer than either.
TEST(KeyRecordTest, NearestHasTheSameOpsThenTheSameInputsThenTheMostFields) {
  const KeyRecord wanted = RecordOf(1, InputsOf(kNeg));
  NearestEntry nearest;
  TakeNearer(wanted, RecordOf(1, InputsOf(kNeg)), nearest);  // itself
  EXPECT_EQ(nearest.nearness, 0);
  TakeNearer(wanted, RecordOf(2, InputsOf(kExp)), nearest);
  EXPECT_EQ(nearest.key, KeyOf(2));
  TakeNearer(wanted, RecordOf(3, InputsOf(kNegLarger)), nearest);
  EXPECT_EQ(nearest.key, KeyOf(3));
  TakeNearer(wanted, RecordOf(4, InputsOf(kNeg, "compiler 2")), nearest);
  EXPECT_EQ(nearest.key, KeyOf(4));
  TakeNearer(wanted, RecordOf(5, InputsOf(kExp)), nearest);
  EXPECT_EQ(nearest.key, KeyOf(4));
  EXPECT_EQ(nearest.compared, 4);
}

}  // namespace
}  // namespace fuseline::cache
