# To be sourced by the scripts here, which need a container engine:
#
#   . docker/engine.sh
#   container_find_engine          sets `engine` to docker or podman (CONTAINER_ENGINE names one); podman is installed where neither works
#   container_ensure_base IMAGE    makes IMAGE, a small Debian 12, with debootstrap where it is not here and no registry gives it
#
# To be sourced in the root of the tree. Each returns 1, having said why, where it can't. Needs fuseline_apt_install of deploy/install_dependencies.sh.

container_packages=(podman buildah runc netavark aardvark-dns iptables uidmap catatonit)

container_configure_podman() {
  if [ -z "${CONTAINERS_CONF:-}" ] && [ ! -d /run/systemd/system ]; then export CONTAINERS_CONF="$PWD/docker/containers.conf"; fi
}

container_find_engine() {
  if [ -n "${CONTAINER_ENGINE:-}" ]; then
    engine="$CONTAINER_ENGINE"
    if [ "$engine" = podman ]; then container_configure_podman; fi
    return 0
  fi
  if command -v docker >/dev/null 2>&1 && docker info >/dev/null 2>&1; then
    engine=docker
    return 0
  fi
  if ! command -v podman >/dev/null 2>&1; then
    echo "installing podman"
    fuseline_apt_install "${container_packages[@]}" || { echo "no container engine: neither Docker answers, nor can podman be installed" >&2; return 1; }
  fi
  container_configure_podman
  if ! podman info >/dev/null 2>&1; then
    echo "podman does not work here: $(podman info 2>&1 | tail -n 1)" >&2
    return 1
  fi
  engine=podman
}

container_ensure_base() {
  local image="$1" root log
  ! "$engine" image inspect "$image" >/dev/null 2>&1 || return 0
  if timeout 120 "$engine" pull -q "docker.io/library/$image" >/dev/null 2>&1; then return 0; fi
  echo "no registry gives $image: making it with debootstrap"
  command -v debootstrap >/dev/null 2>&1 || fuseline_apt_install debootstrap || return 1
  root="$(mktemp -d "${TMPDIR:-/tmp}/fuseline-base.XXXXXX")"
  log="$root.log"
  if ! fuseline_as_root debootstrap --variant=minbase bookworm "$root" >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    fuseline_as_root rm -rf "$root" "$log"
    return 1
  fi
  # Packages come from where this machine gets its own; without such a file, from where debootstrap got them.
  if [ -f /etc/apt/sources.list.d/debian.sources ]; then
    fuseline_as_root cp /etc/apt/sources.list.d/debian.sources "$root/etc/apt/sources.list.d/"
    fuseline_as_root rm -f "$root/etc/apt/sources.list"
  fi
  # What Debian's own slim image leaves out.
  fuseline_as_root sh -c "rm -rf $root/usr/share/doc/* $root/usr/share/man/* $root/usr/share/info/* $root/usr/share/locale/* \
    $root/usr/share/lintian/* $root/var/cache/apt/* $root/var/lib/apt/lists/* $root/var/log/*"
  fuseline_as_root tar -C "$root" -cf - . | "$engine" import - "docker.io/library/$image" >/dev/null || return 1
  fuseline_as_root rm -rf "$root" "$log"
}
