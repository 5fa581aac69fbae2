#!/usr/bin/env bash
# dbench doctor on runs of several processes in which a fault was planted: the cause is among the findings, before what
# the machine adds of its own (others may use it meanwhile).
. "$(dirname "$0")/lib.sh"

make_text 6000 >text.txt
"$bin/dtrain" prepare --input text.txt --tokenizer bytes --output data.h5 2>/dev/null
train=("$bin/dtrain" --model tiny-llama --seq-len 64 --micro-batch 2 --global-batch 8 --lr 1e-3 --warmup-steps 10 --precision f32
       --threads 1 --peak-flops 1e11 --comm-timeout 15 --data data.h5)
run() { local ranks=$1 out=$2; shift 2; timeout 200 mpirun -n "$ranks" "${train[@]}" "$@" --out "$out" >"$out.json" 2>"$out.err" </dev/null; }
doctor() { "$bin/dbench" doctor "$@" --json 2>doctor.err >doctor.json; code=$?; }
# The ids of the findings above info that are no other's effect, without what a crowded machine adds.
causes() {
  python3 -c '
import json, sys
machine = {"cpu.hog", "cpu.slower", "cpu.steal", "rank.slower", "disk.busy", "memory.near_limit"}
for f in json.load(open("doctor.json"))["findings"]:
    if f["severity"] != "info" and "effect_of" not in f and f["id"] not in machine: print(f["id"])'
}
first() { causes | head -n 1; }

# ---- nothing planted ----
for layout in '--zero 1' '--tp 2 --sp' '--pp 2 --global-batch 16'; do
  run 2 sound $layout --steps 60 --checkpoint-every 20
  doctor sound
  is "a sound run ($layout): no complaint" "$(causes)" ''
  is "a sound run ($layout): exit" $code 0
  [ "$layout" = '--zero 1' ] && mv sound rehearsal || rm -rf sound
done
run 2 resumed --steps 30 --lr-schedule constant && run 2 resumed --steps 60 --lr-schedule constant --resume auto
doctor resumed
is 'a resumed run: no complaint' "$(causes)" ''

# ---- data that loops ----
for _ in $(seq 40); do head -n 50 text.txt; done >loop.txt
"$bin/dtrain" prepare --input loop.txt --tokenizer bytes --output loop.h5 2>/dev/null
run 2 loop --data loop.h5 --steps 60
doctor loop
is 'data that loops' "$(first)" data.looping
is 'a warning is no failure' $code 0

# ---- noise in a text that is soon known by heart ----
chorus() { for _ in $(seq 800); do echo 'one two three four'; done; }
{ chorus; awk 'BEGIN { x = 1; for (i = 0; i < 300; ++i) { x = (x * 75 + 74) % 65537; printf "%c", 33 + x % 90 } print "" }'; chorus; } >song.txt
"$bin/dtrain" prepare --input song.txt --tokenizer bytes --output song.h5 2>/dev/null
run 2 song --data song.h5 --global-batch 4 --lr 4e-3 --seed 2 --steps 60 --warmup-steps 2 --lr-schedule constant
doctor song
is 'a batch that is unlike the others' "$(first)" data.odd_batch

# ---- a rank that is held ----
mpirun -n 2 "${train[@]}" --steps 200000 --comm-timeout 3 --out held >/dev/null 2>held.err </dev/null &
job=$!
for _ in $(seq 300); do [ "$(cat held/metrics.jsonl 2>/dev/null | wc -l)" -ge 20 ] && break; sleep 0.1; done
for pid in $(pgrep -P $job); do
  tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -qx 'OMPI_COMM_WORLD_RANK=1' && victim=$pid
done
kill -STOP "$victim"
wait $job
kill -KILL "$victim" 2>/dev/null
doctor held
is 'a rank that is held' "$(first)" comm.rank_missing
is 'a failure: exit' $code 3
holds 'the rank is named' "$(cat doctor.json)" 'rank 1 (host'
holds 'the verdict comes first' "$("$bin/dbench" doctor held | head -n 1)" 'failure: comm.rank_missing'

# ---- checkpoints: a slow disk, a full one ----
shim=$RANKWRIGHT_BUILD/tests/faults/libfault_shim.so
with_fault() {
  local out=$1 fault=$2; shift 2
  mkdir "$out"
  timeout 200 mpirun -n 2 env LD_PRELOAD="$shim" RANKWRIGHT_FAULT_DIR="$(realpath "$out")" RANKWRIGHT_FAULT="$fault" \
    RANKWRIGHT_FAULT_FIRED="$PWD/fired" "${train[@]}" "$@" --out "$out" >"$out.json" 2>"$out.err" </dev/null
}
with_fault slow_disk 'action=slow ms=700 path=.h5' --steps 60 --checkpoint-every 10
doctor slow_disk
is 'a slow disk' "$(first)" checkpoint.slow_disk
with_fault stalling 'action=slow ms=300 path=.h5' --steps 60 --checkpoint-every 10 --checkpoint-mode sync
doctor stalling
is 'saves that stand in the way' "$(first)" checkpoint.stall
with_fault full 'action=enospc op=write sticky=1 path=.h5' --steps 40 --checkpoint-every 20
doctor full
is 'a full disk' "$(first)" checkpoint.disk_full
is 'is a failure' $code 3

# ---- parameters ----
run 2 f16 --precision f16 --loss-scale 16777216 --loss-scale-window 4 --steps 60
doctor f16
holds 'gradients overflow f16' "$(first)" params.scale_
run 2 f16_lr --precision f16 --lr 0.5 --steps 60
doctor f16_lr
holds 'f16 at a learning rate that is far too large' 'params.nonfinite params.scale_collapse params.scale_overflow params.lr_too_high params.scale_skips params.diverged' "$(first)"
run 2 pipeline --pp 2 --global-batch 2 --steps 40
doctor pipeline
is 'too few micro-batches' "$(first)" params.micro_batches
run 2 still --lr 1e-8 --min-lr 0 --steps 60
doctor still
is 'a learning rate that moves nothing' "$(first)" params.lr_small

# ---- beside a rehearsal ----
doctor f16 --baseline rehearsal
holds 'settings that differ are told' "$(cat doctor.json)" 'config.precision f16, was f32'
holds 'events that the rehearsal never had' "$(cat doctor.json)" 'skip: f16 overflow'

# ---- how it is asked ----
expect 2 'expected a run directory' 'no target' "$bin/dbench" doctor
expect 2 'nowhere' 'a target that is not there' "$bin/dbench" doctor nowhere
expect 2 'expected one run directory' 'two runs' "$bin/dbench" doctor loop song
cp -r rehearsal idle
sed -i 's/"causal":[0-9.e+-]*/"causal":0.1/' idle/metrics.jsonl
expect 0 'params.mfu' '--all tells infos' "$bin/dbench" doctor idle --all
expect 0 '| `data.wait` | data flow |' 'the rules as a table' "$bin/dbench" doctor --rules-markdown
finish
