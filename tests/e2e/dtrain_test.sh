#!/usr/bin/env bash
# dtrain under mpirun: the same losses on 1, 2 and 4 ranks, stop and resume to the bit, a rank that dies, a full disk.
. "$(dirname "$0")/lib.sh"

make_text 3000 >text.txt
expect 0 '' 'prepare' "$bin/dtrain" prepare --input text.txt --tokenizer bytes --output data.h5
train=("$bin/dtrain" --model tiny-llama --data data.h5 --val-fraction 0.05 --seq-len 64 --micro-batch 1 --global-batch 4 --lr 1e-3
       --warmup-steps 2 --steps 8 --precision f32 --threads 1 --eps 1e-4 --peak-flops 1e12)

expect 0 '"steps":8' '1 rank' "${train[@]}" --out one
expect 0 '"steps":8' '2 ranks' mpirun -n 2 "${train[@]}" --out two
expect 0 '"steps":8' '4 ranks' mpirun -n 4 "${train[@]}" --out four
is 'a line a step' "$(wc -l <one/metrics.jsonl)" 8
is 'the batches are the same on 1 and 4 ranks' "$(field four/metrics.jsonl batch_fingerprint)" "$(field one/metrics.jsonl batch_fingerprint)"
is 'no batch comes twice' "$(field one/metrics.jsonl batch_fingerprint | sort -u | wc -l)" 8
for n in two four; do
  worst=$(paste <(field one/metrics.jsonl loss) <(field $n/metrics.jsonl loss) |
    awk '{ d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > w) w = d } END { print (NR == 8 && w <= 1e-5) ? "near" : "far: " w }')
  is "losses of $n ranks within 1e-5" "$worst" near
done
is 'it learns' "$(field one/metrics.jsonl loss | awk 'NR == 1 { a = $1 } { b = $1 } END { print (b < a - 0.3) }')" 1

# Stop at step 3 by a signal, go on, and compare with the unbroken run bit by bit.
mpirun -n 2 "${train[@]}" --steps 200000 --lr-schedule constant --out stop --resume auto >stop.json 2>stop.err </dev/null &
job=$!
for _ in $(seq 600); do [ "$(cat stop/metrics.jsonl 2>/dev/null | wc -l)" -ge 3 ] && break; sleep 0.1; done
kill -USR1 $job
wait $job
is 'SIGUSR1 to mpirun ends in exit 75' $? 75
holds 'and says how to go on' "$(cat stop.err)" 'run the same command with --resume auto'
k=$(field stop.json steps)
expect 0 "\"steps\":$((k + 5))" 'resume' mpirun -n 2 "${train[@]}" --steps $((k + 5)) --lr-schedule constant --out stop --resume auto
expect 0 '' 'the unbroken run' mpirun -n 2 "${train[@]}" --steps $((k + 5)) --lr-schedule constant --out whole
is 'stop and resume change no bit of the losses' "$(field stop/metrics.jsonl loss)" "$(field whole/metrics.jsonl loss)"
is 'nor of the gradient norms' "$(field stop/metrics.jsonl grad_norm)" "$(field whole/metrics.jsonl grad_norm)"
"$bin/dckpt" convert stop -o stop_hf >/dev/null 2>&1
"$bin/dckpt" convert whole -o whole_hf >/dev/null 2>&1
is 'nor of the weights' "$(cksum <stop_hf/model.safetensors)" "$(cksum <whole_hf/model.safetensors)"
expect 0 '' 'resume on another number of ranks' mpirun -n 4 "${train[@]}" --steps $((k + 7)) --lr-schedule constant --out stop --resume auto

# A half-written checkpoint is passed over with a word.
mkdir stop/checkpoints/step-99999999.tmp
expect 0 'step-99999999.tmp' 'a half-written checkpoint is ignored aloud' "${train[@]}" --steps $((k + 8)) --lr-schedule constant --out stop --resume auto
# A damaged newest checkpoint falls back to the one before.
newest=$(ls -d stop/checkpoints/step-* | grep -v tmp | tail -n 1)
truncate -s 100 "$newest/manifest.json"
expect 0 'cut or is none' 'a damaged checkpoint is passed over aloud' "${train[@]}" --steps $((k + 8)) --lr-schedule constant --out stop --resume auto

# Steps as a picture, which changes nothing.
drawn=("${train[@]}" --micro-batch 1 --global-batch 4 --pp 2 --steps 4 --lr-schedule constant)
expect 0 '' 'two stages' mpirun -n 2 "${drawn[@]}" --out plain
expect 0 '' 'two stages, two of their steps drawn' mpirun -n 2 "${drawn[@]}" --trace-steps 2..3 --out drawn
is 'the drawing' "$(python3 "$source_dir/tests/e2e/step_trace.py" drawn/trace.json 2 2 4 2,3)" 'the trace can be true'
is 'drawing changes no bit' "$(field drawn/metrics.jsonl loss) $(field drawn/metrics.jsonl grad_norm)" "$(field plain/metrics.jsonl loss) $(field plain/metrics.jsonl grad_norm)"
expect 2 '--trace-steps: expected a step or a range' 'no such range' "${drawn[@]}" --trace-steps 3..x --out none

# A rank that is killed: the others end and the message names it.
mpirun -n 2 "${train[@]}" --steps 200000 --out killed >/dev/null 2>killed.err </dev/null &
job=$!
for _ in $(seq 600); do [ "$(cat killed/metrics.jsonl 2>/dev/null | wc -l)" -ge 2 ] && break; sleep 0.1; done
victim=$(pgrep -P $job -f 'out killed' | tail -n 1)
start=$(date +%s)
kill -KILL "$victim"
wait $job
code=$?
is 'a killed rank ends the job with an error' "$([ $code -ne 0 ] && echo yes)" yes
is 'within 20 s' "$([ $(($(date +%s) - start)) -le 20 ] && echo yes)" yes
holds 'and the message names the rank' "$(cat killed.err)" 'rank 1'

# SIGTERM at a rank saves; a used --out is refused; a full disk leaves training alive.
mpirun -n 2 "${train[@]}" --steps 200000 --out term >/dev/null 2>term.err </dev/null &
job=$!
for _ in $(seq 600); do [ "$(cat term/metrics.jsonl 2>/dev/null | wc -l)" -ge 2 ] && break; sleep 0.1; done
kill -TERM "$(pgrep -P $job -f 'out term' | head -n 1)"
wait $job
is 'SIGTERM at one rank ends all with 75' $? 75
expect 2 'already holds a run' 'a used --out is refused' "${train[@]}" --out one
expect 2 'error: --device cuda:99: ' 'a device that this build or host has not got' "${train[@]}" --device cuda:99 --out none
if [ "$(id -u)" = 0 ] && mkdir small && mount -t tmpfs -o size=9m none small 2>/dev/null; then
  out=$(mpirun -n 2 "${train[@]}" --checkpoint-every 2 --checkpoint-mode sync --keep-last 0 --steps 6 --out small/run 2>&1 </dev/null)
  code=$?
  holds 'a full disk is told' "$out" 'no checkpoint was saved'
  is 'training went on to the last step' "$(tail -n 1 small/run/metrics.jsonl | sed 's/.*"step":\([0-9]*\),.*/\1/')" 6
  is 'and the exit code says that the last save failed' $code 1
  expect 0 'intact' 'the checkpoint saved before is whole' "$bin/dckpt" verify small/run
  umount small
fi
finish
