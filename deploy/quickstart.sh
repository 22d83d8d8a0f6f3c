#!/usr/bin/env bash
# The main job on a fresh Debian 12 machine, GPU or not: builds Fuseline, starts a server on a free loopback port, sends the two example
# graphs over gRPC with real tensors, shows plan, source and checked results, and shows the cache at work. Stops what it started.
#   --keep       leaves the server up and says how to reach and stop it
#   --target T   cpu, cuda:sm_90, …; default: a CUDA device where there is one, else cpu
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

keep=0
target=auto
while [ $# -gt 0 ]; do
  case "$1" in
    --keep) keep=1 ;;
    --target) target="${2:?--target needs a value}"; shift ;;
    -h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "quickstart: unknown argument: $1 (see --help)" >&2; exit 2 ;;
  esac
  shift
done

build=build/release
server_pid=
work="$(mktemp -d "${TMPDIR:-/tmp}/fuseline-quickstart.XXXXXX")"

section() { printf '\n== %s ==\n' "$*"; }

stop_server() {
  [ -n "$server_pid" ] || return 0
  kill -TERM "$server_pid" 2>/dev/null || true
  wait "$server_pid" 2>/dev/null || true
  server_pid=
}

finish() {
  local code=$?
  trap - EXIT INT TERM
  if [ "$code" -eq 0 ] && [ "$keep" -eq 1 ]; then return; fi
  if [ "$code" -ne 0 ] && [ -s "$work/server.log" ]; then
    echo "quickstart: failed; the end of the server's log:" >&2
    tail -n 20 "$work/server.log" >&2
  fi
  stop_server
  rm -rf "$work"
  exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

section "1. Dependencies"
. deploy/install_dependencies.sh
echo "all there${FUSELINE_NVRTC_DIR:+; NVRTC in ${FUSELINE_NVRTC_DIR}}"

section "2. Build (into $build)"
launcher=()
if command -v ccache >/dev/null 2>&1; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
if ! cmake -G Ninja -S . -B "$build" -DCMAKE_BUILD_TYPE=Release "${launcher[@]}" >"$work/configure.log" 2>&1; then
  tail -n 30 "$work/configure.log" >&2
  exit 1
fi
if [ -t 1 ]; then
  ninja -C "$build" fuseline fuseline-server
else
  ninja --quiet -C "$build" fuseline fuseline-server
fi
fuseline="$build/client/cli/fuseline"
echo "built $fuseline and $build/server/fuseline-server"

# Sets server_pid and $FUSELINE_SERVER, which the command line reads.
start_server() {
  rm -f "$work/port"
  LD_LIBRARY_PATH="${FUSELINE_NVRTC_DIR:+$FUSELINE_NVRTC_DIR:}${LD_LIBRARY_PATH:-}" "$build/server/fuseline-server" \
    --listen 127.0.0.1:0 --port_file "$work/port" --cache_dir "$work/cache" >>"$work/server.log" 2>&1 &
  server_pid=$!
  for _ in $(seq 200); do
    [ ! -s "$work/port" ] || break
    kill -0 "$server_pid" 2>/dev/null || { echo "quickstart: the server did not start" >&2; exit 1; }
    sleep 0.05
  done
  [ -s "$work/port" ] || { echo "quickstart: the server did not listen within 10 s" >&2; exit 1; }
  FUSELINE_SERVER="127.0.0.1:$(cat "$work/port")"
  export FUSELINE_SERVER
  echo "fuseline-server (pid $server_pid) listens on $FUSELINE_SERVER"
}

# json FILE KEY…: a value of a JSON file.
json() {
  python3 - "$@" <<'PY'
import json, sys
value = json.load(open(sys.argv[1]))
for key in sys.argv[2:]:
    value = value[int(key)] if key.isdigit() else value[key]
print(f"{value:.3g}" if isinstance(value, float) else value)
PY
}

section "3. Server"
start_server
"$fuseline" devices

# compile_again EXAMPLE EXPECTED-OUTCOME TEXT
compile_again() {
  "$fuseline" --json compile "deploy/examples/$1.fl" --target "$target" >"$work/compile.json"
  local outcome
  outcome="$(json "$work/compile.json" outcome)"
  echo "$3: $outcome, $(json "$work/compile.json" compile_ms) ms"
  [ "$outcome" = "$2" ] || { echo "quickstart: expected $2" >&2; exit 1; }
}

examples=(pointwise_example reduction_example)
number=4
for example in "${examples[@]}"; do
  graph="deploy/examples/$example.fl"
  section "$number. $example: the graph"
  cat "$graph"
  section "$number. $example: first call compiles"
  compile_again "$example" miss "first call"
  section "$number. $example: second call hits the cache"
  compile_again "$example" memory-hit "second call"
  section "$number. $example: the fusion plan"
  "$fuseline" explain "$graph" --target "$target"
  section "$number. $example: the source"
  "$fuseline" compile "$graph" --target "$target" --emit source 2>/dev/null
  section "$number. $example: run on random tensors, checked against the reference interpreter"
  "$fuseline" run "$graph" --target "$target" --random 1 --verify
  number=$((number + 1))
done

section "$number. Restart: the disk cache serves the first call"
stop_server
start_server
for example in "${examples[@]}"; do compile_again "$example" disk-hit "$example after the restart"; done
"$fuseline" cache stats

section "Done"
if [ "$keep" -eq 1 ]; then
  echo "The server stays up. Reach it: export FUSELINE_SERVER=$FUSELINE_SERVER; $fuseline run GRAPH --random 1"
  echo "Stop it: kill $server_pid; its cache and log: $work"
  disown "$server_pid"
fi
