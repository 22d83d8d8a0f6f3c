#!/usr/bin/env bash
# Compares the C++ sources with what clang-format 14 makes of them. Versions differ in details, so with another one it only says so.
#   --fix   rewrites them instead
# Exit code 1: some differ.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

mode=(--dry-run --Werror)
if [ "${1:-}" = --fix ]; then mode=(-i); fi
clang_format="$(command -v clang-format-14 || command -v clang-format || true)"
if [ -z "$clang_format" ] || ! "$clang_format" --version | grep -q 'version 14\.'; then
  echo "check_format: no clang-format 14 here: not checked"
  exit 0
fi
mapfile -t files < <(find common server client tests -name '*.h' -o -name '*.cc' | sort)
if printf '%s\0' "${files[@]}" | xargs -0 -n 20 -P "$(nproc)" "$clang_format" --style=file "${mode[@]}" 2>"${TMPDIR:-/tmp}/check_format.$$"; then
  rm -f "${TMPDIR:-/tmp}/check_format.$$"
  echo "check_format: ${#files[@]} files are as clang-format makes them"
  exit 0
fi
sed -n 's/^\([^ :]*\):[0-9]*:[0-9]*: error: .*/\1/p' "${TMPDIR:-/tmp}/check_format.$$" | sort | uniq -c | sort -rn
rm -f "${TMPDIR:-/tmp}/check_format.$$"
exit 1
