# Checks the arguments of a benchmark in Python, and finds a Python with the packages that it pins.
# Sourced by bash after scripts/lib.sh.

# check_arguments PROGRAM ARGUMENT...: exits if the arguments request help or are wrong (arguments.py). Needs no
# packages.
check_arguments() {
  local status=0
  python3 "$@" || status=$?
  [ "$status" = 100 ] || exit "$status"
}

has_packages() { [ -x "$1/bin/python" ] && "$1/bin/python" scripts/check_requirements.py "$2" >/dev/null; }

# find_python REQUIREMENTS: sets `python` to the Python of CAIRN_VENV, build/venv or build/peers-venv that has the
# packages. If there is none, installs them into build/peers-venv.
find_python() {
  local venv requirements=$1
  for venv in ${CAIRN_VENV:+"$CAIRN_VENV"} build/venv build/peers-venv; do
    if has_packages "$venv" "$requirements"; then
      python=$(cd "$venv" && pwd)/bin/python
      return
    fi
  done
  echo "Installing the Python packages of $requirements into build/peers-venv (large, once)" >&2
  python3 -m venv --clear build/peers-venv
  build/peers-venv/bin/pip install -q --disable-pip-version-check -r "$requirements"
  python=$PWD/build/peers-venv/bin/python
}

# build_programs: builds the programs that benchmarks in Python start (release); sets CAIRN_BIN_DIR.
build_programs() {
  install_packages "${build_packages[@]}" >&2
  configure release
  build build/release cairn cairn_peer_program cairn_metadata_load
  CAIRN_BIN_DIR=$PWD/build/release/bin
}
