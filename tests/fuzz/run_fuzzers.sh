#!/usr/bin/env bash
# Runs every fuzzer and says what it found. In a bundle (bundle.sh) it needs nothing else; in the source tree, the build of the preset
# `fuzz`.
#   run_fuzzers.sh SECONDS OUTPUT-FOLDER [--fuzzers "A B…"] [--jobs N] [--workers N] [--programs DIR] [--inputs DIR]
#     SECONDS        for each fuzzer
#     --fuzzers      only these (text_parser, case_file, …)
#     --jobs N       so many fuzzers at a time; default: all
#     --workers N    processes of each fuzzer, which share their new inputs; default: cores / jobs
#     --programs DIR where the programs are; default: bin/ beside this script, else build/fuzz/tests/fuzz
#     --inputs DIR   where corpus/ and regressions/ are; default: beside this script
# OUTPUT-FOLDER gets summary.txt, findings/ (inputs; the log of each beside it), and corpus/ with the new inputs.
# Exit code 0: nothing found; 1: findings; 2: a fuzzer could not run.
set -uo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

usage() { sed -n '2,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
if [ "${1:-}" = -h ] || [ "${1:-}" = --help ]; then usage; exit 0; fi
if [ $# -lt 2 ]; then usage >&2; exit 2; fi
seconds="$1"
output="$2"
shift 2
fuzzers="text_parser graph_proto artifact_decoder launch_plan case_file compile_handler export_file"
jobs=
workers=
programs="$here/bin"
[ -d "$programs" ] || programs="$here/../../build/fuzz/tests/fuzz"
inputs="$here"
while [ $# -gt 0 ]; do
  case "$1" in
    --fuzzers) fuzzers="${2:?--fuzzers needs names}"; shift ;;
    --jobs) jobs="${2:?--jobs needs a value}"; shift ;;
    --workers) workers="${2:?--workers needs a value}"; shift ;;
    --programs) programs="${2:?--programs needs a folder}"; shift ;;
    --inputs) inputs="${2:?--inputs needs a folder}"; shift ;;
    *) echo "run_fuzzers.sh: unknown argument: $1 (see --help)" >&2; exit 2 ;;
  esac
  shift
done
read -ra names <<<"$fuzzers"
[ -n "$jobs" ] || jobs=${#names[@]}
if [ -z "$workers" ]; then
  workers=$(($(nproc) / jobs))
  [ "$workers" -ge 1 ] || workers=1
fi

mkdir -p "$output/findings" "$output/logs" "$output/bin"
output="$(cd "$output" && pwd)"
export ASAN_OPTIONS="detect_stack_use_after_return=1:strict_string_checks=1:check_initialization_order=1:detect_leaks=1:malloc_context_size=12"
export UBSAN_OPTIONS="print_stacktrace=1"
if symbolizer="$(command -v llvm-symbolizer || command -v llvm-symbolizer-14)"; then export ASAN_SYMBOLIZER_PATH="$symbolizer"; fi

# Where the program of a fuzzer lies; a packed one is unpacked.
program_of() {
  local name="$1_fuzzer"
  if [ -f "$programs/$name.gz" ]; then
    [ -x "$output/bin/$name" ] || { gunzip -c "$programs/$name.gz" >"$output/bin/$name" && chmod +x "$output/bin/$name"; }
    echo "$output/bin/$name"
  else
    echo "$programs/$name"
  fi
}

# run_worker NAME NUMBER PROGRAM: until the time is over; a finding ends the program, so it is started anew.
run_worker() {
  local name=$1 number=$2 program=$3 start=$SECONDS run=0 left
  local folders=("$output/corpus/$name") options=(-timeout=10 -rss_limit_mb=2560 -malloc_limit_mb=1024 -max_len=16384 -print_final_stats=1)
  # The entropic schedule costs more than the runs where there are as many features as in the compiler.
  options+=(-entropic=0 -reload=5)
  local folder
  for folder in "$inputs/corpus/$name" "$inputs/seeds/$name" "$inputs/regressions/$name"; do
    [ -d "$folder" ] && folders+=("$folder")
  done
  [ -f "$programs/$name.dict" ] && options+=("-dict=$programs/$name.dict")
  while left=$((seconds - (SECONDS - start))) && [ "$left" -gt 0 ] && [ "$run" -lt 20 ]; do
    local log="$output/logs/$name.$number.$run.log"
    # The limit of its own for what libFuzzer can't stop: an endless loop in a mutator, say.
    timeout -k 10 $((left + 120)) "$program" "${options[@]}" "-max_total_time=$left" "-artifact_prefix=$output/findings/$name-" \
      "${folders[@]}" >"$log" 2>&1
    local code=$?
    [ "$code" -ne 0 ] || break
    local input
    input="$(sed -n "s|^.*Test unit written to ||p" "$log" | tail -n 1)"
    if [ -n "$input" ] && [ -f "$input" ]; then
      cp "$log" "$input.log"
    else
      echo "$name: exit code $code without an input: see $log" >>"$output/broken.txt"
    fi
    run=$((run + 1))
  done
}

rm -f "$output/broken.txt"
running=0
for name in "${names[@]}"; do
  program="$(program_of "$name")"
  if [ ! -x "$program" ]; then
    echo "$name: no program $program" >>"$output/broken.txt"
    continue
  fi
  mkdir -p "$output/corpus/$name"
  if [ "$running" -ge "$jobs" ]; then
    wait -n
    running=$((running - 1))
  fi
  (
    for ((worker = 0; worker < workers; worker++)); do run_worker "$name" "$worker" "$program" & done
    wait
  ) &
  running=$((running + 1))
done
wait

# The largest number after a word, and the sum of a final statistic, over all logs of a fuzzer.
largest() { grep -ho "$2[0-9]*" "$output/logs/$1".*.log 2>/dev/null | grep -o '[0-9]*$' | sort -n | tail -n 1; }
executions_of() {
  awk '/^stat::number_of_executed_units:/ { sum += $2 } END { printf "%d", sum }' "$output/logs/$1".*.log /dev/null 2>/dev/null
}
{
  printf '%-18s %12s %8s %8s %8s %9s\n' fuzzer executions exec/s edges inputs findings
  for name in "${names[@]}"; do
    executions="$(executions_of "$name")"
    findings="$(find "$output/findings" -name "$name-*" ! -name '*.log' ! -name '*slow-unit*' | wc -l)"
    printf '%-18s %12d %8d %8d %8d %9d\n' "$name" "$executions" $((executions / seconds)) "$(largest "$name" 'cov: ')" \
      "$(find "$output/corpus/$name" -type f 2>/dev/null | wc -l)" "$findings"
  done
  echo "seconds for each fuzzer: $seconds; processes of each: $workers"
  if [ -f "$output/broken.txt" ]; then cat "$output/broken.txt"; fi
} | tee "$output/summary.txt"
rm -rf "$output/bin"
[ ! -f "$output/broken.txt" ] || exit 2
[ -z "$(find "$output/findings" -type f ! -name '*slow-unit*' ! -name '*.log')" ] || exit 1
