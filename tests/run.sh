#!/usr/bin/env bash
# Installs what is missing, builds, and runs all the tests that this machine can run; says what was skipped and why.
#   --sanitizers   also all of them under the address and undefined-behaviour sanitizers, and the concurrent ones under the thread
#                  sanitizer; the default where CI=true
#   --no-sanitizers
#   --fuzz         also every fuzzer for a while, from the committed inputs; the default where CI=true
#   --no-fuzz
#   --fuzz-seconds N   for each fuzzer; default: 60
#   --label L      only tests with this label (unit, golden, conformance, cuda_host, e2e, gpu, tools, container)
#   --preset P     build with this preset (default: release; ci where CI=true)
#   --jobs N       parallel jobs; default: one for each core
# Exit code 0: everything passed; 1: something failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

jobs="$(nproc)"
label=
preset=release
sanitizers=0
fuzz=0
fuzz_seconds=60
if [ "${CI:-false}" = true ]; then
  preset=ci
  sanitizers=1
  fuzz=1
fi
while [ $# -gt 0 ]; do
  case "$1" in
    --sanitizers) sanitizers=1 ;;
    --no-sanitizers) sanitizers=0 ;;
    --fuzz) fuzz=1 ;;
    --no-fuzz) fuzz=0 ;;
    --fuzz-seconds) fuzz_seconds="${2:?--fuzz-seconds needs a value}"; shift ;;
    --label) label="${2:?--label needs a value}"; shift ;;
    --preset) preset="${2:?--preset needs a value}"; shift ;;
    --jobs) jobs="${2:?--jobs needs a value}"; shift ;;
    -h | --help) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "run.sh: unknown argument: $1 (see --help)" >&2; exit 2 ;;
  esac
  shift
done

passed=0
failed=0
skipped=0
failures=()
started=$SECONDS

section() { printf '\n== %s (%d s so far) ==\n' "$*" "$((SECONDS - started))"; }

# build PRESET TARGET…
build() {
  local preset=$1
  shift
  local log="build/$preset/run_build.log"
  mkdir -p "build/$preset"
  if ! cmake --preset "$preset" >"build/$preset/run_configure.log" 2>&1; then
    tail -n 40 "build/$preset/run_configure.log"
    return 1
  fi
  # Ninja's own lines only where someone watches.
  if [ -t 1 ]; then
    ninja -C "build/$preset" -j "$jobs" "$@"
  elif ! ninja -C "build/$preset" -j "$jobs" "$@" >"$log" 2>&1; then
    grep -v '^\[[0-9]*/[0-9]*\] [A-Z][a-z]*ing ' "$log" | head -n 120
    return 1
  else
    tail -n 1 "$log"
  fi
}

# run_tests PRESET CTEST-ARGUMENT…: runs, adds to the counts, and says why programs or single cases were skipped.
run_tests() {
  local preset=$1
  shift
  local log="build/$preset/run_tests.log" code=0
  ctest --test-dir "build/$preset" --output-on-failure --no-tests=error -j "$jobs" "$@" >"$log" 2>&1 || code=$?
  cat "$log"
  local here_failed here_skipped here_total
  here_total="$(grep -c '^ *[0-9]*/[0-9]* Test *#' "$log" || true)"
  here_skipped="$(grep -c '^ *[0-9]*/[0-9]* Test *#.*\*\*\*Skipped' "$log" || true)"
  here_failed="$(grep '^ *[0-9]*/[0-9]* Test *#' "$log" | grep -cv -e ' Passed ' -e '\*\*\*Skipped' || true)"
  if [ "$code" -ne 0 ] && [ "$here_failed" -eq 0 ]; then here_failed=1; fi
  passed=$((passed + here_total - here_skipped - here_failed))
  skipped=$((skipped + here_skipped))
  failed=$((failed + here_failed))
  if [ "$here_failed" -gt 0 ]; then failures+=("$preset: $here_failed of $here_total tests failed"); fi
  skip_reasons "build/$preset/Testing/Temporary/LastTest.log"
  # On whose packages the Python client was tested.
  grep '^python_client: ' "build/$preset/Testing/Temporary/LastTest.log" || true
  # What was done to a cluster, and what was seen.
  sed -n '/^| step | what was done/,/^[^|]/{/^|/p}' "build/$preset/Testing/Temporary/LastTest.log" || true
}

