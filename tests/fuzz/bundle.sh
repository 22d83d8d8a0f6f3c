#!/usr/bin/env bash
# Builds the fuzzers and packs them with their inputs and run_fuzzers.sh into one folder, which runs on a machine with glibc 2.36 or
# later and nothing else. Programs are packed (gzip) and stripped; to see where a finding is, run its input through the program in the
# build folder.
#   bundle.sh [--output DIR] [--build DIR] [--jobs N] [--no-install]     default: build/fuzz-bundle, built in build/fuzz
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

output=build/fuzz-bundle
build=
jobs="$(nproc)"
install=1
while [ $# -gt 0 ]; do
  case "$1" in
    --output) output="${2:?--output needs a folder}"; shift ;;
    --build) build="${2:?--build needs a folder}"; shift ;;
    --jobs) jobs="${2:?--jobs needs a value}"; shift ;;
    --no-install) install=0 ;;
    -h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "bundle.sh: unknown argument: $1 (see --help)" >&2; exit 2 ;;
  esac
  shift
done

if [ "$install" -eq 1 ]; then
  FUSELINE_SKIP_NVRTC=1 . deploy/install_dependencies.sh
  command -v clang++ >/dev/null || fuseline_apt_install clang llvm
fi
if [ -z "$build" ]; then
  build=build/fuzz
  mkdir -p "$build"
  if ! cmake --preset fuzz >"$build/configure.log" 2>&1; then
    tail -n 30 "$build/configure.log" >&2
    exit 1
  fi
fi
ninja --quiet -C "$build" -j "$jobs" fuzzers make_seeds

rm -rf "$output"
mkdir -p "$output/bin" "$output/seeds/text_parser" "$output/seeds/case_file"
for program in "$build"/tests/fuzz/*_fuzzer; do
  needed="$(objdump -p "$program" | sed -n 's/^ *NEEDED *//p')"
  if extra="$(grep -v -e '^libc\.so' -e '^libm\.so' -e '^libdl\.so' -e '^libpthread\.so' -e '^librt\.so' -e '^libresolv\.so' -e '^ld-linux' \
    <<<"$needed")"; then
    echo "bundle.sh: $program needs more than libc and libm:" $extra >&2
    exit 1
  fi
  strip -o "$output/bin/$(basename "$program")" "$program"
done
gzip -9 -n "$output"/bin/*
cp "$build"/tests/fuzz/*.dict "$output/bin/"
cp -r tests/fuzz/corpus tests/fuzz/regressions "$output/"
cp tests/fuzz/run_fuzzers.sh "$output/"

# Further inputs from all the cases: more than is worth committing.
python3 - "$output/seeds" <<'PYTHON'
import glob, json, os, shutil, sys
seeds = sys.argv[1]
seen = set()
for path in sorted(glob.glob("tests/cases/**/*.json", recursive=True)):
    name = os.path.basename(path)[:-5]
    if os.path.getsize(path) <= 8000:
        shutil.copy(path, f"{seeds}/case_file/{name}.json")
    with open(path, encoding="utf-8") as file:
        graph = json.load(file)["graph"]
    if len(graph) <= 8000 and graph not in seen:
        seen.add(graph)
        with open(f"{seeds}/text_parser/{name}.fl", "w", encoding="utf-8") as file:
            file.write(graph)
PYTHON
"$build/tests/fuzz/make_seeds" "$output/seeds" "$output"/seeds/text_parser/*.fl 2>/dev/null || true # graphs that must not parse

{
  git rev-parse HEAD 2>/dev/null || echo unknown
  if [ -n "$(git status --porcelain 2>/dev/null)" ]; then echo "with uncommitted changes"; fi
} >"$output/REVISION"
echo "$output: $(($(du -sk --apparent-size "$output" | cut -f1) / 1024)) MB; $(find "$output"/corpus "$output"/seeds "$output"/regressions -type f | wc -l) inputs"
