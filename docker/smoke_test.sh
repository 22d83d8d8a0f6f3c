#!/usr/bin/env bash
# Starts the image as it is meant to run (root file system read-only, no user root, no capability) and asks of it what the quick start does,
# through its published port; then, with --cluster, the same of the set-up of compose.yaml. Reports size and time to ready.
#   --image NAME      default: fuseline:latest
#   --cli PATH        the fuseline command line to ask with; default: the image's own, in a container on the host's network
#   --baked FIRST     the image is baked: the first call for the graph FIRST must be a hit
#   --cluster         also two servers, Redis and HAProxy, with images made here of Debian's packages
# Exit code: 0 passed, 1 failed, 2 usage, 77 there is no container engine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

image=fuseline:latest
cli=
baked=
cluster=0
while [ $# -gt 0 ]; do
  case "$1" in
    --image) image="${2:?--image needs a name}"; shift ;;
    --cli) cli="${2:?--cli needs a path}"; shift ;;
    --baked) baked="${2:?--baked needs a graph}"; shift ;;
    --cluster) cluster=1 ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "smoke_test.sh: unknown argument: $1 (see --help)" >&2; exit 2 ;;
  esac
  shift
done

FUSELINE_FUNCTIONS_ONLY=1 . deploy/install_dependencies.sh
. docker/engine.sh
container_find_engine || exit 77

name="fuseline-smoke-$$"
work="$(mktemp -d "${TMPDIR:-/tmp}/$name.XXXXXX")"
compose=()

finish() {
  local code=$?
  trap - EXIT INT TERM
  if [ "$code" -ne 0 ]; then
    echo "-- the log of the server:" >&2
    "$engine" logs "$name" 2>&1 | tail -n 15 >&2 || true
    if [ -n "${compose[*]}" ]; then "${compose[@]}" logs 2>&1 | tail -n 40 >&2 || true; fi
  fi
  if [ -n "${compose[*]}" ]; then "${compose[@]}" down -v >/dev/null 2>&1 || true; fi
  "$engine" rm -f "$name" >/dev/null 2>&1 || true
  "$engine" volume rm -f "$name" >/dev/null 2>&1 || true
  rm -rf "$work"
  exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fail() { echo "FAILED: $*" >&2; exit 1; }
passed() { echo "passed: $*"; }

# fuseline ARGUMENT…: the command line, against $FUSELINE_SERVER.
fuseline() {
  if [ -n "$cli" ]; then
    "$cli" "$@"
  else
    "$engine" run --rm --network host --read-only --cap-drop all -e FUSELINE_SERVER="$FUSELINE_SERVER" -v "$PWD/deploy/examples:$PWD/deploy/examples:ro" \
      --entrypoint fuseline "$image" "$@"
  fi
}

# json KEY…: a value of the JSON on standard input.
json() {
  python3 -c 'import json, sys
value = json.load(sys.stdin)
for key in sys.argv[1:]: value = value[int(key)] if key.isdigit() else value[key]
print(value)' "$@"
}

# wait_ready SECONDS: until the server says SERVING.
wait_ready() {
  local limit=$((SECONDS + $1))
  until fuseline --timeout 1 health >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$limit" ] || fail "not SERVING after $1 s"
    sleep 0.05
  done
}

# Podman has systemd run health checks; where there is none, the check is run by hand below.
no_healthcheck=()
if [ "$engine" = podman ] && [ ! -d /run/systemd/system ]; then no_healthcheck=(--no-healthcheck); fi

start() {
  "$engine" run -d --name "$name" "${no_healthcheck[@]}" --read-only --cap-drop all --security-opt no-new-privileges --init --tmpfs /tmp:mode=1777,size=512m \
    -v "$name:/var/cache/fuseline" -p 127.0.0.1::50061 -p 127.0.0.1::9464 "$image" --drain_seconds 5 >/dev/null
  FUSELINE_SERVER="$("$engine" port "$name" 50061/tcp | head -n 1)"
  export FUSELINE_SERVER
}

millis() { date +%s%3N; }

# The quick start's examples at $FUSELINE_SERVER: right results, one kernel each, and a hit the second time. ask_examples WHAT
ask_examples() {
  local example
  for example in pointwise_example reduction_example; do
    local graph="$PWD/deploy/examples/$example.fl"
    fuseline --json run "$graph" --random 1 --verify >"$work/run.json" || fail "$1: $example does not run: $(cat "$work/run.json")"
    [ "$(json verify passed <"$work/run.json")" = True ] || fail "$1: $example: wrong result"
    fuseline explain "$graph" >"$work/explain.txt"
    grep -q '3 kernels -> 1' "$work/explain.txt" || fail "$1: $example is not one kernel: $(cat "$work/explain.txt")"
    fuseline --json compile "$graph" >"$work/compile.json"
    case "$(json outcome <"$work/compile.json")" in
      *-hit) ;;
      *) fail "$1: the second call for $example is no hit: $(cat "$work/compile.json")" ;;
    esac
  done
  passed "$1: both examples, through the published port: one kernel each, right results, second call a hit"
}

echo "image $image: $(($("$engine" image inspect --format '{{.Size}}' "$image") / 1000000)) MB"

began="$(millis)"
start
wait_ready 60
echo "ready $(($(millis) - began)) ms after the engine was asked to start it"

