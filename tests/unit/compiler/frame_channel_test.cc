#include "server/compiler/frame_channel.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace fuseline::compiler {
namespace {

class FrameChannelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    channel_ = std::make_unique<FrameChannel>(fds[0]);
    peer_ = fds[1];
  }
  void TearDown() override { ClosePeer(); }
  void ClosePeer() {
    if (peer_ >= 0) close(peer_);
    peer_ = -1;
  }
  void Send(const std::string& bytes) {
    ASSERT_EQ(send(peer_, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  static std::string Header(uint32_t size, FrameType type) {
    std::string bytes(sizeof(size), '\0');
    memcpy(bytes.data(), &size, sizeof(size));
    return bytes + static_cast<char>(type);
  }
  static FrameWait Within(absl::Duration limit) {
    FrameWait wait;
    wait.deadline = absl::Now() + limit;
    return wait;
  }

  std::unique_ptr<FrameChannel> channel_;
  int peer_ = -1;
  std::string payload_;
};

TEST_F(FrameChannelTest, LongPayloadsGoBothWays) {
  const std::string sent = std::string(5 << 20, 'a') + "end";
  FrameChannel other(dup(peer_));
  std::thread echo([&] {
    std::string got;
    ASSERT_EQ(other.Read(FrameType::kRequest, got), FrameResult::kOk);
    ASSERT_EQ(other.Write(FrameType::kReply, got), FrameResult::kOk);
  });
  EXPECT_EQ(channel_->Write(FrameType::kRequest, sent), FrameResult::kOk);
  EXPECT_EQ(channel_->Read(FrameType::kReply, payload_), FrameResult::kOk);
  echo.join();
  EXPECT_TRUE(payload_ == sent);
}

TEST_F(FrameChannelTest, BytesThatComeOneByOneAndFramesThatComeTogetherAreTakenApart) {
  const std::string bytes =
      Header(3, FrameType::kReply) + "abc" + Header(0, FrameType::kBegun) + Header(1, FrameType::kReply) + "d";
  std::thread sender([&] {
    for (const char c : bytes.substr(0, 6)) {
      Send(std::string(1, c));
      absl::SleepFor(absl::Milliseconds(1));
    }
    Send(bytes.substr(6));
  });
  EXPECT_EQ(channel_->Read(FrameType::kReply, payload_), FrameResult::kOk);
  EXPECT_EQ(payload_, "abc");
  EXPECT_EQ(channel_->Read(FrameType::kBegun, payload_), FrameResult::kOk);
  EXPECT_EQ(payload_, "");
  EXPECT_EQ(channel_->Read(FrameType::kReply, payload_), FrameResult::kOk);
  EXPECT_EQ(payload_, "d");
  sender.join();
}

TEST_F(FrameChannelTest, EndOfTheConnectionIsSeenBetweenAndWithinFrames) {
  Send(Header(3, FrameType::kReply) + "ab");
  ClosePeer();
  EXPECT_EQ(channel_->Read(FrameType::kReply, payload_), FrameResult::kClosed);
  EXPECT_EQ(channel_->Read(FrameType::kReply, payload_), FrameResult::kClosed);
  EXPECT_EQ(channel_->Write(FrameType::kRequest, "x"), FrameResult::kClosed);
}

TEST_F(FrameChannelTest, OtherTypesAndLengthsBeyondTheBoundAreMalformed) {
  Send(Header(0, FrameType::kBegun));
  EXPECT_EQ(channel_->Read(FrameType::kReply, payload_), FrameResult::kMalformed);
  Send(Header(kMaxFrameBytes + 1, FrameType::kReply));
  EXPECT_EQ(channel_->Read(FrameType::kReply, payload_), FrameResult::kMalformed);
}

TEST_F(FrameChannelTest, ClaimedLengthReservesNoMemoryBeforeBytesCome) {
  Send(Header(kMaxFrameBytes, FrameType::kReply) + "abc");
  EXPECT_EQ(channel_->Read(FrameType::kReply, payload_, Within(absl::Milliseconds(50))), FrameResult::kTimedOut);
  EXPECT_LT(payload_.capacity(), 4u << 20);
}

TEST_F(FrameChannelTest, DeadlineAndGivingUpEndTheWait) {
  EXPECT_EQ(channel_->Read(FrameType::kReply, payload_, Within(absl::Milliseconds(30))), FrameResult::kTimedOut);
  Send(Header(3, FrameType::kReply) + "ab");
  EXPECT_EQ(channel_->Read(FrameType::kReply, payload_, Within(absl::Milliseconds(30))), FrameResult::kTimedOut);
  // Nobody reads, so the socket's buffer fills up.
  EXPECT_EQ(channel_->Write(FrameType::kRequest, std::string(10 << 20, 'x'), Within(absl::Milliseconds(30))),
            FrameResult::kTimedOut);
  int asked = 0;
  FrameWait wait;
  wait.give_up = [&asked] { return ++asked == 3; };
  EXPECT_EQ(channel_->Read(FrameType::kReply, payload_, wait), FrameResult::kGivenUp);
  EXPECT_EQ(asked, 3);
}

TEST_F(FrameChannelTest, InputIsSeenWithoutWaiting) {
  EXPECT_FALSE(channel_->HasInput());
  Send("x");
  EXPECT_TRUE(channel_->HasInput());
}

TEST_F(FrameChannelTest, ClosedConnectionCountsAsInput) {
  ClosePeer();
  EXPECT_TRUE(channel_->HasInput());
}

}  // namespace
}  // namespace fuseline::compiler
