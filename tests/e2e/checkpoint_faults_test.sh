#!/usr/bin/env bash
# Faults around saving: operations that fail, lie, crawl or kill, killed ranks and jobs, damaged files, leftovers. After
# each, a resume must find the newest intact checkpoint, say what it passed over, and go on with the losses of a run that
# met no fault. RANKWRIGHT_FULL=1 tries at least 500 of them, otherwise some 80 chosen by RANKWRIGHT_SEED.
. "$(dirname "$0")/lib.sh"
scratch=$(realpath "$scratch")
shim=$RANKWRIGHT_BUILD/tests/faults/libfault_shim.so
RANDOM=${RANKWRIGHT_SEED:-1}
full=${RANKWRIGHT_FULL:-}
tried=0 survived=0 wrong=0
amount() { if [ -n "$full" ]; then echo "$1"; else echo "$2"; fi; }
export OMP_NUM_THREADS=1

make_text 400 >text.txt
"$bin/dtrain" prepare --input text.txt --tokenizer bytes --output data.h5 2>/dev/null
cat >nano.json <<'END'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 257, "max_position_embeddings": 32,
 "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
 "hidden_act": "silu", "rms_norm_eps": 1e-05, "attention_bias": false, "mlp_bias": false, "rope_theta": 10000.0,
 "initializer_range": 0.02, "tie_word_embeddings": true}
END
dtrain=("$bin/dtrain" --model nano.json --data data.h5 --seq-len 16 --micro-batch 1 --warmup-steps 1 --lr-schedule constant
        --precision f32 --threads 1 --peak-flops 1e12 --comm-timeout 15 --checkpoint-every 2 --keep-last 3)
last=10 newest=6
losses() { sed -n 's/^{"step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl"; }
committed() { sed -n 's/.*"event":"checkpoint",.*"step":\([0-9]*\).*/\1/p' "$1/events.jsonl" 2>/dev/null | sort -n | tail -n 1; }
step_dir() { printf '%s/checkpoints/step-%08d' "$1" "$2"; }

# job LAYOUT: sets `job` to how a run of this layout is started; what is in `under` is put before dtrain.
job() {
  case $1 in
    one) job=("${under[@]}" "${dtrain[@]}" --global-batch 2) ;;
    two) job=(mpirun -n 2 "${under[@]}" "${dtrain[@]}" --global-batch 2 --zero 1) ;;
  esac
}
# Saves at steps 2, 4 and 6 whose last is waited for each time, so that all three are there however fast the disk is.
for layout in one two; do
  under=()
  job $layout
  "${job[@]}" --steps $last --out "unbroken-$layout" >log 2>&1 || miss "a run without faults ($layout)" "$(cat log)"
  losses "unbroken-$layout" >"losses-$layout"
  is "a loss a step ($layout)" "$(wc -l <"losses-$layout")" $last
  is "that changes ($layout)" "$(cut -d' ' -f2 "losses-$layout" | sort -u | wc -l)" $last
  for steps in 2 4 6; do
    "${job[@]}" --steps $steps --resume auto --out "base-$layout" >log 2>&1 || miss "the runs to start from ($layout)" "$(cat log)"
  done
  is "the checkpoints to start from ($layout)" "$(ls "base-$layout/checkpoints" | tr '\n' ' ')" 'step-00000002 step-00000004 step-00000006 '
done

fresh() { rm -rf run fired log && cp -r "base-$1" run; }
bad() { printf 'WRONG %s: %s\n' "$name" "$1"; tail -n 8 log | sed 's/^/      | /'; fault_ok=; }
# with_fault FAULT: plants one (tests/faults/fault_plan.h).
with_fault() {
  under=(env LD_PRELOAD="$shim" RANKWRIGHT_FAULT_DIR="$scratch/run" RANKWRIGHT_FAULT="$1" RANKWRIGHT_FAULT_FIRED="$scratch/fired")
}
# go LAYOUT STEPS: goes on with the run, whatever `under` does to it; sets `code`.
go() {
  job "$1"
  { timeout 60 "${job[@]}" --steps "$2" --resume auto --out run >log 2>&1 </dev/null; } 2>/dev/null
  code=$?
}
# Ranks whose mpirun was killed end by themselves.
wait_for_ranks() {
  local p left
  for _ in $(seq 200); do
    left=
    for p in $(pgrep -x dtrain); do [ "$(readlink "/proc/$p/cwd")" = "$scratch" ] && left=$p; done
    [ -z "$left" ] && return
    sleep 0.1
  done
  bad 'a rank outlives its job'
}

