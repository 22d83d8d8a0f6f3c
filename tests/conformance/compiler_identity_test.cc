// The compiler identity: every source that decides what code is made changes it, and nothing about the machine's user,
// folders or name does. And the table of what the other settings have to do with the key.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/ir/text_form.h"
#include "gtest/gtest.h"
#include "server/engine/engine.h"
#include "server/engine/key_scope.h"
#include "tests/testing/program_runner.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::testing {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = FUSELINE_SOURCE_DIR;

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  EXPECT_TRUE(file.good()) << path;
  return bytes.str();
}

std::vector<std::string> DigestedSources() {
  return absl::StrSplit(ReadFile(FUSELINE_CODE_GENERATING_SOURCES), '\n', absl::SkipEmpty());
}

// The sources below `folder`, with its folders.
std::set<std::string> SourcesBelow(const std::string& folder) {
  std::set<std::string> sources;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(kRoot / folder)) {
    const std::string extension = entry.path().extension();
    if (extension == ".cc" || extension == ".h") sources.insert(fs::relative(entry.path(), kRoot));
  }
  return sources;
}

TEST(CompilerIdentityTest, DigestCoversAllThatBuildingAnArtifactIncludes) {
  const std::vector<std::string> list = DigestedSources();
  const std::set<std::string> digested(list.begin(), list.end());
  // What is reached by includes, a header leading to its .cc too.
  std::set<std::string> reached = {"server/engine/build_artifact.cc"};
  for (const char* folder : {"server/lowering", "server/fuser", "server/codegen", "server/compiler", "common/ir/ops"})
    reached.merge(SourcesBelow(folder));
  std::vector<std::string> pending(reached.begin(), reached.end());
  while (!pending.empty()) {
    const std::string source = pending.back();
    pending.pop_back();
    std::vector<std::string> next;
    std::istringstream lines(ReadFile(kRoot / source));
    constexpr std::string_view kInclude = "#include \"";
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind(kInclude, 0) == 0) next.push_back(line.substr(kInclude.size(), line.rfind('"') - kInclude.size()));
    }
    if (source.ends_with(".h")) next.push_back(source.substr(0, source.size() - 1) + "cc");
    for (const std::string& path : next) {
      if (fs::exists(kRoot / path) && reached.insert(path).second) pending.push_back(path);
    }
  }
  EXPECT_GT(reached.size(), 100u);
  EXPECT_TRUE(reached.count("common/ir/ops/reductions.cc"));
  EXPECT_TRUE(reached.count("common/ir/verify_node.cc"));
  for (const std::string& source : reached)
    EXPECT_TRUE(digested.count(source)) << source << ": add its folder to server/engine/CMakeLists.txt";
}

