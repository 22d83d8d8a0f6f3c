#include "server/cache/disk_database.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "common/status/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rocksdb/db.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::cache {
namespace {

namespace fs = std::filesystem;
using ::fuseline::testing::IsOk;
using ::fuseline::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class DiskDatabaseTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = (fs::temp_directory_path() / "fuseline-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(path.data()), nullptr);
    parent_ = path;
    directory_ = path + "/cache";
  }
  void TearDown() override { fs::remove_all(parent_); }

  absl::StatusOr<std::unique_ptr<DiskDatabase>> Open() {
    DiskDatabase::Options options;
    options.report = [this](const std::string& line) { reports_.push_back(line); };
    return DiskDatabase::Open(directory_, options);
  }
  // A database with a table file, closed.
  void Fill() {
    const auto db = Open();
    ASSERT_THAT(db, IsOk());
    ASSERT_TRUE((**db)->Put({}, "k", std::string(100000, 'v')).ok());
    ASSERT_TRUE((**db)->Flush({}).ok());
    ASSERT_TRUE((**db)->Put({}, "k2", "in the log").ok());
  }
  bool HasKey() {
    const auto db = Open();
    EXPECT_THAT(db, IsOk());
    std::string value;
    return db.ok() && (**db)->Get({}, "k", &value).ok();
  }
  std::string FileThatStarts(const std::string& prefix) {
    return Find([&](auto& n) { return n.starts_with(prefix); });
  }
  std::string FileThatEnds(const std::string& suffix) {
    return Find([&](auto& n) { return n.ends_with(suffix); });
  }
  std::string Find(const std::function<bool(const std::string&)>& wanted) {
    for (const auto& entry : fs::directory_iterator(directory_)) {
      if (wanted(entry.path().filename().string())) return entry.path().string();
    }
    ADD_FAILURE() << "no such file in " << directory_;
    return "";
  }
  std::set<std::string> Names() {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_)) names.insert(entry.path().filename().string());
    return names;
  }
  std::vector<std::string> Asides() {
    std::vector<std::string> asides;
    for (const std::string& name : Names()) {
      if (name.starts_with("broken-")) asides.push_back(name);
    }
    return asides;
  }
  static void Write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::trunc) << text; }

  std::string parent_;
  std::string directory_;
  std::vector<std::string> reports_;
};