# recovers LAYOUT FLOOR [TEXT...]: a resume without faults starts from step FLOOR or a later one, says each TEXT, has the
# losses of the unbroken run, and leaves only checkpoints that verify (and `stays`, one that was damaged before).
recovers() {
  local layout=$1 floor=$2 from text dir
  shift 2
  under=()
  go "$layout" $last
  [ $code -eq 0 ] || bad "the resumed run ends with $code"
  from=$(sed -n 's/^resumed .* at step \([0-9]*\)$/\1/p' log | head -n 1)
  [ "${from:-0}" -ge "$floor" ] || bad "resumed at step ${from:-0}, although step $floor was committed"
  for text in "$@"; do grep -qF -- "$text" log || bad "the resume does not say: $text"; done
  losses run >losses
  # Lines that a fault kept from being written may be missing before the step it resumed at.
  awk -v from="${from:-0}" 'NR == FNR { want[$1] = $2; next } { if (!($1 in want) || want[$1] != $2 || $1 + 0 <= before) bad = 1; before = $1 + 0; got[$1] = 1 }
    END { for (s in want) if (s + 0 > from && !(s in got)) bad = 1; exit bad }' "losses-$layout" losses ||
    bad "other losses: $(tr '\n' ';' <losses)"
  for dir in run/checkpoints/step-*; do
    [ "$dir" = "$stays" ] || [[ $dir == *.tmp ]] || "$bin/dckpt" verify "$dir" >verify.log 2>&1 || bad "damaged afterwards: $(cat verify.log)"
  done
  # Whoever saves next clears away what an interrupted save or pruning left.
  [ "${from:-0}" = $last ] || [ "$(ls run/checkpoints | grep -c '\.')" = 0 ] || bad "left over: $(ls run/checkpoints | tr '\n' ' ')"
}
# One fault is over: counts it.
count() {
  tried=$((tried + 1))
  if [ -n "$fault_ok" ]; then survived=$((survived + 1)); else wrong=$((wrong + 1)); fi
}
begin() { name=$1 fault_ok=yes stays=; }

# at_operation LAYOUT FAULT CODE...: the run goes on from step 6 with the fault and ends with one of the codes, or with 1
# and the cause; then it recovers. Not counted when the fault did not come to pass.
at_operation() {
  local layout=$1 fault=$2 floor
  shift 2
  begin "$layout: $fault"
  fresh "$layout"
  with_fault "$fault"
  go "$layout" $last
  [ -s fired ] || return 0
  [ "$layout" = one ] || wait_for_ranks
  case $code in
    0) losses run | cmp -s - "losses-$layout" || bad 'the run that went on has other losses' ;;
    1 | 2) grep -qE 'Input/output error|No space left on device' log || bad 'an error without its cause' ;;
  esac
  case " $* " in *" $code "*) ;; *) bad "exit $code, expected one of $*" ;; esac
  floor=$(committed run)
  recovers "$layout" "${floor:-0}"
  count
}
# list_operations LAYOUT RANK: "NUMBER KIND PATH" of what this rank does below checkpoints from step 6 on.
list_operations() {
  fresh "$1"
  with_fault "action=list path=/checkpoints$([ "$1" = one ] || echo " rank=$2")"
  go "$1" $last
  awk '{ print NR, $2, $3 }' fired
}
# pick N: so many of the lines, in any order, rare kinds of operation before the many writes.
pick() { awk -v seed=$RANDOM 'BEGIN { srand(seed) } { print rand() * (3 + n[$2]++), $0 }' | sort -g | head -n "$1" | cut -d' ' -f2-; }

# ---- one rank: operations that fail ----
list_operations one 0 >operations
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
  job one
  { timeout -s KILL "0.$((RANDOM % 30 + 4))" "${job[@]}" --steps $last --resume auto --out run >log 2>&1 </dev/null; } 2>/dev/null
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
  list_operations two $rank >operations-$rank
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

is 'faults that did harm' $wrong 0
[ -z "$full" ] || is 'at least 500 of them' "$((tried >= 500))" 1
finish
result=$?
printf 'faults: tried %d, survived %d, wrong %d\n' $tried $survived $wrong
exit $result
