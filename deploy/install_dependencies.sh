# Installs what building and running Fuseline needs on Debian 12 and is not there yet. To be sourced:
#
#   . deploy/install_dependencies.sh
#
# Debian's packages come from apt-get, as root or through sudo; nothing is touched where none is missing. Without a CUDA toolkit,
# NVRTC (the compiler for CUDA targets) comes from PyPI's wheel into .cache/nvrtc; where that can't be reached, the build goes on
# without it and CUDA targets are reported as not available. Sets FUSELINE_NVRTC_DIR to the folder of libnvrtc.so where it is known.
# FUSELINE_SKIP_NVRTC=1: does not look for NVRTC.
# FUSELINE_TEST_PYTHON=1: also fetches the Python packages that some tests need from PyPI, into .cache/test_python; where that can't be
# reached, those tests are skipped.
# FUSELINE_TEST_REDIS=1: also installs the Redis server, for tests of the shared cache; where it can't be, those tests are skipped.
# FUSELINE_TEST_DEPLOY=1: also installs what checks the files of deploy/ and docker/ (HAProxy, nginx, promtool, kubernetes-validate); checks
# whose program can't be installed are skipped.
# FUSELINE_TEST_BROWSER=1: also installs Chromium, for the test of the page of `explain --html`; where it can't be, that test is skipped.
# FUSELINE_FUNCTIONS_ONLY=1: installs nothing; for scripts that use the functions here.
# Returns 0, or 1 where Debian packages are missing and can't be installed.

fuseline_root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

fuseline_packages=(
  libgrpc++-dev protobuf-compiler-grpc libprotobuf-dev protobuf-compiler libabsl-dev librocksdb-dev libgtest-dev libgmock-dev
  libbenchmark-dev libgoogle-perftools-dev nlohmann-json3-dev libcli11-dev libspdlog-dev libssl-dev zlib1g-dev
  libhiredis-dev libboost-context-dev libonnx-dev libonnx-testdata prometheus-cpp-dev ccache ninja-build cmake g++ git python3
  python3-venv)

# For tests/models, in .cache/test_python.
fuseline_test_wheels=('numpy<3' 'onnx==1.23.2' 'onnxruntime==1.32.0')

# For tests/tools/deploy_configs_test.py, in .cache/test_deploy.
fuseline_deploy_wheels=('kubernetes-validate==1.37.0')

# Runs its arguments as root.
fuseline_as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null 2>&1; then
    sudo -n "$@" || sudo "$@"
  else
    echo "install_dependencies: not root, and there is no sudo: can't run: $*" >&2
    return 1
  fi
}

# fuseline_apt_install PACKAGE…: quiet; the log is shown only if it fails. The package lists are fetched first.
fuseline_apt_install() {
  local log
  log="$(mktemp)"
  if fuseline_as_root apt-get -q -y update >"$log" 2>&1 &&
    fuseline_as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install "$@" >>"$log" 2>&1; then
    rm -f "$log"
    return 0
  fi
  tail -n 20 "$log" >&2
  rm -f "$log"
  return 1
}

fuseline_missing_packages() {
  local package
  for package in "${fuseline_packages[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
  done
}

fuseline_install_packages() {
  local missing
  if ! command -v dpkg-query >/dev/null 2>&1; then
    echo "install_dependencies: not a Debian system; install the equivalents of: ${fuseline_packages[*]}" >&2
    return 0
  fi
  mapfile -t missing < <(fuseline_missing_packages)
  [ "${#missing[@]}" -gt 0 ] || return 0
  echo "installing ${#missing[@]} Debian packages: ${missing[*]}"
  if ! fuseline_apt_install "${missing[@]}"; then
    echo "install_dependencies: could not install: ${missing[*]}" >&2
    return 1
  fi
}

# The folder of a libnvrtc that is there already, or nothing.
fuseline_find_nvrtc() {
  local library
  library="$( (ldconfig -p 2>/dev/null || /sbin/ldconfig -p 2>/dev/null) | sed -n 's/.*libnvrtc\.so\.[0-9]* .*=> //p' | head -n 1)" || true
  if [ -z "$library" ]; then
    library="$(ls -1 /usr/local/cuda*/lib64/libnvrtc.so.[0-9]* /usr/local/cuda*/targets/*/lib/libnvrtc.so.[0-9]* \
      "$fuseline_root"/.cache/nvrtc/nvidia/*/lib/libnvrtc.so.[0-9]* 2>/dev/null | head -n 1)" || true
  fi
  if [ -n "$library" ]; then dirname "$library"; fi
}

# The wheel for the driver: one generation of CUDA can't load the next one's code.
fuseline_nvrtc_wheel() {
  if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi 2>/dev/null | grep -q 'CUDA Version: 12'; then
    echo 'nvidia-cuda-nvrtc-cu12'
  else
    echo 'nvidia-cuda-nvrtc<14'
  fi
}

