# Sourced by tests that ask published Python packages: makes a virtual environment of pinned ones in the scratch folder
# and runs a script in it. Where it cannot be made (no PyPI, no venv module) the test is skipped and says so.
set -u
script_dir=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# run_with SCRIPT PACKAGE==VERSION...
run_with() {
  local script=$1
  shift
  if ! { python3 -m venv "$scratch/venv" && timeout 240 "$scratch/venv/bin/pip" install --quiet --disable-pip-version-check \
      --retries 1 --timeout 20 "$@"; } >"$scratch/pip.log" 2>&1; then
    printf 'skipped: no Python packages %s: %s\n0 passed, 0 failed\n' "$*" "$(tail -n 1 "$scratch/pip.log")"
    exit 0
  fi
  "$scratch/venv/bin/python" -B "$script_dir/$script"
}