# The distinct reasons that skipped cases gave, with their number. GoogleTest prints "file:line: Skipped", then the reason.
skip_reasons() {
  [ -f "$1" ] || return 0
  awk '/: Skipped$/ { getline reason; if (reason == "") reason = "(no reason given)"; count[reason]++ }
       END { for (reason in count) printf "skipped %d cases: %s\n", count[reason], reason }' "$1" | sort -k2,2nr
}

finish() {
  section "Summary"
  for failure in "${failures[@]}"; do echo "FAILED: $failure"; done
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" -eq 0 ] || exit 1
  exit 0
}

# What was compiled in another clone need not be compiled again.
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1

section "Dependencies"
FUSELINE_TEST_PYTHON=1
FUSELINE_TEST_BROWSER=1
FUSELINE_TEST_DEPLOY=1
FUSELINE_TEST_REDIS=1
. deploy/install_dependencies.sh
if [ -n "${FUSELINE_NVRTC_DIR:-}" ]; then
  echo "NVRTC: $FUSELINE_NVRTC_DIR"
  export LD_LIBRARY_PATH="$FUSELINE_NVRTC_DIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
else
  echo "no NVRTC: tests that compile for CUDA are skipped"
fi
if [ -z "$(ls /dev/nvidia[0-9]* 2>/dev/null)" ]; then echo "no GPU: tests that run on one are skipped"; fi

section "Build ($preset)"
targets=(all)
# Each header alone: a third of all compilations, so not where CI waits for it.
if [ "$preset" = dev ]; then targets+=(all_verify_interface_header_sets); fi
if ! build "$preset" "${targets[@]}"; then
  failed=1
  failures+=("build of $preset")
  finish
fi

section "Tests ($preset)"
run_tests "$preset" ${label:+-L "^$label\$"}

if [ "$sanitizers" -eq 1 ]; then
  if [ "$label" != concurrent ]; then
    section "Address and undefined-behaviour sanitizers"
    if build asan all; then
      # Tools are scripts; benchmarks measure.
      # What has a lot of data goes the same ways as the cases and the differential test do, and takes a third of an hour here.
      run_tests asan ${label:+-L "^$label\$"} -LE '^(bench|tools|container)$' \
        -E '^(conformance_onnx|newest_node_tests_onnx|models_onnx|eager_bits_test|cluster)$'
    else
      failed=$((failed + 1))
      failures+=("build of asan")
    fi
  fi
  if [ -z "$label" ] || [ "$label" = concurrent ]; then
    section "Thread sanitizer, concurrent tests"
    if build tsan tests_concurrent; then
      run_tests tsan -L '^concurrent$'
    else
      failed=$((failed + 1))
      failures+=("build of tsan")
    fi
  fi
fi

if [ "$fuzz" -eq 1 ] && [ -z "$label" ]; then
  section "Fuzzers, $fuzz_seconds s each"
  output=build/fuzz/run
  rm -rf "$output"
  if ! command -v clang++ >/dev/null && ! fuseline_apt_install clang llvm; then
    failed=$((failed + 1))
    failures+=("fuzz: no clang")
  elif ! build fuzz fuzzers; then
    failed=$((failed + 1))
    failures+=("build of fuzz")
  elif tests/fuzz/run_fuzzers.sh "$fuzz_seconds" "$output" --programs build/fuzz/tests/fuzz --jobs "$jobs" --workers 1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    failures+=("fuzz: see $output/findings")
    # What each finding is, and its input in a form that can be taken from a log.
    for log in "$output"/findings/*.log; do
      [ -f "$log" ] || continue
      echo "-- ${log%.log}"
      { grep -v -e '^#[0-9]' -e NEW_FUNC -e '^INFO' "$log" || true; } | sed -n '1,40p'
      base64 -w 0 "${log%.log}" | sed 's/^\(.\{4000\}\).*/\1…/'
      echo
    done
  fi
fi

finish
