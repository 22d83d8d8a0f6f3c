#!/usr/bin/env bash
# Prints the Debian packages that hold the shared libraries which the programs load at their start, one a line.
#   list_packages.sh PROGRAM…
# Exit code 1 where a library is missing or in no package: an image without it would not start.
set -euo pipefail

libraries="$(for program in "$@"; do ldd "$program"; done)"
if grep 'not found' <<<"$libraries" >&2; then exit 1; fi
# dpkg knows a file by the path that its package gives it, which since /lib became /usr/lib is either of the two.
sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' <<<"$libraries" | sort -u | while read -r path; do
  path="$(realpath "$path")"
  package="$( (dpkg-query -S "$path" || dpkg-query -S "${path#/usr}") 2>/dev/null | head -n 1 | cut -d: -f1)" || true
  if [ -z "$package" ]; then
    echo "list_packages: $path is in no package" >&2
    exit 1
  fi
  echo "$package"
done | sort -u
