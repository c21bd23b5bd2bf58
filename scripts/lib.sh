# Shared functions of the scripts: install missing packages, configure and build a preset, run ranks. Sourced by bash.
# All paths are relative to the root of the repository, the working directory after sourcing this file.

set -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

# Packages to build and run the program, and further ones for the tests.
build_packages=(g++ cmake ninja-build pkg-config ccache libopenmpi-dev openmpi-bin nlohmann-json3-dev libcli11-dev libfmt-dev
  libspdlog-dev libisal-dev libhdf5-openmpi-dev liburing-dev)
test_packages=(git libgtest-dev libgmock-dev libbenchmark-dev python3 python3-venv clang clang-format clang-tidy mpich
  libmpich-dev slurm-wlm hdf5-tools libfuse3-dev e2fsprogs mount)

jobs=$(nproc)

# Open MPI asks twice before it runs as root, and counts cores before it starts more ranks than there are.
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none
if [ "$(id -u)" = 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

headline() { printf '\n== %s\n' "$*"; }

# Prints a command as a user would type it, and runs it.
show() {
  printf '$ %s\n' "$*"
  "$@"
}

is_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# install_packages NAME...: installs the missing ones, as root or by sudo, and reports it.
install_packages() {
  local missing=() package
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "This is not Debian or Ubuntu: nothing is installed. Needed is what Debian calls: $*"
    return 0
  fi
  for package in "$@"; do
    is_installed "$package" || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
      as_root=(sudo)
    else
      echo "Packages are missing, and this user can neither be root nor use sudo without a password. Install them by:" >&2
      echo "  apt-get install -y ${missing[*]}" >&2
      exit 1
    fi
  fi
  echo "Installing by apt-get: ${missing[*]}"
  local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends)
  # Missing or old package lists make the first attempt fail.
  if ! "${install[@]}" "${missing[@]}" >/dev/null 2>&1; then
    "${as_root[@]}" apt-get update -q >/dev/null || true
    if ! "${install[@]}" "${missing[@]}" >/dev/null; then
      echo "apt-get could not install them; see its message above." >&2
      exit 1
    fi
  fi
}

# The sanitizer and fuzzer runtime of clang is a package of its own on some releases, named after clang's version.
install_clang_runtime() {
  local version package
  command -v clang >/dev/null || return 0
  version=$(clang -dumpversion | cut -d. -f1)
  package="libclang-rt-$version-dev"
  if apt-cache show "$package" >/dev/null 2>&1; then
    install_packages "$package"
  fi
}

# configure PRESET [CMAKE_ARGUMENT...]
configure() {
  local preset=$1
  shift
  # Warnings of other compilers, which were never checked, are no reason not to build.
  if [ "$(c++ -dumpversion | cut -d. -f1)" != 12 ]; then
    set -- -DCAIRN_WERROR=OFF "$@"
  fi
  mkdir -p "build/$preset"
  cmake --preset "$preset" "$@" >"build/$preset/configure.log" 2>&1 || {
    cat "build/$preset/configure.log" >&2
    return 1
  }
}

# "1 h 02 min", "3 min 20 s", "12 s"
duration() {
  if [ "$1" -ge 3600 ]; then
    printf '%d h %02d min' $(($1 / 3600)) $(($1 % 3600 / 60))
  elif [ "$1" -ge 60 ]; then
    printf '%d min %02d s' $(($1 / 60)) $(($1 % 60))
  else
    printf '%d s' "$1"
  fi
}

# follow_build WHAT LOG: copies the output of ninja from standard input to LOG and reports the progress:
# on a terminal in one line that changes, otherwise in a line every $progress_s seconds.
progress_s=30
follow_build() {
  local what=$1 log=$2 start=$SECONDS last=$SECONDS now line status
  : >"$log"
  while :; do
    status=0
    IFS= read -r -t "$progress_s" line || status=$?
    if [ $status -gt 128 ]; then # no output for that long, or only a part of a line
      printf '%s' "$line" >>"$log"
    elif [ $status -ne 0 ]; then
      printf '%s' "$line" >>"$log"
      break
    else
      printf '%s\n' "$line" >>"$log"
    fi
    if [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]]; then
      now="${BASH_REMATCH[1]} of ${BASH_REMATCH[2]} steps ($((100 * BASH_REMATCH[1] / BASH_REMATCH[2])) %)"
    fi
    if [ -t 1 ]; then
      printf '\r%s: %s, %s\033[K' "$what" "${now:-starting}" "$(duration $((SECONDS - start)))"
    elif [ $((SECONDS - last)) -ge "$progress_s" ]; then
      last=$SECONDS
      printf '%s: %s, %s\n' "$what" "${now:-starting}" "$(duration $((SECONDS - start)))"
    fi
  done
  [ ! -t 1 ] || printf '\r\033[K'
  [ -z "${now:-}" ] || printf '%s: %s, %s\n' "$what" "$now" "$(duration $((SECONDS - start)))"
}

# build FOLDER [TARGET...]: prints the progress, and any errors.
build() {
  local folder=$1
  shift
  local log="$folder/build.log"
  if ! NINJA_STATUS='[%f/%t] ' cmake --build "$folder" -j "$jobs" ${1:+--target "$@"} 2>&1 |
    follow_build "$folder" "$log"; then # pipefail is set
    grep -E -A 12 'FAILED|error|undefined' "$log" | head -100 >&2
    echo "building $folder failed; all of it is in $log" >&2
    return 1
  fi
}

# Whether there is an NVIDIA GPU that programs may use (WSL has it elsewhere).
has_gpu() { compgen -G '/dev/nvidia[0-9]*' >/dev/null || [ -e /dev/dxg ]; }

# The launcher that belongs to the MPI a build folder uses.
launcher_of() { sed -n 's/^MPIEXEC_EXECUTABLE:[A-Z]*=//p' "$1/CMakeCache.txt"; }
