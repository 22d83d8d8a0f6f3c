#!/usr/bin/env bash
# Builds the semi-static programs and packs them with the cases, the benchmark graphs and run_on_gpu.sh into one folder, which runs on
# a machine with a GPU, its driver, NVRTC, glibc 2.36 or later and nothing else. Programs are packed (gzip); run_on_gpu.sh unpacks them.
#   bundle.sh [--output DIR] [--jobs N] [--no-install]     default: build/bundle/fuseline-bundle
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

output=build/bundle/fuseline-bundle
jobs="$(nproc)"
install=1
while [ $# -gt 0 ]; do
  case "$1" in
    --output) output="${2:?--output needs a folder}"; shift ;;
    --jobs) jobs="${2:?--jobs needs a value}"; shift ;;
    --no-install) install=0 ;;
    -h | --help) sed -n '2,4s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "bundle.sh: unknown argument: $1 (see --help)" >&2; exit 2 ;;
  esac
  shift
done

if [ "$install" -eq 1 ]; then FUSELINE_SKIP_NVRTC=1 FUSELINE_TEST_PYTHON=1 . deploy/install_dependencies.sh; fi

build=build/bundle
mkdir -p "$build"
if ! cmake --preset bundle >"$build/configure.log" 2>&1; then
  tail -n 30 "$build/configure.log" >&2
  exit 1
fi

# The test programs that need a device, as "name<TAB>path of the program"; without the path before they are built.
gpu_tests() {
  ctest --test-dir "$build" --show-only=json-v1 -L '^gpu$' | python3 -c '
import json, sys
for test in json.load(sys.stdin)["tests"]:
    print(test["name"], test.get("command", [""])[0], sep="\t")'
}
mapfile -t tests < <(gpu_tests | cut -f1)
ninja --quiet -C "$build" -j "$jobs" fuseline fuseline-server fuseline_launch conformance_onnx "${tests[@]}"

rm -rf "$output"
mkdir -p "$output/bin" "$output/tests" "$output/graphs/bench"
strip -o "$output/bin/fuseline" "$build/client/cli/fuseline"
strip -o "$output/bin/fuseline-server" "$build/server/fuseline-server"
while IFS=$'\t' read -r name program; do
  strip -o "$output/tests/$name" "$program"
done < <(gpu_tests)
strip -o "$output/tests/libfuseline_launch.so" "$build/client/launch/libfuseline_launch.so"
strip -o "$output/bin/conformance_onnx" "$build/tests/conformance/conformance_onnx"
# ONNX's backend tests in one file: they are thousands of small ones.
onnx_data=/usr/share/libonnx-testdata/data
if [ -d "$onnx_data" ]; then tar -czf "$output/onnx_data.tar.gz" -C "$onnx_data" node simple pytorch-converted pytorch-operator; fi
# Models with what onnxruntime makes of them.
models="$build/models"
rm -rf "$models"
if PYTHONPATH=.cache/test_python PYTHONDONTWRITEBYTECODE=1 python3 tests/models/make_models.py "$models" >"$build/models.log" 2>&1; then
  tar -czf "$output/models.tar.gz" -C "$models" models
else
  echo "bundle.sh: no models in the bundle: $(tail -n 1 "$build/models.log")" >&2
fi
# The Python package with the launch library, its tests, and the pages whose programs they run.
python="$output/python"
mkdir -p "$python/package" "$python/source/docs" "$python/source/deploy" "$python/source/tests"
FUSELINE_CLI="$build/client/cli/fuseline" FUSELINE_LAUNCH_LIBRARY="$build/client/launch/libfuseline_launch.so" \
  python3 -B client/python/package_resources.py "$python/package"
strip --strip-unneeded "$python/package/fuseline/libfuseline_launch.so"
cp README.md "$python/source/"
cp docs/ir.md docs/python.md docs/torch.md "$python/source/docs/"
cp -r deploy/examples "$python/source/deploy/"
cp -r tests/python "$python/source/tests/"
find "$python" -name __pycache__ -prune -exec rm -rf {} +
cp -r tests/cases "$output/cases"
cp deploy/examples/*.fl "$output/graphs/"
cp deploy/examples/bench/*.fl "$output/graphs/bench/"
cp tests/gpu/run_on_gpu.sh "$output/"

# What it was built from, so that results can be told apart.
{
  git rev-parse HEAD 2>/dev/null || echo unknown
  if [ -n "$(git status --porcelain 2>/dev/null)" ]; then echo "with uncommitted changes"; fi
} >"$output/REVISION"

for program in "$output"/bin/* "$output"/tests/*; do
  [ -f "$program" ] || continue
  needed="$(objdump -p "$program" | sed -n 's/^ *NEEDED *//p')"
  if extra="$(grep -v -e '^libfuseline_launch\.so' -e '^libc\.so' -e '^libm\.so' -e '^ld-linux' <<<"$needed")"; then
    echo "bundle.sh: $program needs more than libc and libm:" $extra >&2
    exit 1
  fi
done
gzip -9 -n "$output"/bin/*
if [ -n "$(ls "$output/tests")" ]; then gzip -9 -n "$output"/tests/*; fi
size="$(du -sk --apparent-size "$output" | cut -f1)"
echo "$output: $((size / 1024)) MB; $(ls "$output/tests" | wc -l) test programs, $(find "$output/cases" -name '*.json' | wc -l) cases"
