// fuseline cache stats|export|import|evict.
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/command.h"
#include "client/cli/json_output.h"
#include "client/cli/text_output.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::cli {
namespace {

absl::StatusOr<int> RunCacheStats(CommandContext& context) {
  FUSELINE_ASSIGN_OR_RETURN(Backend * backend, context.GetBackend());
  FUSELINE_ASSIGN_OR_RETURN(const CacheStats stats, backend->GetCacheStats());
  if (context.json()) {
    Json levels = Json::array();
    for (const client::CacheLevelStats& l : stats.levels) {
      levels.push_back({{"level", l.level},
                        {"entries", l.entries},
                        {"size_bytes", l.size_bytes},
                        {"hits", l.hits},
                        {"misses", l.misses},
                        {"corrupt", l.corrupt},
                        {"evictions", l.evictions},
                        {"errors", l.errors}});
    }
    PrintJson({{"builds", stats.builds}, {"joins", stats.joins}, {"levels", std::move(levels)}});
    return 0;
  }
  std::cout << "builds " << stats.builds << ", joined " << stats.joins << "\n";
  std::cout << absl::StreamFormat("%-10s %8s %10s %8s %8s %8s %10s %7s\n", "level", "entries", "size", "hits", "misses",
                                  "corrupt", "evictions", "errors");
  for (const client::CacheLevelStats& l : stats.levels) {
    std::cout << absl::StreamFormat("%-10s %8d %10s %8d %8d %8d %10d %7d\n", l.level, l.entries,
                                    BytesText(static_cast<double>(l.size_bytes)), l.hits, l.misses, l.corrupt,
                                    l.evictions, l.errors);
  }
  std::cout << std::flush;
  return 0;
}

}  // namespace

void RegisterCacheCommand(CLI::App& app, const SetBody& set_body) {
  CLI::App* command = app.add_subcommand("cache", "the kernel cache");
  command->require_subcommand(1);
  command->add_subcommand("stats", "entries, hits and misses of each level")->callback([=] {
    set_body(RunCacheStats);
  });
  for (const char* later : {"export", "import", "evict"}) {
    CLI::App* sub = command->add_subcommand(later, "(comes later)");
    auto ignored = std::make_shared<std::vector<std::string>>();
    sub->add_option("arguments", *ignored, "(ignored)");
    sub->callback([=] {
      set_body([later, ignored](CommandContext&) -> absl::StatusOr<int> {
        return Unimplemented("cache", absl::StrCat("'cache ", later, "' comes later"));
      });
    });
  }
}

}  // namespace fuseline::cli
