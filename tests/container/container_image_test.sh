#!/usr/bin/env bash
# Builds the image from the programs of a build folder, and runs docker/smoke_test.sh on it.
#   container_image_test.sh BUILD-FOLDER
# Exit code: 0 passed, 1 failed, 77 there is no container engine and none can be installed.
set -euo pipefail
build="$(cd "${1:?which build folder?}" && pwd)"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

image="fuseline-test:$$"
warmed="fuseline-test-warmed:$$"
work="$(mktemp -d "${TMPDIR:-/tmp}/fuseline-container.XXXXXX")"
# Layers stay for the next run; the image itself does not.
finish() { rm -rf "$work"; "${CONTAINER_ENGINE:-podman}" rmi -f "$image" "$warmed" >/dev/null 2>&1 || true; }
trap finish EXIT
docker/build.sh --prebuilt "$build" --tag "$image"
docker/smoke_test.sh --cluster --image "$image" --cli "$build/client/cli/fuseline"
# A baked image starts with hits.
mkdir "$work/graphs"
cp deploy/examples/*.fl "$work/graphs"
docker/build.sh --prebuilt "$build" --tag "$warmed" --warm "$work/graphs"
docker/smoke_test.sh --image "$warmed" --cli "$build/client/cli/fuseline" --baked deploy/examples/pointwise_example.fl