// The digest that the build would put into the engine, over a copy of the sources.
std::string DigestOf(const TemporaryFolder& copy, const std::vector<std::string>& sources) {
  const std::string output = copy.path("digest.h");
  const ProgramResult result =
      RunProgram({FUSELINE_CMAKE, "-D", "OUTPUT=" + output, "-D", "ROOT=" + copy.path(), "-D",
                  "FILES=" + absl::StrJoin(sources, ";"), "-P", kRoot / "cmake/CompilerIdentity.cmake"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::vector<std::string> parts = absl::StrSplit(copy.Read("digest.h"), '"');
  return parts.size() > 1 ? parts[1] : "";
}

TEST(CompilerIdentityTest, OneByteOfAnySourceChangesTheDigest) {
  const TemporaryFolder copy;
  std::vector<std::string> sources = DigestedSources();
  for (const std::string& source : sources) {
    fs::create_directories(fs::path(copy.path(source)).parent_path());
    fs::copy_file(kRoot / source, copy.path(source));
  }
  std::map<std::string, std::string> digests = {{DigestOf(copy, sources), "none"}};
  for (const std::string& source : sources) {
    const std::string text = copy.Read(source);
    std::string changed = text;
    ASSERT_FALSE(changed.empty()) << source;
    changed[changed.size() / 2] = static_cast<char>(changed[changed.size() / 2] ^ 1);
    copy.Write(source, changed);
    const auto [it, is_new] = digests.emplace(DigestOf(copy, sources), source);
    EXPECT_TRUE(is_new) << "a change of " << source << " gives the digest of a change of " << it->second;
    copy.Write(source, text);
  }
  // And so do a file that is left out, and one under another name.
  const std::string last = sources.back();
  sources.pop_back();
  EXPECT_TRUE(digests.emplace(DigestOf(copy, sources), "one less").second);
  fs::copy_file(copy.path(last), copy.path(last + ".cc"));
  sources.push_back(last + ".cc");
  EXPECT_TRUE(digests.emplace(DigestOf(copy, sources), "another name").second);
}

TEST(CompilerIdentityTest, OrderOfTheListDoesNotMatter) {
  const TemporaryFolder copy;
  for (const char* source : {"a.cc", "b.cc", "c.h"}) copy.Write(source, source);
  EXPECT_EQ(DigestOf(copy, {"a.cc", "b.cc", "c.h"}), DigestOf(copy, {"c.h", "a.cc", "b.cc"}));
}

CompileRequest Request() {
  CompileRequest request;
  absl::StatusOr<Graph> graph = ParseGraphText("graph g(x: f32[n, 4]) {\n  %a = mul(x, 2.0)\n  return %a\n}\n");
  EXPECT_OK(graph);
  request.graph = *std::move(graph);
  request.symbols["n"] = 3;
  return request;
}

EngineOptions SmallEngine() {
  EngineOptions options;
  options.executor.use_cuda = false;
  options.executor.cpu_devices = 1;
  return options;
}

// The key that an engine with these settings gives the request.
Fingerprint KeyBy(const EngineOptions& options, const CompileRequest& request = Request()) {
  Fingerprint key;
  absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Create(options);
  EXPECT_OK(engine);
  if (!engine.ok()) return key;
  EXPECT_OK((*engine)->ExplainKey(request, &key));
  (*engine)->Drain();
  return key;
}

TEST(KeyScopeTest, SettingsOutOfTheKeyDoNotChangeIt) {
  const TemporaryFolder folder;
  const Fingerprint key = KeyBy(SmallEngine());
  EngineOptions other = SmallEngine();
  other.cache_dir = folder.path("cache");
  other.cache_memory_bytes = 1 << 20;
  other.cache_disk_bytes = 1 << 20;
  other.compile_threads = 7;
  other.nvrtc_search_paths = {folder.path()};
  other.limits.max_nodes = 10;
  other.limits.max_rank = 3;
  other.limits.max_elements = 100;
  other.limits.max_constant_bytes = 0;
  other.executor.cpu_devices = 2;
  other.executor.cpu_threads = 3;
  other.executor.max_queue = 1;
  other.tensors.capacity_bytes = 0;
  EXPECT_EQ(KeyBy(other).ToHex(), key.ToHex());
  CompileRequest request = Request();
  request.bypass_cache = true;
  EXPECT_EQ(KeyBy(SmallEngine(), request).ToHex(), key.ToHex());
}

TEST(KeyScopeTest, SettingsInTheKeyChangeIt) {
  std::vector<CompileRequest> requests(1, Request());
  const auto vary = [&requests](auto change) {
    requests.push_back(Request());
    change(requests.back());
  };
  vary([](CompileRequest& r) { r.symbols["n"] = 4; });
  vary([](CompileRequest& r) { r.options.numerics = Numerics::kEager; });
  vary([](CompileRequest& r) { r.options.fast_math = true; });
  vary([](CompileRequest& r) { r.options.allow_tf32 = true; });
  vary([](CompileRequest& r) { r.options.fuse = false; });
  vary([](CompileRequest& r) { r.graph.nodes[0].operands[1].literal.f = 3.0; });
  std::set<Fingerprint> keys;
  for (const CompileRequest& request : requests) keys.insert(KeyBy(SmallEngine(), request));
  EXPECT_EQ(keys.size(), requests.size());
}

TEST(KeyScopeTest, HostCompilerIsInTheKeyByWhatItSaysOfItself) {
  // The same compiler under another path is the same; one that reports another version is not.
  const TemporaryFolder folder;
  const std::string wrapper = folder.Write("cxx", "#!/bin/sh\nexec g++ \"$@\"\n");
  const std::string other = folder.Write(
      "other", "#!/bin/sh\ncase \"$*\" in *--version*) echo 'g++ (elsewhere) 99.1';; *) exec g++ \"$@\";; esac\n");
  for (const std::string& script : {wrapper, other}) fs::permissions(script, fs::perms::owner_all);
  EngineOptions options = SmallEngine();
  options.host_compiler = "g++";
  const Fingerprint key = KeyBy(options);
  options.host_compiler = wrapper;
  EXPECT_EQ(KeyBy(options).ToHex(), key.ToHex());
  options.host_compiler = other;
  EXPECT_NE(KeyBy(options).ToHex(), key.ToHex());
}

TEST(KeyScopeTest, EverySettingIsArguedInTheDocumentation) {
  const std::string page = ReadFile(kRoot / "docs/fingerprint.md");
  const auto check = [&page](const char* owner, const auto& table) {
    for (const ScopedSetting& setting : table) {
      EXPECT_NE(page.find(absl::StrCat("`", owner, ".", setting.name, "`")), std::string::npos)
          << "docs/fingerprint.md does not list `" << owner << "." << setting.name << "`";
      EXPECT_NE(std::string(setting.why), "") << setting.name;
    }
  };
  check("CompileRequest", kCompileRequestScopes);
  check("EngineOptions", kEngineOptionScopes);
  check("WorkerOptions", kCompilerWorkerScopes);
  check("GraphLimits", kGraphLimitScopes);
}

// The key as the program prints it, run under `prefix` in `folder` with these variables.
std::string KeyPrinted(const std::string& graph, const std::string& folder, const std::string& prefix,
                       const std::map<std::string, std::string>& environment) {
  const std::string command = absl::StrCat("cd '", folder, "' && ", prefix, " '", FUSELINE_CLI, "' --local explain '",
                                           graph, "' --key --target cpu");
  const ProgramResult result = RunProgram({"/bin/sh", "-c", command}, "", environment);
  EXPECT_EQ(result.exit_code, 0) << command << "\n" << result.err;
  const size_t at = result.out.find("\nkey ");
  return at == std::string::npos ? "" : result.out.substr(at + 5, 64);
}

TEST(CompilerIdentityTest, HostUserAndFolderAreNotInTheKey) {
  const TemporaryFolder folder;
  const std::string text = "graph g(x: f32[3, 4]) {\n  %a = mul(x, 2.0)\n  return y = %a\n}\n";
  const std::string graph = folder.Write("graph.fl", text);
  const std::string key = KeyPrinted(graph, folder.path(), "", {});
  ASSERT_EQ(key.size(), 64u);
  const TemporaryFolder other;
  const std::string copy = other.Write("another name.fl", text);
  fs::create_directory(other.path("tmp"));
  const std::map<std::string, std::string> environment = {{"HOME", other.path()},
                                                          {"USER", "somebody"},
                                                          {"LOGNAME", "somebody"},
                                                          {"HOSTNAME", "elsewhere"},
                                                          {"TMPDIR", other.path("tmp")},
                                                          {"TZ", "Asia/Kolkata"},
                                                          {"LANG", "de_DE.UTF-8"},
                                                          {"LC_ALL", "C.UTF-8"},
                                                          {"XDG_CACHE_HOME", other.path("cache")},
                                                          {"PWD", "/"}};
  EXPECT_EQ(KeyPrinted(copy, other.path("tmp"), "", environment), key);
  // Another user and another host name, where this one may change them.
  for (const char* prefix : {"setpriv --reuid=65534 --regid=65534 --clear-groups",
                             "unshare --uts /bin/sh -c 'hostname elsewhere; exec \"$@\"' sh"}) {
    if (RunProgram({"/bin/sh", "-c", absl::StrCat(prefix, " true")}).exit_code != 0) continue;
    if (RunProgram({"/bin/sh", "-c", absl::StrCat(prefix, " test -r '", graph, "' -a -x '", FUSELINE_CLI, "'")})
            .exit_code != 0)
      continue;
    EXPECT_EQ(KeyPrinted(graph, "/", prefix, {}), key) << prefix;
  }
}

}  // namespace
}  // namespace fuseline::testing
