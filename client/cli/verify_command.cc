// fuseline verify CASE…: runs case files against their expected values.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "client/cli/case_runner.h"
#include "client/cli/command.h"
#include "client/cli/json_output.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::cli {
namespace {

struct VerifyFlags {
  std::vector<std::string> cases;
  int jobs = 1;
  bool quiet = false;
  CompileFlags compile;
};

// The files, with folders replaced by the .json files in and below them, sorted.
absl::StatusOr<std::vector<std::string>> FindCases(const std::vector<std::string>& arguments) {
  namespace fs = std::filesystem;
  std::vector<std::string> paths;
  for (const std::string& argument : arguments) {
    std::error_code error;
    if (!fs::is_directory(argument, error)) {
      paths.push_back(argument);
      continue;
    }
    std::vector<std::string> found;
    fs::recursive_directory_iterator it(argument, error);
    for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
      if (it->path().extension() == ".json") found.push_back(it->path().string());
    }
    if (error) {
      return MakeError(absl::StatusCode::kNotFound, ErrorReason::kInputOutput, argument,
                       absl::StrCat("can't read '", argument, "': ", error.message()));
    }
    std::sort(found.begin(), found.end());
    paths.insert(paths.end(), found.begin(), found.end());
  }
  if (paths.empty()) return InvalidArgument(ErrorReason::kOptionInvalid, "cases", "there is no case file there");
  return paths;
}

const char* VerdictName(CaseOutcome::Verdict verdict) {
  switch (verdict) {
    case CaseOutcome::Verdict::kPass:
      return "PASS";
    case CaseOutcome::Verdict::kFail:
      return "FAIL";
    case CaseOutcome::Verdict::kSkip:
      return "SKIP";
  }
  return "";
}

// Runs the cases on `jobs` threads, and hands the outcomes over in the files' order as soon as all before them are
// done.
class CasePool {
 public:
  CasePool(Backend& backend, const std::vector<std::string>& paths, const Target& target, const CompileFlags& flags)
      : backend_(backend),
        paths_(paths),
        target_(target),
        flags_(flags),
        outcomes_(paths.size()),
        done_(paths.size(), false) {}

  template <typename OnOutcome>
  void Run(int jobs, const OnOutcome& on_outcome) {
    std::vector<std::thread> threads;
    for (int i = 0; i < std::min<int>(jobs, static_cast<int>(paths_.size())); ++i)
      threads.emplace_back([this] { Work(); });
    for (size_t i = 0; i < paths_.size(); ++i) {
      {
        absl::MutexLock lock(&mutex_);
        while (!done_[i]) changed_.Wait(&mutex_);
      }
      // Not touched by the workers any more.
      on_outcome(i, outcomes_[i]);
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  void Work() {
    while (true) {
      const size_t i = next_.fetch_add(1);
      if (i >= paths_.size()) return;
      outcomes_[i] = RunCase(backend_, paths_[i], target_, flags_);
      absl::MutexLock lock(&mutex_);
      done_[i] = true;
      changed_.Signal();
    }
  }

  Backend& backend_;
  const std::vector<std::string>& paths_;
  const Target target_;
  const CompileFlags& flags_;
  std::vector<CaseOutcome> outcomes_;  // element i is a worker's until done_[i]
  std::atomic<size_t> next_ = 0;
  absl::Mutex mutex_;
  absl::CondVar changed_;
  std::vector<bool> done_ ABSL_GUARDED_BY(mutex_);
};

// "not supported: 41 (matmul 20, concat 12)", the most frequent first.
std::string SkipText(const std::map<std::string, int>& skipped) {
  std::vector<std::pair<int, std::string>> counts;
  int total = 0;
  for (const auto& [op, count] : skipped) {
    counts.emplace_back(-count, op);
    total += count;
  }
  std::sort(counts.begin(), counts.end());
  std::vector<std::string> parts;
  for (const auto& [count, op] : counts) parts.push_back(absl::StrCat(op, " ", -count));
  return absl::StrCat("not supported: ", total, " (", absl::StrJoin(parts, ", "), ")");
}

Json OutcomeJson(const CaseOutcome& outcome) {
  Json outputs = Json::array();
  for (const OutputComparison& output : outcome.outputs) outputs.push_back(ComparisonJson(output));
  return {{"path", outcome.path},
          {"name", outcome.name},
          {"verdict", VerdictName(outcome.verdict)},
          {"detail", outcome.detail},
          {"skipped_for", outcome.skipped_for},
          {"outputs", std::move(outputs)}};
}

absl::StatusOr<int> RunVerify(const VerifyFlags& flags, CommandContext& context) {
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<std::string> paths, FindCases(flags.cases));
  FUSELINE_ASSIGN_OR_RETURN(const Target target, context.ResolveTarget(flags.compile.target));
  FUSELINE_ASSIGN_OR_RETURN(Backend * backend, context.GetBackend());
  int counts[3] = {0, 0, 0};
  std::map<std::string, int> skipped;
  Json cases = Json::array();
  CasePool pool(*backend, paths, target, flags.compile);
  pool.Run(flags.jobs, [&](size_t i, const CaseOutcome& outcome) {
    ++counts[static_cast<int>(outcome.verdict)];
    if (outcome.verdict == CaseOutcome::Verdict::kSkip) ++skipped[outcome.skipped_for];
    if (context.json()) {
      cases.push_back(OutcomeJson(outcome));
    } else if (!flags.quiet || outcome.verdict == CaseOutcome::Verdict::kFail) {
      context.ClearProgress();
      std::cout << VerdictName(outcome.verdict) << " " << outcome.path;
      if (!outcome.detail.empty()) std::cout << ": " << outcome.detail;
      std::cout << "\n";
    }
    context.Progress(absl::StrCat(i + 1, " of ", paths.size(), " cases"));
  });
  context.ClearProgress();
  const int passed = counts[static_cast<int>(CaseOutcome::Verdict::kPass)];
  const int failed = counts[static_cast<int>(CaseOutcome::Verdict::kFail)];
  const int skips = counts[static_cast<int>(CaseOutcome::Verdict::kSkip)];
  if (context.json()) {
    Json json = {{"target", target.ToString()}, {"passed", passed}, {"failed", failed}, {"skipped", skips}};
    json["skipped_by_op"] = skipped;
    json["cases"] = std::move(cases);
    PrintJson(json);
  } else {
    if (skips > 0) std::cout << SkipText(skipped) << "\n";
    std::cout << passed << " passed, " << failed << " failed, " << skips << " skipped" << std::endl;
  }
  return failed > 0 ? 1 : 0;
}

}  // namespace

void RegisterVerifyCommand(CLI::App& app, const SetBody& set_body) {
  auto flags = std::make_shared<VerifyFlags>();
  CLI::App* command = app.add_subcommand("verify", "run case files against their expected values");
  command->add_option("cases", flags->cases, "case files, or folders of them")->required();
  command->add_option("--jobs,-j", flags->jobs, "cases at a time")->check(CLI::Range(1, 256))->capture_default_str();
  command->add_flag("--quiet,-q", flags->quiet, "print only what fails");
  AddCompileFlags(*command, flags->compile);
  command->callback([=] { set_body([flags](CommandContext& context) { return RunVerify(*flags, context); }); });
}

}  // namespace fuseline::cli
