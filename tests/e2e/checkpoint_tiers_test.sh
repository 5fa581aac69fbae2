#!/usr/bin/env bash
# Checkpoints in the nodes' own folders with copies on other nodes: 4 ranks as 2 nodes. Losing one node loses nothing and
# the durable folder is not even needed; in another layout too. And the other ways to say where and when to save.
. "$(dirname "$0")/lib.sh"

make_text 3000 >text.txt
"$bin/dtrain" prepare --input text.txt --tokenizer bytes --output data.h5 2>/dev/null
train=("$bin/dtrain" --model tiny-llama --data data.h5 --seq-len 64 --micro-batch 1 --global-batch 4 --lr 1e-3 --warmup-steps 2
       --lr-schedule constant --precision f32 --threads 1 --peak-flops 1e12 --comm-timeout 30)
tiers=("${train[@]}" --ranks-per-node 2 --local-checkpoint-dir "$scratch/nodes/{node}" --local-checkpoint-every 2 --checkpoint-every 4)
losses() { sed 's/.*"step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/; t; s/.*"loss":\([^,]*\),.*"step":\([0-9]*\).*/\2 \1/' "$1/metrics.jsonl"; }
loss_of() { losses "$1" | awk -v s="$2" '$1 == s { print $2 }'; }
events() { grep "\"event\":\"$2\"" "$1/events.jsonl"; }

mpirun -n 4 "${train[@]}" --tp 2 --zero 1 --steps 12 --out whole >/dev/null 2>whole.err </dev/null
is 'the run that the others are compared with' "$(losses whole | wc -l)" 12
mpirun -n 4 "${tiers[@]}" --tp 2 --zero 1 --steps 8 --out run >run.out 2>run.err </dev/null
is 'a run with a local tier' "$(losses run | wc -l)" 8
run_id=$(ls nodes/0)
for node in 0 1; do
  is "node $node holds the newest step alone" "$(ls "nodes/$node/$run_id")" step-00000008
  is "node $node holds its own files and its neighbour's" "$(ls "nodes/$node/$run_id/step-00000008" | tr '\n' ' ')" \
    'manifest.json rank-00000.h5 rank-00001.h5 rank-00002.h5 rank-00003.h5 '
done
expect 0 intact 'the durable one was uploaded whole' "$bin/dckpt" verify run
is 'local and durable commits are told apart' "$(events run checkpoint | grep -c '"tier":"local"') $(events run checkpoint | grep -c '"step":8.*"tier":"durable"')" \
  "$(events run checkpoint | grep -c '"tier":"local"') 1"
cp -r run run.kept && cp -r nodes nodes.kept

# resume NAME OPTION...: goes on to step 12 and compares the losses with the unbroken run.
resume() {
  local name=$1
  shift
  mpirun -n 4 "${tiers[@]}" --steps 12 --out run --resume auto "$@" >"$name.out" 2>"$name.err" </dev/null
  is "$name: goes on to the end" $? 0
  holds "$name: from step 8 of the local tier" "$(cat "$name.err")" "step-00000008 at step 8"
  is "$name: with the losses of the unbroken run" "$(for s in 9 10 11 12; do echo "$(loss_of run $s) $(loss_of whole $s)"; done |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if ($1 == "" || d > 1e-5 * $2) bad = 1 } END { print bad ? "no" : "yes" }')" yes
}
restore() { rm -rf run nodes; cp -r run.kept run; cp -r nodes.kept nodes; }

