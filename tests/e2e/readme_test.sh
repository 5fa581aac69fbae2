#!/usr/bin/env bash
# The README's commands do what it says, and its generated table is fresh.
. "$(dirname "$0")/lib.sh"

expect 0 '' 'the flags table is fresh' env BUILD="${bin%/tools}" "$source_dir/scripts/readme_tables" --check
awk '/^<!-- test: commands -->$/ { want = 1; next } want && /^```sh$/ { inside = 1; next } inside && /^```$/ { exit } inside' "$source_dir/README.md" |
  sed "s|/tmp/rankwright-demo|$scratch/demo|g" >commands
is 'the README holds commands to test' "$([ "$(wc -l <commands)" -ge 8 ] && echo yes)" yes
mkdir demo
export PATH="$bin:$PATH"
while read -r command; do
  case $command in
    scripts/build*) expect 0 '' 'scripts/build exists' test -x "$source_dir/scripts/build" ;;
    export*) ;;
    *) expect 0 '' "${command%%  *}" bash -c "cd '$source_dir' && $command" ;;
  esac
done <commands
is 'training went on to step 40' "$(tail -n 1 demo/run/metrics.jsonl | sed 's/.*"step":\([0-9]*\),.*/\1/')" 40
expect 0 '' 'the export has a model' test -s demo/hf/model.safetensors
finish
