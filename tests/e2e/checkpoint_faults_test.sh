#!/usr/bin/env bash
# Faults around saving: operations that fail, lie, crawl or kill, killed ranks and jobs, damaged files, leftovers. After
# each, a resume must find the newest intact checkpoint, say what it passed over, and go on with the losses of a run that
# met no fault. RANKWRIGHT_FULL=1 tries at least 500 of them, otherwise some 100 chosen by RANKWRIGHT_SEED.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/fault_lib.sh"
prepare one
prepare two

# ---- one rank: operations that fail ----
list_operations one 0 /checkpoints >operations
is 'the shim sees how a checkpoint is made' "$(awk '{ print $2 }' operations | sort -u | grep -cE '^(write|sync|rename|mkdir|open)$')" 5
for action in eio enospc; do
  while read -r n kind _; do
    at_operation one "action=$action op=any at=$n path=/checkpoints sticky=$((RANDOM % 4 == 0))" 0 1 2
  done < <(pick "$(amount 70 8)" <operations)
done
# By kind, for as long as it lasts: a disk that went away, or is full.
for kind in open write resize allocate sync rename mkdir unlink rmdir close; do
  [ -n "$full" ] || [ $((RANDOM % 3)) -eq 0 ] || continue
  at_operation one "action=enospc op=$kind at=1 path=/checkpoints sticky=1" 0 1 2
  at_operation one "action=eio op=$kind at=1 sticky=1" 0 1 2
done
# A save that fails is told, and the run goes on; the last one may not fail.
says='step 8: no checkpoint was saved' at_operation one 'action=eio op=sync path=step-00000008.tmp' 0
says='step 8: no checkpoint was saved' at_operation one 'action=enospc op=allocate path=step-00000008.tmp' 0
says='could not save the last checkpoint' at_operation one 'action=enospc op=write sticky=1 path=/checkpoints' 1
says='could not save the last checkpoint' at_operation two 'action=eio op=rename sticky=1 path=/checkpoints rank=0' 1
at_operation one 'action=short op=write path=/checkpoints' 0
at_operation one 'action=slow ms=40 op=any' 0

# ---- one rank: killed between two operations, in the middle of a write, at any moment ----
for action in kill kill-half; do
  while read -r n kind _; do
    at_operation one "action=$action op=any at=$n path=/checkpoints" 137
  done < <(pick "$(amount 70 8)" <operations)
done
for _ in $(seq "$(amount 40 4)"); do
  begin 'killed at any moment on a slow disk'
  fresh one
  with_fault 'action=slow ms=30'
  job one run
  { timeout -s KILL "0.$((RANDOM % 30 + 4))" "${job[@]}" --steps $last --resume auto >log 2>&1 </dev/null; } 2>/dev/null
  wait_for_ranks
  recovers one "$(committed run)"
  count
done
for _ in $(seq "$(amount 10 2)"); do
  begin 'killed twice in a row'
  fresh one
  for _ in 1 2; do
    with_fault "action=kill op=any at=$((RANDOM % $(wc -l <operations) + 1)) path=/checkpoints"
    go one $last
  done
  recovers one "$(committed run)"
  count
done

# ---- two ranks: one is killed, or the whole job ----
for rank in 0 1; do
  list_operations two $rank /checkpoints >operations-$rank
  for action in kill kill-half kill-job; do
    while read -r n kind _; do
      at_operation two "action=$action op=any at=$n path=/checkpoints rank=$rank" 137
    done < <(pick "$(amount 8 1)" <operations-$rank)
  done
  for action in eio enospc; do
    while read -r n kind _; do
      at_operation two "action=$action op=any at=$n path=/checkpoints rank=$rank" 0 1 2
    done < <(pick "$(amount 8 1)" <operations-$rank)
  done
done

# What one rank cannot read no rank may go on from: all take the step before.
for rank in 0 1; do
  for file in rank-00000.h5 rank-00001.h5 manifest.json; do
    for n in 1 2; do at_operation two "action=eio op=open at=$n sticky=1 path=step-00000006/$file rank=$rank" 0 1 2; done
  done
done

# ---- bits that change on their way to the disk: only digests taken from memory can tell ----
random() { echo $((RANDOM * 32768 + RANDOM)); }
fresh one
with_fault 'action=list op=write path=/checkpoints'
go one 8
n_writes=$(wc -l <fired)
for i in $(seq "$(amount 45 6)"); do
  n=$((i % n_writes + 1)) bit=$(random)
  begin "bit $bit flipped in write $n"
  fresh one
  with_fault "action=flip op=write path=/checkpoints at=$n bit=$bit"
  go one 8
  [ -s fired ] || continue
  [ $code -eq 0 ] || bad "exit $code"
  stays=$(step_dir run 8)
  "$bin/dckpt" verify "$stays" >verify.log 2>&1
  code=$?
  [ $code -eq 3 ] || bad "dckpt verify ends with $code for flipped bits: $(cat verify.log)"
  recovers one $newest "$stays"
  count
done