# What it runs as, seen from inside.
"$engine" exec "$name" sh -c 'grep -E "^(Uid|CapEff|CapBnd|NoNewPrivs):" /proc/1/status; touch /usr/probe /etc/probe 2>/dev/null && echo WRITABLE; true' >"$work/inside.txt"
grep -qE '^Uid:\s+10001\s' "$work/inside.txt" || fail "not user 10001: $(cat "$work/inside.txt")"
grep -qE '^CapEff:\s+0+$' "$work/inside.txt" || fail "has capabilities: $(cat "$work/inside.txt")"
grep -qE '^CapBnd:\s+0+$' "$work/inside.txt" || fail "could get capabilities: $(cat "$work/inside.txt")"
if grep -q WRITABLE "$work/inside.txt"; then fail "its root file system can be written to"; fi
"$engine" exec "$name" fuseline health | grep -q SERVING || fail "the health check of the image fails"
passed "read-only, user 10001, no capabilities, health check"

fuseline --json devices >"$work/devices.json"
echo "targets: $(python3 -c '
import json, sys
print(", ".join(t["target"] + ("" if t["can_compile"] else " (not: %s)" % t["reason"]) for t in json.load(sys.stdin)["targets"]))' <"$work/devices.json")"

if [ -n "$baked" ]; then
  outcome="$(fuseline --json compile "$baked" | json outcome)"
  case "$outcome" in
    miss | joined) fail "a baked image did not know $baked: $outcome" ;;
  esac
  passed "baked: the first call is a $outcome"
fi

ask_examples "one container"
if python3 -c 'import json, sys; sys.exit(not any(t["target"].startswith("cuda") and t["can_compile"] for t in json.load(sys.stdin)["targets"]))' <"$work/devices.json"; then
  fuseline compile "$PWD/deploy/examples/pointwise_example.fl" --target cuda:sm_90 --emit ptx 2>"$work/cuda.txt" | grep -q fuseline_pointwise ||
    fail "no kernel for cuda:sm_90: $(cat "$work/cuda.txt")"
  passed "a kernel for cuda:sm_90, without a GPU"
fi

# A new container on the same volume: the disk cache answers.
began="$(millis)"
"$engine" stop -t 20 "$name" >/dev/null
code="$("$engine" inspect --format '{{.State.ExitCode}}' "$name")"
[ "$code" = 0 ] || fail "it did not drain: exit code $code"
echo "drained in $(($(millis) - began)) ms"
"$engine" rm "$name" >/dev/null
start
wait_ready 60
outcome="$(fuseline --json compile "$PWD/deploy/examples/pointwise_example.fl" | json outcome)"
[ "$outcome" = disk-hit ] || fail "after the restart: $outcome, not disk-hit"
passed "a new container on the same volume: disk-hit"
"$engine" rm -f "$name" >/dev/null

[ "$cluster" -eq 1 ] || { echo "smoke test passed"; exit 0; }

# -- compose.yaml, with whatever the engine has for it --------------------------------------------------------------------------------
if [ "$engine" = docker ] && docker compose version >/dev/null 2>&1; then
  compose=(docker compose)
else
  command -v podman-compose >/dev/null 2>&1 || fuseline_apt_install podman-compose || fail "no compose: podman-compose can't be installed"
  compose=(podman-compose)
fi
docker/make_secrets.sh "$work/secrets" >/dev/null
chmod 0711 "$work"
container_ensure_base debian:bookworm-slim
printf 'FROM debian:bookworm-slim\nRUN apt-get update -q && apt-get install -q -y --no-install-recommends redis-server haproxy && rm -rf /var/lib/apt/lists/*\n' |
  "$engine" build -q -t fuseline-test-services -f - "$work" >/dev/null 2>&1
sed -e "s|\./secrets/|$work/secrets/|" -e "s|\.\./deploy/|$PWD/deploy/|" -e "s|\./redis.conf|$PWD/docker/redis.conf|" docker/compose.yaml >"$work/compose.yaml"
compose+=(-p "$name" -f "$work/compose.yaml")
FUSELINE_PORT="$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')"
export FUSELINE_PORT FUSELINE_IMAGE="$image" REDIS_IMAGE=fuseline-test-services HAPROXY_IMAGE=fuseline-test-services
FUSELINE_SERVER="127.0.0.1:$FUSELINE_PORT"
began="$(millis)"
"${compose[@]}" up -d redis server-1 server-2 haproxy >"$work/up.log" 2>&1 || { tail -n 20 "$work/up.log" >&2; fail "compose up"; }
wait_ready 60
echo "two servers, Redis and HAProxy: ready $(($(millis) - began)) ms after compose was asked"
ask_examples "two servers behind HAProxy"

# container SERVICE: its name.
container() { "$engine" ps --format '{{.Names}}' | grep "^$name[_-]$1[_-]1$"; }
# builds SERVICE: how many artifacts it has compiled.
builds() { "$engine" exec "$(container "$1")" fuseline --json cache stats | json builds; }
total=$(($(builds server-1) + $(builds server-2)))
[ "$total" = 2 ] || fail "the cluster compiled $total artifacts, and 2 graphs were asked"
passed "each graph was compiled once by the two servers together"
for service in server-1 server-2; do
  outcome="$("$engine" exec -i "$(container "$service")" sh -c 'cat >/tmp/g.fl && fuseline --json compile /tmp/g.fl' <deploy/examples/pointwise_example.fl | json outcome)"
  case "$outcome" in
    miss | joined) fail "$service does not know what the cluster compiled: $outcome" ;;
  esac
  echo "asked directly, $service answers with a $outcome"
done
passed "both servers know it, from memory or Redis"
"$engine" stop -t 20 "$(container server-1)" >/dev/null 2>&1
ask_examples "after one of the servers was stopped"
echo "smoke test passed"
