#!/usr/bin/env bash
# Makes the secrets of the compose set-up in docker/secrets, where they are not there yet: Redis' password, and the key that cache entries are
# signed with. They may be read by the group of the image's user (10001) and by no one else.
#   make_secrets.sh [FOLDER]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

folder="${1:-secrets}"
group=10001
umask 0077
mkdir -p "$folder"
# Containers look into it as another user; its files have their own modes.
chmod 0711 "$folder"
[ -s "$folder/redis_password" ] || od -An -v -tx1 -N24 /dev/urandom | tr -d ' \n' >"$folder/redis_password"
[ -s "$folder/cache_keys" ] || printf 'key-%s %s\n' "$(date +%Y%m%d)" "$(od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n')" >"$folder/cache_keys"
as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)
"${as_root[@]}" chgrp "$group" "$folder/redis_password" "$folder/cache_keys"
"${as_root[@]}" chmod 0440 "$folder/redis_password" "$folder/cache_keys"
echo "secrets are in $(cd "$folder" && pwd)"
