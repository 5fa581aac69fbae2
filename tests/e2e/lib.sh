# Sourced by the end-to-end tests: a scratch folder that goes away, the built tools, small checks that count.
set -u
source_dir=${RANKWRIGHT_SOURCE:?run through meson test}
bin=${RANKWRIGHT_BUILD:?run through meson test}/tools
export RANKWRIGHT_CONFIGS=$source_dir/configs
. "$source_dir/scripts/mpi_env"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
passed=0 failed=0

pass() { passed=$((passed + 1)); printf 'ok    %s\n' "$1"; }
miss() { failed=$((failed + 1)); printf 'FAIL  %s\n' "$1"; [ -n "${2:-}" ] && printf '%s\n' "$2" | sed 's/^/      | /' | tail -n 20; return 0; }

# expect CODE TEXT NAME COMMAND...: the command ends with CODE and its output (both streams) holds TEXT (a fixed string).
expect() {
  local code=$1 text=$2 name=$3 out got
  shift 3
  out=$(timeout 120 "$@" 2>&1 </dev/null)
  got=$?
  if [ "$got" -ne "$code" ]; then miss "$name: exit $got, expected $code" "$out"
  elif [[ "$out" != *"$text"* ]]; then miss "$name: the output does not hold: $text" "$out"
  else pass "$name"; fi
}
is() { if [ "$2" = "$3" ]; then pass "$1"; else miss "$1: expected '$3', found '$2'"; fi; }
holds() { if [ "${2#*"$3"}" != "$2" ]; then pass "$1"; else miss "$1: does not hold: $3" "$2"; fi; }

# field FILE KEY: the values of a number or string key in a JSON (lines) file, one a line.
field() { sed -n "s/.*\"$2\":\"\{0,1\}\([^,\"}]*\).*/\1/p" "$1"; }

finish() {
  printf '%d passed, %d failed\n' "$passed" "$failed"
  [ "$failed" -eq 0 ]
}

# A text that is the same everywhere: numbers spelled out, so that a model has something to learn.
make_text() {
  awk -v n="$1" 'BEGIN { split("zero one two three four five six seven eight nine", w, " ");
    for (i = 0; i < n; ++i) { s = i ""; line = ""; for (k = 1; k <= length(s); ++k) line = line w[substr(s, k, 1) + 1] " "; print line "is " i "." } }'
}
