#include "server/service/request_id.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace fuseline::service {
namespace {

TEST(RequestIdTest, OnlySafeTextIsValid) {
  for (const char* id : {"a", "0123-abc_DEF.x:y"}) EXPECT_TRUE(IsValidRequestId(id)) << id;
  for (const char* id : {"", "a b", "a\nb", "a\"b", "\xc3\xbc", "a=b"}) EXPECT_FALSE(IsValidRequestId(id)) << id;
  EXPECT_TRUE(IsValidRequestId(std::string(128, 'a')));
  EXPECT_FALSE(IsValidRequestId(std::string(129, 'a')));
}

TEST(RequestIdTest, NewIdsAreValidAndDiffer) {
  std::set<std::string> ids;
  for (int i = 0; i < 100; ++i) {
    ids.insert(NewRequestId());
    EXPECT_EQ(ids.begin()->size(), 32u);
    EXPECT_TRUE(IsValidRequestId(*ids.begin()));
  }
  EXPECT_EQ(ids.size(), 100u);
}

}  // namespace
}  // namespace fuseline::service
