#!/usr/bin/env bash
# Runs a bundle (tests/gpu/bundle.sh) on the machine that it lies on, through a server on a loopback port: devices, all cases, both
# examples, the cache, the benchmarks, and the test programs. Needs a driver and NVRTC; FUSELINE_NVRTC_DIR names NVRTC's folder where
# the server does not find it. Writes to $OUT (default ./results): summary.json, and JSON and text for each step.
#   run_on_gpu.sh [--target T] [--only STEP,…] [--iterations N]
#   steps: devices cases onnx models examples cache bench tests python; also sanitize (not by default: minutes), the cases under compute-sanitizer's
#   memcheck, racecheck and initcheck; unpack alone leaves the programs in bin/ and tests/
# Exit code 0: every step passed.
set -uo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
out="${OUT:-./results}"
target=
only=devices,cases,onnx,models,examples,cache,bench,tests,python
iterations=100
while [ $# -gt 0 ]; do
  case "$1" in
    --target) target="${2:?--target needs a value}"; shift ;;
    --only) only="${2:?--only needs steps}"; shift ;;
    --iterations) iterations="${2:?--iterations needs a value}"; shift ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "run_on_gpu.sh: unknown argument: $1 (see --help)" >&2; exit 2 ;;
  esac
  shift
done

mkdir -p "$out"
out="$(cd "$out" && pwd)"
work="$(mktemp -d)"
# Programs come packed; beside each other if the folder can be written to.
programs="$here"
[ -w "$here" ] || programs="$work"
mkdir -p "$programs/bin" "$programs/tests"
for packed in "$here"/bin/*.gz "$here"/tests/*.gz; do
  [ -f "$packed" ] || continue
  program="$programs/$(basename "$(dirname "$packed")")/$(basename "$packed" .gz)"
  [ -x "$program" ] && [ "$program" -nt "$packed" ] && continue
  gzip -d -c "$packed" >"$program"
  chmod +x "$program"
done
if [ "$only" = unpack ]; then
  rmdir "$work" 2>/dev/null
  exit 0
fi
server_pid=
rows=()
failed=0
jobs="$(nproc)"
[ "$jobs" -le 16 ] || jobs=16
fuseline="$programs/bin/fuseline"

stop_server() {
  [ -n "$server_pid" ] || return 0
  kill -TERM "$server_pid" 2>/dev/null
  wait "$server_pid"
  local code=$?
  server_pid=
  return "$code"
}

start_server() {
  rm -f "$work/port"
  local nvrtc=()
  if [ -n "${FUSELINE_NVRTC_DIR:-}" ]; then nvrtc=(--nvrtc_path "$FUSELINE_NVRTC_DIR"); fi
  "$programs/bin/fuseline-server" --listen 127.0.0.1:0 --port_file "$work/port" --cache_dir "$work/cache" "${nvrtc[@]}" \
    >>"$out/server.log" 2>&1 &
  server_pid=$!
  local i
  for i in $(seq 300); do
    if [ -s "$work/port" ]; then
      export FUSELINE_SERVER="127.0.0.1:$(cat "$work/port")"
      return 0
    fi
    kill -0 "$server_pid" 2>/dev/null || break
    sleep 0.1
  done
  echo "run_on_gpu.sh: the server did not start; the end of $out/server.log:" >&2
  tail -n 20 "$out/server.log" >&2
  exit 1
}

finish() {
  stop_server
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

wanted() { case ",$only," in *",$1,"*) return 0 ;; *) return 1 ;; esac; }

# step NAME LIMIT COMMAND…: standard output and error to NAME.txt (JSON output: NAME.json), the result to the summary. LIMIT in seconds.
step() {
  local name=$1 limit=$2 suffix=txt begun code=0
  shift 2
  case " $* " in *" --json "*) suffix=json ;; esac
  begun="$(date +%s.%N)"
  if [ "$suffix" = json ]; then
    timeout "$limit" "$@" >"$out/$name.json" 2>"$out/$name.err" || code=$?
    [ -s "$out/$name.err" ] || rm -f "$out/$name.err"
  else
    timeout "$limit" "$@" >"$out/$name.txt" 2>&1 || code=$?
  fi
  local seconds
  seconds="$(awk -v a="$begun" -v b="$(date +%s.%N)" 'BEGIN { printf "%.2f", b - a }')"
  rows+=("{\"step\": \"$name\", \"code\": $code, \"seconds\": $seconds}")
  if [ "$code" -eq 0 ]; then
    echo "passed  $name (${seconds} s)"
  else
    failed=$((failed + 1))
    echo "FAILED  $name (${seconds} s, code $code); the end of its output:"
    tail -n 15 "$out/$name.$suffix" 2>/dev/null | cut -c1-300
    if [ "$suffix" = json ]; then tail -n 5 "$out/$name.err" 2>/dev/null | cut -c1-300; fi
  fi
}

start_server
if [ -z "$target" ]; then
  target="$("$fuseline" devices --json 2>/dev/null | grep -o '"cuda:sm_[0-9]*a\{0,1\}"' | head -n 1 | tr -d '"')"
  if [ -z "$target" ]; then
    echo "run_on_gpu.sh: the server shows no CUDA target:" >&2
    "$fuseline" devices >&2
    exit 1
  fi
fi
echo "target $target; results in $out"

if wanted devices; then
  step devices 60 "$fuseline" devices
  step devices_json 60 "$fuseline" devices --json
fi
if wanted cases; then
  step cases 400 "$fuseline" verify --quiet --jobs "$jobs" --target "$target" "$here/cases"
  step cases_json 400 "$fuseline" verify --json --jobs "$jobs" --target "$target" "$here/cases"
fi
if wanted onnx && [ -f "$here/onnx_data.tar.gz" ]; then
  mkdir -p "$work/onnx"
  tar -xzf "$here/onnx_data.tar.gz" -C "$work/onnx"
  step onnx 580 "$programs/bin/conformance_onnx" --target "$target" --data "$work/onnx" --jobs "$jobs"
fi
if wanted models && [ -f "$here/models.tar.gz" ]; then
  tar -xzf "$here/models.tar.gz" -C "$work"
  for weights in constants inputs; do
    step "models_$weights" 290 "$programs/bin/conformance_onnx" --target "$target" --data "$work" --jobs "$jobs" --tolerance 1e-4 \
      --weights "$weights"
  done
fi
if wanted examples; then
  for graph in pointwise_example reduction_example; do
    step "explain_$graph" 60 "$fuseline" explain "$here/graphs/$graph.fl" --target "$target" --why --key --source
    step "run_$graph" 60 "$fuseline" run "$here/graphs/$graph.fl" --target "$target" --random 1 --verify
    step "run_${graph}_json" 60 "$fuseline" run "$here/graphs/$graph.fl" --target "$target" --random 1 --verify --json
  done
fi
if wanted cache; then
  # After a restart the disk level answers.
  step cache_fill 60 "$fuseline" compile "$here/graphs/pointwise_example.fl" --target "$target" --json
  if ! stop_server; then
    failed=$((failed + 1))
    rows+=('{"step": "server_stop", "code": 1, "seconds": 0}')
    echo "FAILED  the server did not stop cleanly"
  fi
  start_server
  step cache_hit 60 "$fuseline" compile "$here/graphs/pointwise_example.fl" --target "$target" --json
  step cache_stats 60 "$fuseline" cache stats --json
fi
if wanted bench; then
  step bench 400 "$fuseline" bench "$here"/graphs/bench/*.fl --target "$target" --iterations "$iterations"
  step bench_json 400 "$fuseline" bench "$here"/graphs/bench/*.fl --target "$target" --iterations "$iterations" --json
fi
if wanted tests; then
  for program in "$programs"/tests/*; do
    case "$program" in *.gz | *.so) continue ;; esac
    [ -x "$program" ] || continue
    step "test_$(basename "$program")" 300 "$program" --gtest_color=no
  done
fi
if wanted python && [ -d "$here/python" ]; then
  if python3 -c 'import google.protobuf, grpc, numpy, pytest' 2>/dev/null; then
    mkdir -p "$work/python"
    step python 580 env PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$here/python/package" FUSELINE_CLI="$fuseline" \
      FUSELINE_SERVER_PROGRAM="$programs/bin/fuseline-server" FUSELINE_SOURCE_DIR="$here/python/source" \
      python3 -m pytest -q -rsP -p no:cacheprovider --rootdir "$work/python" --basetemp "$work/python/tmp" \
      "$here/python/source/tests/python"
  else
    echo "skipped python: python3 here lacks one of grpcio, protobuf, numpy, pytest"
  fi
fi
if wanted sanitize; then
  # One process for all cases; the kernels are compiled by others, which are not looked at. The three run side by side.
  sanitizers=()
  for tool in memcheck racecheck initcheck; do
    (
      code=0
      timeout 560 compute-sanitizer --tool "$tool" --target-processes application-only --error-exitcode 99 --print-limit 20 \
        "$fuseline" --local verify --quiet --jobs 1 --target "$target" "$here/cases" >"$out/$tool.log" 2>&1 || code=$?
      echo "$code" >"$work/sanitize_$tool.code"
    ) &
    sanitizers+=($!)
  done
  wait "${sanitizers[@]}"
  for tool in memcheck racecheck initcheck; do
    code="$(cat "$work/sanitize_$tool.code")"
    # A tool that did not attach proves nothing.
    grep -q 'SUMMARY' "$out/$tool.log" || code=98
    step "sanitize_$tool" 10 sh -c "tail -n 5 '$out/$tool.log'; exit $code"
  done
fi

{
  printf '{"target": "%s", "revision": "%s", "gpu": "%s", "failed": %d, "steps": [\n' "$target" "$(head -n 1 "$here/REVISION")" \
    "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1)" "$failed"
  for i in "${!rows[@]}"; do
    printf '  %s%s\n' "${rows[$i]}" "$([ "$i" -lt $((${#rows[@]} - 1)) ] && echo ,)"
  done
  printf ']}\n'
} >"$out/summary.json"
echo "$((${#rows[@]} - failed)) passed, $failed failed"
[ "$failed" -eq 0 ]
