#!/usr/bin/env bash
# Faults around saving in the nodes' own folders (4 ranks as 2 nodes): a rank or the job is killed, a local disk fails or is
# full, a copy on the neighbour is damaged; and then perhaps a node does not come back. What was committed, in either tier,
# is found again.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/fault_lib.sh"
prepare nodes
run_id=$(ls base-nodes/node-0)
is 'both nodes hold the newest step' "$(ls base-nodes/node-[01]/"$run_id" | grep -c "step-0000000$newest")" 2
lose_a_node() { rm -rf "run/node-$((RANDOM % 2))"; }

rank=0
for action in kill kill-half kill-job eio enospc; do
  list_operations nodes $rank step- >operations
  while read -r n kind _; do
    after=:
    [ $((RANDOM % 2)) -eq 0 ] || after=lose_a_node
    at_operation nodes "action=$action op=any at=$n path=step- rank=$rank" 0 1 2 137
  done < <(pick "$(amount 12 1)" <operations)
  rank=$(((rank + 1) % 4))
done
after=:
at_operation nodes 'action=enospc op=write at=1 sticky=1 path=node-1' 0 1
at_operation nodes 'action=eio op=any at=1 sticky=1 path=node-0' 0 1 2
at_operation nodes 'action=slow ms=40 path=node-1' 0

# ---- damage in the folders, where the durable tier has step 4 only ----
step=$(printf 'step-%08d' $newest)
damaged() {  # NAME FLOOR TEXT COMMAND...
  begin "$1"
  local floor=$2 text=$3
  shift 3
  fresh nodes
  rm -rf "run/checkpoints/$step"
  "$@"
  recovers nodes "$floor" "$text"
  count
}
in_node() { echo "run/node-$1/$run_id/$step/$2"; }
overwrite() { printf x | dd of="$1" bs=1 seek=$((4096 + RANDOM)) conv=notrunc 2>/dev/null; }
for rank in $(seq 0 $(($(amount 4 1) - 1))); do
  file=$(printf 'rank-%05d.h5' "$rank")
  damaged "$file is missing on one node" $newest "at step $newest" rm "$(in_node 0 "$file")"
  damaged "$file is cut short on one node" $newest 'passed over a damaged file' truncate -s 5000 "$(in_node 1 "$file")"
  damaged "$file is damaged on one node" $newest 'passed over a damaged file' overwrite "$(in_node 0 "$file")"
  damaged "$file is missing on both nodes" 4 "not complete, no node has $file" rm "$(in_node 0 "$file")" "$(in_node 1 "$file")"
done
damaged 'a node has an empty manifest' $newest manifest.json truncate -s 0 "$(in_node 1 manifest.json)"
damaged 'a node is new' $newest "at step $newest" rm -rf run/node-0
damaged 'both nodes are new' 4 'at step 4' rm -rf run/node-0 run/node-1
damaged 'a local save that was interrupted' $newest "at step $newest" cp -r "run/node-0/$run_id/$step" "run/node-0/$run_id/step-00000008.tmp"
tally