for lost in 0 1; do
  restore
  rm -rf "nodes/$lost" run/checkpoints/*
  resume "node $lost is lost, and everything durable" --tp 2 --zero 1
  for s in 9 10 11 12; do is "step $s: bit for bit" "$(loss_of run $s)" "$(loss_of whole $s)"; done
  holds 'what is missing comes from the neighbour' "$(cat "node $lost is lost, and everything durable.err")" 'came from other nodes'
done
restore
rm -rf nodes/1
resume 'another layout' --pp 2 --tp 2
restore
rm -rf "nodes/0/$run_id/step-00000008/rank-00001.h5" run/checkpoints/*
printf x | dd of="nodes/1/$run_id/step-00000008/rank-00002.h5" bs=1 seek=6000 conv=notrunc 2>/dev/null
resume 'one file lost here, one damaged there' --tp 2 --zero 1
holds 'the damage is told' "$(cat 'one file lost here, one damaged there.err')" 'passed over a damaged file'
restore
rm -rf nodes
mpirun -n 4 "${tiers[@]}" --tp 2 --zero 1 --steps 9 --out run --resume auto >/dev/null 2>durable.err </dev/null
holds 'without local folders the durable one serves' "$(cat durable.err)" 'checkpoints/step-00000008 at step 8'
restore
for node in 0 1; do rm "nodes/$node/$run_id/step-00000008/rank-00003.h5"; done
mpirun -n 4 "${tiers[@]}" --tp 2 --zero 1 --steps 9 --out run --resume auto >/dev/null 2>gap.err </dev/null
holds 'a local step with a gap does not count' "$(cat gap.err)" 'checkpoints/step-00000008 at step 8'

# ---- what a forgotten flag, other node numbers, a shared folder and an abandoned history must not do ----
restore
rm -rf run/checkpoints/*
mpirun -n 4 "${train[@]}" --ranks-per-node 2 --tp 2 --zero 1 --steps 9 --out run --resume auto >/dev/null 2>forgot.err </dev/null
holds 'a forgotten --local-checkpoint-dir is known from the run' "$(cat forgot.err)" 'step-00000008 at step 8'
holds 'and told' "$(cat forgot.err)" 'this run had its local checkpoints in --local-checkpoint-dir'
restore
rm -rf nodes/0 run/checkpoints/*
mpirun -n 2 "${train[@]}" --local-checkpoint-dir "$scratch/nodes/{node}" --tp 2 --steps 9 --out run --resume auto >/dev/null 2>fewer.err </dev/null
holds 'the node that is left has another number now' "$(cat fewer.err)" "nodes/1/$run_id/step-00000008 at step 8"
restore
rm -rf nodes run/checkpoints/*
expect 2 'committed a durable checkpoint of step 8, and none is found' 'what was committed and is gone is no fresh start' \
  mpirun -n 4 "${tiers[@]}" --tp 2 --zero 1 --steps 9 --out run --resume auto
is 'and the metrics stay' "$(losses run | wc -l)" 8
mpirun -n 4 "${tiers[@]}" --checkpoint-mode sync --tp 2 --zero 1 --steps 8 --out history --local-checkpoint-dir "$scratch/then/{node}" >/dev/null 2>&1 </dev/null
rm -rf history/checkpoints/step-00000008
mv then hidden
mpirun -n 4 "${tiers[@]}" --tp 2 --zero 1 --steps 6 --out history --resume auto --local-checkpoint-every 0 --local-checkpoint-dir '' >/dev/null 2>older.err </dev/null
holds 'the newest one that is there is gone on from, with a word' "$(cat older.err)" 'of step 8 that is not found or not whole; going on from step 4'
mv hidden then
mpirun -n 4 "${tiers[@]}" --tp 2 --zero 1 --steps 9 --out history --resume auto --local-checkpoint-dir "$scratch/then/{node}" >/dev/null 2>later.err </dev/null
holds 'a later start counts, not an earlier one that got further' "$(cat later.err)" 'checkpoints/step-00000006 at step 6'
holds 'with a word too' "$(cat later.err)" 'ignored the local checkpoint of step 8: it is of an earlier start'
expect 2 'share this folder' 'two nodes in one folder' mpirun -n 2 "${train[@]}" --ranks-per-node 1 --steps 4 --local-checkpoint-dir "$scratch/shared" --checkpoint-every 2 --out shared_run

# ---- a damaged checkpoint is set aside, and retention counts without it ----
"${train[@]}" --steps 6 --checkpoint-every 2 --checkpoint-mode sync --keep-last 0 --out aside >/dev/null 2>&1
printf x | dd of=aside/checkpoints/step-00000006/rank-00000.h5 bs=1 seek=90000 conv=notrunc 2>/dev/null
expect 0 'step-00000004 at step 4' 'the one before is gone on from' "${train[@]}" --steps 8 --checkpoint-every 4 --keep-last 2 --out aside --resume auto
is 'the damaged one is kept as evidence and not counted' "$(ls aside/checkpoints | tr '\n' ' ')" 'step-00000004 step-00000006.damaged step-00000008 '
expect 3 damaged 'by its path it is still judged' "$bin/dckpt" verify aside/checkpoints/step-00000006.damaged

# ---- closed streams and pipes in the place of files ----
"$bin/dckpt" reshard aside -o quiet --tp 2 <&- >&- 2>&-
is 'all streams closed: done' $? 0
expect 0 intact 'and nothing was written into the files' "$bin/dckpt" verify quiet
cp -r aside pipes && rm pipes/checkpoints/step-00000008/manifest.json && mkfifo pipes/checkpoints/step-00000008/manifest.json
expect 3 'a pipe or a device' 'a pipe as manifest is damage, not a wait' timeout 20 "$bin/dckpt" verify pipes
expect 0 'step-00000004 at step 4' 'and passed over' timeout 20 "${train[@]}" --steps 5 --out pipes --resume auto

# ---- one process, /dev/shm-like folder, no node to copy to ----
one=("${train[@]}" --steps 6 --local-checkpoint-dir "$scratch/fast" --checkpoint-every 3)
"${one[@]}" --out one >/dev/null 2>&1
expect 0 intact 'a local tier of one node uploads as well' "$bin/dckpt" verify one
rm -rf one/checkpoints/step-*
expect 0 'at step 6' 'and is resumed from' "${one[@]}" --steps 8 --resume auto --out one

# ---- checkpoints elsewhere ----
elsewhere=("${train[@]}" --checkpoint-every 2 --keep-last 0)
"${elsewhere[@]}" --steps 4 --checkpoint-dir "$scratch/storage" --out away >/dev/null 2>&1
is '--checkpoint-dir has the checkpoints' "$(ls storage)" "$(printf 'step-00000002\nstep-00000004')"
expect 0 intact 'the run knows them' "$bin/dckpt" verify away
expect 0 'at step 4' 'and goes on without the flag' "${elsewhere[@]}" --steps 5 --out away --resume auto
expect 2 'holds checkpoints of another run' 'a folder for each run' "${elsewhere[@]}" --steps 4 --checkpoint-dir "$scratch/storage" --out other
expect 2 'the checkpoints of --out away are in' 'one place for each run' "${elsewhere[@]}" --steps 6 --out away --resume auto --checkpoint-dir "$scratch/third"

# ---- memory and bandwidth ----
"${train[@]}" --steps 4 --checkpoint-every 2 --keep-last 0 --checkpoint-memory 1M --checkpoint-bandwidth 40M --out waves >/dev/null 2>waves.err
expect 0 intact 'in waves, slowly' "$bin/dckpt" verify waves
"${train[@]}" --steps 4 --checkpoint-every 2 --keep-last 0 --out plain >/dev/null 2>&1
expect 0 '' 'the same tensors as at once' "$bin/dckpt" diff waves plain

# ---- the interval ----
"${train[@]}" --steps 60 --checkpoint-every auto --mtbf 0.0001 --out auto >/dev/null 2>auto.err
is 'auto: it is chosen' "$([ -n "$(events auto checkpoint_interval)" ] && echo yes)" yes
holds 'auto: with its inputs' "$(events auto checkpoint_interval | head -n 1)" '"mtbf_s":0.36'
is 'auto: and kept to' "$([ "$(events auto checkpoint | wc -l)" -ge 2 ] && echo yes)" yes
expect 2 'needs --mtbf' 'auto alone' "${train[@]}" --steps 4 --checkpoint-every auto --out none
expect 2 'expected a number of steps' 'a wrong interval' "${train[@]}" --steps 4 --checkpoint-every often --out none
expect 2 'needs --local-checkpoint-dir' 'an interval without a folder' "${train[@]}" --steps 4 --local-checkpoint-every 2 --out none

finish
