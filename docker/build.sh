#!/usr/bin/env bash
# Builds the image of fuseline-server with Docker or podman, and says how large it is.
#   --tag NAME          default: fuseline:latest
#   --prebuilt DIR      takes the programs of this build folder (build/release) and does not compile; they must be built on Debian 12
#   --no-cuda           without NVRTC: the cpu target alone
#   --no-host-compiler  without g++: CUDA targets alone
#   --cache FILE        an export of a cache (`fuseline cache export FILE`), to bake into the image: its servers start with hits
#   --warm FOLDER       graphs to compile into the image: its servers start with hits where their volume is new
#   --warm-targets LIST for them; default: cpu
#   --base IMAGE        default: debian:bookworm-slim; made by debootstrap where no registry can be reached
# NVRTC comes from PyPI, or from $FUSELINE_NVRTC_DIR where that is set. CONTAINER_ENGINE chooses docker or podman.
# Exit code: 0 done, 1 failed, 2 usage, 77 there is no container engine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tag=fuseline:latest
prebuilt=
nvrtc=wheel
host_compiler=yes
cache=
warm=
warm_targets=cpu
base=debian:bookworm-slim
while [ $# -gt 0 ]; do
  case "$1" in
    --tag) tag="${2:?--tag needs a name}"; shift ;;
    --prebuilt) prebuilt="${2:?--prebuilt needs a folder}"; shift ;;
    --no-cuda) nvrtc=none ;;
    --no-host-compiler) host_compiler=no ;;
    --cache) cache="${2:?--cache needs a file}"; shift ;;
    --warm) warm="${2:?--warm needs a folder}"; shift ;;
    --warm-targets) warm_targets="${2:?--warm-targets needs a list}"; shift ;;
    --base) base="${2:?--base needs an image}"; shift ;;
    -h | --help) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "build.sh: unknown argument: $1 (see --help)" >&2; exit 2 ;;
  esac
  shift
done

# Only its functions: nothing is compiled on this machine.
FUSELINE_FUNCTIONS_ONLY=1 . deploy/install_dependencies.sh
. docker/engine.sh
container_find_engine || exit 77
container_ensure_base "$base" || exit 1

work="$(mktemp -d "${TMPDIR:-/tmp}/fuseline-image.XXXXXX")"
trap 'rm -rf "$work"' EXIT

arguments=(--build-arg "BASE=$base" --build-arg "HOST_COMPILER=$host_compiler" --tag "$tag")
if [ -n "$cache" ]; then
  mkdir "$work/seed"
  cp "$cache" "$work/seed/seed"
  chmod 0644 "$work/seed/seed"
  arguments+=(--target baked --build-context "seed=$work/seed")
elif [ -n "$warm" ]; then
  mkdir "$work/graphs"
  cp -r "$warm"/. "$work/graphs"
  chmod -R a+rX "$work/graphs"
  arguments+=(--target warmed --build-context "graphs=$work/graphs" --build-arg "WARM_TARGETS=$warm_targets")
else
  arguments+=(--target server)
fi
if [ -n "$prebuilt" ]; then
  mkdir "$work/programs"
  DESTDIR="$work/programs" cmake --install "$prebuilt" --prefix /usr --component programs --strip >/dev/null
  docker/list_packages.sh "$work"/programs/usr/bin/* >"$work/programs/packages"
  arguments+=(--build-arg PROGRAMS=prebuilt --build-context "programs=$work/programs")
fi
if [ "$nvrtc" = wheel ] && [ -n "${FUSELINE_NVRTC_DIR:-}" ]; then
  nvrtc=local
  mkdir "$work/nvrtc"
  cp "$FUSELINE_NVRTC_DIR"/libnvrtc.so.[0-9]* "$FUSELINE_NVRTC_DIR"/libnvrtc-builtins.so.[0-9]* "$work/nvrtc"
  arguments+=(--build-context "nvrtc=$work/nvrtc")
fi
arguments+=(--build-arg "NVRTC=$nvrtc")
if [ "$engine" = podman ]; then
  # Podman's own format has no health check.
  arguments+=(--format docker)
  # Where this machine trusts an authority of its own, so must pip in there.
  if [ -n "${PIP_CERT:-}" ]; then
    arguments+=(--volume "$PIP_CERT:/run/host-certificates.crt:ro" --build-arg PIP_CERT=/run/host-certificates.crt)
  fi
fi

started=$SECONDS
if ! "$engine" build "${arguments[@]}" -f docker/Dockerfile . >"$work/build.log" 2>&1; then
  tail -n 40 "$work/build.log" >&2
  exit 1
fi
size="$("$engine" image inspect --format '{{.Size}}' "$tag")"
echo "built $tag with $engine in $((SECONDS - started)) s: $((size / 1000000)) MB"
