// fuseline fmt GRAPH…: the canonical text form. Needs neither server nor engine.
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "client/cli/command.h"
#include "client/cli/file_io.h"
#include "client/cli/graph_file.h"
#include "client/cli/json_output.h"
#include "common/ir/text_form.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::cli {
namespace {

struct FmtFlags {
  std::vector<std::string> graphs;
  bool check = false;
  bool in_place = false;
};

absl::StatusOr<int> RunFmt(const FmtFlags& flags, CommandContext& context) {
  int exit_code = 0;
  Json json = Json::array();
  for (const std::string& path : flags.graphs) {
    if (path == "-" && flags.in_place)
      return InvalidArgument(ErrorReason::kOptionInvalid, "-i", "standard input can't be changed in place");
    // Standard input can be read once only, so what is compared is kept.
    FUSELINE_ASSIGN_OR_RETURN(const std::string before, ReadFile(path));
    FUSELINE_ASSIGN_OR_RETURN(const Graph graph, ParseGraphBytes(path, before));
    const std::string text = PrintGraph(graph);
    const bool canonical = text == before;
    if (flags.check) {
      if (!canonical) exit_code = 1;
      if (!canonical && !context.json()) std::cout << path << " is not in canonical form\n";
    } else if (flags.in_place) {
      if (!canonical) FUSELINE_RETURN_IF_ERROR(WriteFile(path, text));
    } else if (!context.json()) {
      std::cout << text;
    }
    json.push_back({{"path", path}, {"canonical", canonical}, {"text", text}});
  }
  if (context.json()) PrintJson(json);
  std::cout << std::flush;
  return exit_code;
}

}  // namespace

void RegisterFmtCommand(CLI::App& app, const SetBody& set_body) {
  auto flags = std::make_shared<FmtFlags>();
  CLI::App* command = app.add_subcommand("fmt", "print graphs in canonical text form");
  command->add_option("graphs", flags->graphs, "GRAPH…: .fl, .pb, .onnx, or -")->required();
  CLI::Option* check =
      command->add_flag("--check", flags->check, "print nothing; exit code 1 where a graph is not in canonical form");
  command->add_flag("-i,--in-place", flags->in_place, "rewrite the files")->excludes(check);
  command->callback([=] { set_body([flags](CommandContext& context) { return RunFmt(*flags, context); }); });
}

}  // namespace fuseline::cli