TEST_F(DiskDatabaseTest, IsFoundAgain) {
  Fill();
  EXPECT_TRUE(HasKey());
  EXPECT_THAT(Asides(), IsEmpty());
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(DiskDatabaseTest, BrokenOneIsMovedAsideAndReported) {
  const struct {
    const char* what;
    std::function<void()> breaks;
  } cases[] = {
      {"CURRENT missing", [&] { fs::remove(directory_ + "/CURRENT"); }},
      {"CURRENT empty", [&] { Write(directory_ + "/CURRENT", ""); }},
      {"CURRENT names nothing", [&] { Write(directory_ + "/CURRENT", "MANIFEST-999999\n"); }},
      {"manifest overwritten", [&] { Write(FileThatStarts("MANIFEST-"), "not a manifest"); }},
      {"manifest empty", [&] { Write(FileThatStarts("MANIFEST-"), ""); }},
      {"manifest missing", [&] { fs::remove(FileThatStarts("MANIFEST-")); }},
      {"table missing", [&] { fs::remove(FileThatEnds(".sst")); }},
      {"table truncated", [&] { fs::resize_file(FileThatEnds(".sst"), 100); }},
      {"table empty", [&] { fs::resize_file(FileThatEnds(".sst"), 0); }},
      {"table overwritten",
       [&] {
         const std::string table = FileThatEnds(".sst");
         Write(table, std::string(fs::file_size(table), 'x'));
       }},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    fs::remove_all(directory_);
    reports_.clear();
    Fill();
    c.breaks();
    EXPECT_FALSE(HasKey());
    ASSERT_THAT(reports_, SizeIs(1));
    EXPECT_THAT(reports_[0], HasSubstr("moved the database to '"));
    ASSERT_THAT(Asides(), SizeIs(1));
    EXPECT_FALSE(fs::is_empty(directory_ + "/" + Asides()[0]));
    Fill();
    EXPECT_TRUE(HasKey());
    EXPECT_THAT(reports_, SizeIs(1));
  }
}

TEST_F(DiskDatabaseTest, LogThatIsCutOffCostsItsTailAlone) {
  Fill();
  const std::string log = FileThatEnds(".log");
  fs::resize_file(log, fs::file_size(log) - 3);
  EXPECT_TRUE(HasKey());
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(DiskDatabaseTest, OtherFormatIsMovedAside) {
  Fill();
  ASSERT_TRUE((**Open())->Put({}, "version", "999").ok());
  EXPECT_FALSE(HasKey());
  ASSERT_THAT(reports_, SizeIs(1));
  EXPECT_THAT(reports_[0], HasSubstr("format version 999, this program's is 1"));
}

TEST_F(DiskDatabaseTest, StartingAnewMovesAGoodOneAside) {
  Fill();
  DiskDatabase::Options options;
  options.start_anew = true;
  ASSERT_THAT(DiskDatabase::Open(directory_, options), IsOk());
  EXPECT_FALSE(HasKey());
  EXPECT_THAT(Asides(), SizeIs(1));
}

TEST_F(DiskDatabaseTest, FilesOfOthersStayWhereTheyAre) {
  Fill();
  Write(directory_ + "/thesis.txt", "years of work");
  fs::create_directory(directory_ + "/photos");
  fs::remove(directory_ + "/CURRENT");
  EXPECT_FALSE(HasKey());
  EXPECT_THAT(Asides(), SizeIs(1));
  EXPECT_EQ(Names().count("thesis.txt"), 1u);
  EXPECT_EQ(Names().count("photos"), 1u);
}

TEST_F(DiskDatabaseTest, ThreeNewestAsidesAreKept) {
  std::vector<std::string> seen;
  for (int i = 0; i < 5; ++i) {
    Fill();
    fs::remove(directory_ + "/CURRENT");
    ASSERT_THAT(Open(), IsOk());
    for (const std::string& aside : Asides()) {
      if (seen.empty() || seen.back() < aside) seen.push_back(aside);
    }
  }
  ASSERT_THAT(seen, SizeIs(5));
  EXPECT_EQ(Asides(), std::vector<std::string>(seen.end() - 3, seen.end()));
  EXPECT_THAT(reports_, SizeIs(7));  // five moved, two removed
  EXPECT_THAT(reports_.back(), HasSubstr("removed '"));
}

TEST_F(DiskDatabaseTest, FolderOfAnotherIsLeftAlone) {
  const struct {
    const char* what;
    std::function<void()> make;
  } cases[] = {
      {"files", [&] { Write(directory_ + "/thesis.txt", "years of work"); }},
      {"folders", [&] { fs::create_directory(directory_ + "/photos"); }},
      {"another program's database",
       [&] {
         rocksdb::Options options;
         options.create_if_missing = true;
         rocksdb::DB* db = nullptr;
         ASSERT_TRUE(rocksdb::DB::Open(options, directory_, &db).ok());
         ASSERT_TRUE(db->Put({}, "theirs", "years of work").ok());
         delete db;
       }},
      {"another program's broken database", [&] { Write(directory_ + "/CURRENT", "years of work"); }},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    fs::remove_all(directory_);
    fs::create_directories(directory_);
    c.make();
    const std::set<std::string> before = Names();
    EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kFailedPrecondition, "left alone"));
    EXPECT_EQ(Names(), before);
  }
  fs::remove_all(directory_);
  Write(directory_, "years of work");
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kFailedPrecondition, "is a file"));
  EXPECT_EQ(fs::file_size(directory_), 13u);
}

TEST_F(DiskDatabaseTest, EmptyFolderAndUnmarkedCacheAreUsed) {
  fs::create_directories(directory_ + "/lost+found");
  Write(directory_ + "/.gitkeep", "");
  Fill();
  fs::remove(directory_ + "/FUSELINE_CACHE");
  EXPECT_TRUE(HasKey());
  EXPECT_EQ(Names().count("FUSELINE_CACHE"), 1u);
}

TEST_F(DiskDatabaseTest, SecondUserIsRefusedUntilTheFirstIsGone) {
  {
    const auto first = Open();
    ASSERT_THAT(first, IsOk());
    EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kUnavailable, "in use"));
  }
  EXPECT_THAT(Open(), IsOk());
  EXPECT_THAT(Asides(), IsEmpty());
}

TEST_F(DiskDatabaseTest, WantOfFileDescriptorsIsAnErrorAndChangesNothing) {
  Fill();
  rlimit usual{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &usual), 0);
  // The next free descriptor, and a few more each time: every place that opens a file fails once.
  const int next = dup(0);
  close(next);
  int failures = 0;
  for (rlim_t limit = static_cast<rlim_t>(next); limit < static_cast<rlim_t>(next) + 12; ++limit) {
    rlimit few = usual;
    few.rlim_cur = limit;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    const absl::Status status = Open().status();
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &usual), 0);
    if (status.ok()) continue;
    ++failures;
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, "")) << limit;
    EXPECT_EQ(GetErrorReason(status), ErrorReason::kInputOutput) << status;
  }
  EXPECT_GE(failures, 3);
  EXPECT_THAT(Asides(), IsEmpty());
  EXPECT_TRUE(HasKey());
}

}  // namespace
}  // namespace fuseline::cache
