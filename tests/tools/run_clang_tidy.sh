#!/usr/bin/env bash
# Runs clang-tidy (14, .clang-tidy's allow-list) with the compile commands of a build.
#   run_clang_tidy.sh [--build DIR] [FILE…]     default: build/dev, and every .cc of common, server and client
# Not in CI: a minute of gRPC's headers for each file that includes them. Exit code 1: findings.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

build=build/dev
if [ "${1:-}" = --build ]; then
  build="${2:?--build needs a folder}"
  shift 2
fi
if [ ! -f "$build/compile_commands.json" ]; then
  echo "run_clang_tidy: no $build/compile_commands.json: run cmake --preset dev first" >&2
  exit 2
fi
clang_tidy="$(command -v clang-tidy-14 || command -v clang-tidy || true)"
if [ -z "$clang_tidy" ]; then
  echo "run_clang_tidy: no clang-tidy here" >&2
  exit 2
fi
files=("$@")
if [ $# -eq 0 ]; then mapfile -t files < <(find common server client -name '*.cc' | sort); fi
# GCC's flags in the commands are not all clang's.
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" "$clang_tidy" -p "$build" --quiet \
  --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-unused-command-line-argument
