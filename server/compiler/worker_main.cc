// The program fuseline-compiler-worker: a compiler worker and nothing else, for programs that can't be started again as
// their own workers. Exit codes: 0 done, 2 usage.
#include <cstdio>

#include "server/compiler/compiler_worker.h"

int main(int argc, char** argv) {
  if (const std::optional<int> code = fuseline::compiler::MaybeRunCompilerWorker(argc, argv)) return *code;
  std::fputs("fuseline-compiler-worker is started by programs that compile\n", stderr);
  return 2;
}