# ---- files that are damaged afterwards ----
# flip FILE OFFSET
flip() {
  local byte
  byte=$(dd if="$1" bs=1 skip="$2" count=1 2>/dev/null | od -An -tu1 | tr -d ' ')
  printf "$(printf '\\%03o' $((byte ^ (1 << RANDOM % 8))))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}
# pieces MANIFEST: "TENSOR OFFSET BYTES" of the data in the first file.
pieces() {
  awk -F'"' '/^\{"name": / { name = $4 } /"file":0,/ {
    match($0, /"at":[0-9]+/); at = substr($0, RSTART + 5, RLENGTH - 5)
    match($0, /"extent":\[[0-9,]+/); n = split(substr($0, RSTART + 10, RLENGTH - 10), extent, ","); bytes = 4
    for (i = 1; i <= n; ++i) bytes *= extent[i]
    print name, at, bytes }' "$1"
}
# damaged NAME VERIFY_TEXT RESUME_TEXT: what was done to step 6 of `run` is found and passed over.
damaged() {
  begin "$1"
  stays=$(step_dir run 6)
  "$bin/dckpt" verify run >log 2>&1
  code=$?
  [ $code -eq 3 ] || bad "dckpt verify run ends with $code"
  grep -qF -- "$2" log || bad "dckpt verify does not say: $2"
  recovers one "${floor:-4}" "$3"
  count
}
shard=$(step_dir run 6)/rank-00000.h5 manifest=$(step_dir run 6)/manifest.json
fresh one
bytes=$(stat -c %s "$shard") text=$(stat -c %s "$manifest")
pieces "$manifest" >data
is 'the data of a shard, as its manifest says' "$(awk '{ n += $3 } END { print n }' data)" $((3 * 4 * $(sed -n 's/^ *"params": \([0-9]*\).*/\1/p' unbroken-one/run.json)))
for _ in $(seq "$(amount 30 3)"); do
  fresh one; flip "$shard" $(($(random) % bytes)); damaged 'a flipped bit anywhere in a shard' rank-00000.h5 rank-00000.h5
  fresh one; read -r tensor at size < <(sed -n "$((RANDOM % $(wc -l <data) + 1))p" data); flip "$shard" $((at + $(random) % size)); damaged "a flipped bit in $tensor" "tensor $tensor" "tensor $tensor"
  fresh one; flip "$manifest" $(($(random) % text)); damaged 'a flipped bit in a manifest' manifest.json manifest.json
  fresh one; truncate -s $(($(random) % bytes)) "$shard"; damaged 'a shard cut short' rank-00000.h5 rank-00000.h5
done
for _ in $(seq "$(amount 10 1)"); do
  fresh one; truncate -s $(($(random) % text)) "$manifest"; damaged 'a manifest cut short' manifest.json manifest.json
  fresh one; flip "$shard" $((RANDOM % 96)); damaged "a flipped bit in HDF5's superblock" rank-00000.h5 rank-00000.h5
  fresh one; at=$(grep -abo -E 'SNOD|TREE|HEAP' "$shard" | cut -d: -f1 | shuf -n 1 --random-source=<(yes $RANDOM)); flip "$shard" $((at + RANDOM % 8)); damaged "a flipped bit in HDF5's tables" rank-00000.h5 rank-00000.h5
  fresh one; flip "$shard" $((bytes - 1 - RANDOM % 16)); damaged 'a flipped bit in the padding' rank-00000.h5 rank-00000.h5
  fresh one; dd if=/dev/zero of="$shard" bs=512 seek=$((RANDOM % (bytes / 512))) count=1 conv=notrunc 2>/dev/null; dd if=/dev/urandom of="$shard" bs=512 seek=$((RANDOM % (bytes / 512))) count=1 conv=notrunc 2>/dev/null; damaged 'a torn sector' rank-00000.h5 rank-00000.h5
done
fresh one; rm "$manifest"; damaged 'a missing manifest' manifest.json manifest.json
fresh one; : >"$manifest"; damaged 'an empty manifest' manifest.json manifest.json
fresh one; rm "$shard"; damaged 'a missing shard' rank-00000.h5 rank-00000.h5
fresh one; : >"$shard"; damaged 'an empty shard' rank-00000.h5 rank-00000.h5
fresh one; printf x >>"$shard"; damaged 'a shard that grew' rank-00000.h5 rank-00000.h5
fresh one; cp "$(step_dir run 4)/rank-00000.h5" "$shard"; damaged "another step's shard" rank-00000.h5 rank-00000.h5
fresh one; cp "$(step_dir run 4)/manifest.json" "$manifest"; damaged "another step's manifest" step-00000006 step-00000006
fresh one; flip "$(step_dir run 4)/rank-00000.h5" 9000; rm "$shard"; floor=2 damaged 'the newest two at once' step-00000004 step-00000004

# ---- leftovers ----
leftover() {  # NAME COMMAND...
  begin "$1"
  shift
  fresh one
  "$@"
  recovers one $newest
  count
}
stale_lock() { echo 'pid 1 on another host' >run/.lock; }
half_saved() { cp -r "$(step_dir run 6)" "$(step_dir run 8).tmp" && : >"$(step_dir run 8).tmp/manifest.json.tmp4711"; }
torn_metrics() { printf '{"step":6,"lo' >>run/metrics.jsonl; printf '{"event":' >>run/events.jsonl; }
stepped_aside() { mv "$(step_dir run 6)" "$(step_dir run 6).replaced"; }
replaced_twice() { cp -r "$(step_dir run 4)" "$(step_dir run 6).replaced"; }
leftover 'a stale lock file' stale_lock
leftover 'a save that was interrupted' half_saved
leftover 'an empty unfinished directory' mkdir "$(step_dir run 7).tmp"
leftover 'torn lines at the end of metrics and events' torn_metrics
leftover 'a step that stepped aside for its successor, which never came' stepped_aside
leftover 'a step that stepped aside for its successor, which is there' replaced_twice
leftover 'a temporary of the run file' touch run/run.json.tmp4711

[ -z "$full" ] || is 'at least 500 faults' "$((tried >= 500))" 1
tally