# fuseline_pip_install FOLDER ARGUMENT…: packages from PyPI into a folder of their own.
fuseline_pip_install() {
  if ! python3 -m pip --version >/dev/null 2>&1; then fuseline_apt_install python3-pip || true; fi
  timeout 300 python3 -m pip install -q --disable-pip-version-check --retries 1 --target "$@" >/dev/null 2>&1
}

# Done where the marker says that these very packages are there; a half-done try is begun anew.
fuseline_install_test_python() {
  local folder="$fuseline_root/.cache/test_python" wanted="${fuseline_test_wheels[*]}"
  [ "$(cat "$folder/installed" 2>/dev/null)" != "$wanted" ] || return 0
  echo "fetching Python packages for tests into .cache/test_python: $wanted"
  rm -rf "$folder"
  if fuseline_pip_install "$folder" "${fuseline_test_wheels[@]}"; then
    echo "$wanted" >"$folder/installed"
  else
    rm -rf "$folder"
    echo "they could not be fetched: tests that need them are skipped" >&2
  fi
}

fuseline_install_nvrtc() {
  FUSELINE_NVRTC_DIR="$(fuseline_find_nvrtc)"
  if [ -z "$FUSELINE_NVRTC_DIR" ]; then
    echo "no CUDA toolkit here: fetching NVRTC's wheel into .cache/nvrtc"
    if fuseline_pip_install "$fuseline_root/.cache/nvrtc" --no-deps "$(fuseline_nvrtc_wheel)"; then
      FUSELINE_NVRTC_DIR="$(fuseline_find_nvrtc)"
    fi
  fi
  if [ -z "$FUSELINE_NVRTC_DIR" ]; then
    echo "NVRTC could not be fetched: going on without CUDA targets" >&2
    return 0
  fi
  export FUSELINE_NVRTC_DIR
}

fuseline_install_browser() {
  ! command -v chromium >/dev/null 2>&1 || return 0
  command -v apt-get >/dev/null 2>&1 || return 0
  echo "installing Chromium for tests"
  fuseline_apt_install chromium || echo "it could not be installed: the tests that need it are skipped" >&2
}

# Tests start servers of their own; as root the package's service is not started.
fuseline_install_redis() {
  local packages=()
  command -v redis-server >/dev/null 2>&1 || packages+=(redis-server)
  # Several hosts on one machine.
  PATH="$PATH:/usr/sbin:/sbin" command -v ip >/dev/null 2>&1 || packages+=(iproute2)
  if [ "${#packages[@]}" -eq 0 ] || ! command -v apt-get >/dev/null 2>&1; then return 0; fi
  echo "installing for tests: ${packages[*]}"
  RUNLEVEL=1 fuseline_apt_install "${packages[@]}" || echo "they could not be installed: the tests that need them are skipped" >&2
}

# Only to read files with: as root the packages' services are not started.
fuseline_install_deploy_checks() {
  local folder="$fuseline_root/.cache/test_deploy" wanted="${fuseline_deploy_wheels[*]}" packages=()
  if command -v apt-get >/dev/null 2>&1; then
    PATH="$PATH:/usr/sbin" command -v haproxy >/dev/null 2>&1 || packages+=(haproxy)
    PATH="$PATH:/usr/sbin" command -v nginx >/dev/null 2>&1 || packages+=(nginx-light)
    command -v promtool >/dev/null 2>&1 || packages+=(prometheus)
    command -v systemd-analyze >/dev/null 2>&1 || packages+=(systemd)
    if [ "${#packages[@]}" -gt 0 ]; then
      echo "installing for checks of deploy/: ${packages[*]}"
      RUNLEVEL=1 fuseline_apt_install "${packages[@]}" || echo "they could not be installed: checks that need them are skipped" >&2
    fi
  fi
  [ "$(cat "$folder/installed" 2>/dev/null)" != "$wanted" ] || return 0
  rm -rf "$folder"
  if fuseline_pip_install "$folder" "${fuseline_deploy_wheels[@]}"; then
    echo "$wanted" >"$folder/installed"
  else
    rm -rf "$folder"
    echo "kubernetes-validate could not be fetched: checks that need it are skipped" >&2
  fi
}

if [ "${FUSELINE_FUNCTIONS_ONLY:-0}" = 1 ]; then return 0; fi
fuseline_install_packages || return 1 2>/dev/null || exit 1
if [ "${FUSELINE_SKIP_NVRTC:-0}" != 1 ]; then fuseline_install_nvrtc; fi
if [ "${FUSELINE_TEST_PYTHON:-0}" = 1 ]; then fuseline_install_test_python; fi
if [ "${FUSELINE_TEST_REDIS:-0}" = 1 ]; then fuseline_install_redis; fi
if [ "${FUSELINE_TEST_DEPLOY:-0}" = 1 ]; then fuseline_install_deploy_checks; fi
if [ "${FUSELINE_TEST_BROWSER:-0}" = 1 ]; then fuseline_install_browser; fi
