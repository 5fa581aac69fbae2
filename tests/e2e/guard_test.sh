#!/usr/bin/env bash
# Values at fault, planted in runs of several processes: a NaN, overflows of f16, a jump of the loss. The first is traced to
# where it began, the others are left out and the run goes on.
. "$(dirname "$0")/lib.sh"

make_text 3000 >text.txt
"$bin/dtrain" prepare --input text.txt --tokenizer bytes --output data.h5 2>/dev/null
train=("$bin/dtrain" --model tiny-llama --seq-len 64 --micro-batch 1 --global-batch 4 --lr 1e-3 --warmup-steps 2 --lr-schedule constant
       --precision f32 --threads 1 --peak-flops 1e12 --comm-timeout 20)
on_numbers=("${train[@]}" --data data.h5)
events() { grep "\"event\":\"$2\"" "$1/events.jsonl"; }
yes_if() { if "$@"; then echo yes; else echo no; fi; }

# ---- a weight is NaN ----
expect 0 '' 'a run to plant in' "${on_numbers[@]}" --steps 1 --out sound
expect 0 '' 'converted' "$bin/dckpt" convert sound -o hf
# plant_nan TENSOR ELEMENT
plant_nan() {
  local n begin
  rm -rf bad && cp -r hf bad && rm -f bad/rankwright.json
  n=$(od -An -tu8 -N8 bad/model.safetensors | tr -d ' ')
  begin=$(tail -c +9 bad/model.safetensors | head -c "$n" | sed "s/.*\"$1\":{[^}]*\"data_offsets\":\[\([0-9]*\),.*/\1/")
  printf '\x00\x00\xc0\x7f' | dd of=bad/model.safetensors bs=1 seek=$((8 + n + begin + 4 * $2)) conv=notrunc 2>/dev/null
}
# trace RANKS EXPECTED OPTION...: the event holds all parts of EXPECTED, separated by |.
trace() {
  local ranks=$1 expected=$2 part
  shift 2
  rm -rf traced
  mpirun -n "$ranks" "${on_numbers[@]}" --model '' --init-from bad --nan-trace --steps 4 --max-skips 1 "$@" --out traced >traced.log 2>&1 </dev/null
  is "$ranks ranks $*: a run of NaN ends in an error" "$(yes_if [ $? -ne 0 ])" yes
  while IFS= read -r -d '|' part; do holds "$ranks ranks $*: the trace tells: $part" "$(events traced nan_trace)" "$part"; done <<<"$expected|"
  is "$ranks ranks $*: once" "$(events traced nan_trace | wc -l)" 1
}
# Row 200 of the gate (256, 96) is the second tensor-parallel rank's, block 1 the first stage's, block 2 the second's.
plant_nan model.layers.1.mlp.gate_proj.weight $((200 * 96 + 7))
trace 1 'rank 0: gemm in block 1 (forward)|"rank":0|blocks.1.mlp.gate.weight is not finite'
trace 2 'rank 1: gemm in block 1 (forward)|"rank":1' --tp 2 --sp
trace 2 'rank 0: gemm in block 1 (forward)|"rank":0' --pp 2
trace 4 'rank 1: gemm in block 1 (forward)|"rank":1' --tp 2 --pp 2
trace 2 'block 1 (forward)|blocks.1.mlp.gate.weight is not finite' --zero 3
plant_nan model.layers.2.mlp.down_proj.weight $((5 * 256 + 200))  # column 200 of (96, 256): the second rank's as well
trace 2 'rank 1: gemm in block 2 (forward)|"rank":1' --tp 2
trace 4 'rank 3: gemm in block 2 (forward)|"rank":3' --tp 2 --pp 2
holds 'the terminal tells it too' "$(cat traced.log)" 'rank 3: gemm in block 2 (forward)'

# ---- f16 with a scale that is far too large ----
f16=("${on_numbers[@]}" --seq-len 32 --global-batch 2 --precision f16 --loss-scale 16777216 --loss-scale-window 4 --max-skips 2 --checkpoint-every 6)
expect 0 '"steps":14' 'f16 goes on from overflows, however many' mpirun -n 2 "${f16[@]}" --steps 14 --out f16
is 'the first steps were skipped' "$(field f16/metrics.jsonl skipped | head -n 3 | sort -u)" true
is 'the last were not all' "$(yes_if grep -q '"skipped":false' f16/metrics.jsonl)" yes
skipped=$(grep '"skipped":true' f16/metrics.jsonl | field /dev/stdin step)
is 'an event for each skipped step' "$(events f16 skip | field /dev/stdin step)" "$skipped"
is 'with the reason' "$(events f16 skip | field /dev/stdin reason | sort -u)" 'f16 overflow'
is 'the scale halves at each, and doubles after 4 good steps' "$(field f16/metrics.jsonl loss_scale)" \
  "$(field f16/metrics.jsonl skipped | awk 'BEGIN { s = 16777216 } { printf "%d.0\n", s; if ($1 == "true") { s /= 2; good = 0 } else if (++good == 4) { s *= 2; good = 0 } }')"
expect 0 '"steps":6' 'a part of it' mpirun -n 2 "${f16[@]}" --steps 6 --out f16_parts
expect 0 '"steps":14' 'and the rest' mpirun -n 2 "${f16[@]}" --steps 14 --resume auto --out f16_parts
for key in loss_scale skipped loss; do
  is "stop and resume change nothing: $key" "$(field f16_parts/metrics.jsonl $key)" "$(field f16/metrics.jsonl $key)"
done

# ---- the loss jumps: some noise in a text that is soon known by heart ----
chorus() { for _ in $(seq 800); do echo 'one two three four'; done; }
{ chorus; awk 'BEGIN { x = 1; for (i = 0; i < 300; ++i) { x = (x * 75 + 74) % 65537; printf "%c", 33 + x % 90 } print "" }'; chorus; } >song.txt
"$bin/dtrain" prepare --input song.txt --tokenizer bytes --output song.h5 2>/dev/null
song=("${train[@]}" --data song.h5 --micro-batch 2 --lr 4e-3 --seed 2 --steps 60 --checkpoint-every 10 --checkpoint-mode sync --spike-threshold 6)
for policy in warn skip rewind; do
  expect 0 '"steps":60' "--on-spike $policy" mpirun -n 2 "${song[@]}" --on-spike $policy --out jump_$policy
  is "$policy: the spikes are in the events" "$(events jump_$policy spike | field /dev/stdin action | sort -u)" $policy
  is "$policy: as jumps of the loss" "$(events jump_$policy spike | field /dev/stdin verdict | sort -u)" loss_spike
  is "$policy: a line for each step" "$(field jump_$policy/metrics.jsonl step)" "$(seq 60)"
  is "$policy: it ends well" "$(field jump_$policy/metrics.jsonl loss | tail -n 1 | awk '{ print ($1 > 0 && $1 < 1) }')" 1
done
is 'warn: every step was done' "$(field jump_warn/metrics.jsonl skipped | sort -u)" false
is 'skip: the spikes were not' "$(grep '"skipped":true' jump_skip/metrics.jsonl | field /dev/stdin step)" "$(events jump_skip spike | field /dev/stdin step)"
is 'rewind: for each spike back to the last checkpoint' "$(events jump_rewind rewind | field /dev/stdin step)" \
  "$(events jump_rewind spike | field /dev/stdin step | awk '{ print int(($1 - 1) / 10) * 10 }')"
is 'rewind: the batches since then were left out' "$(tail -n 1 jump_rewind/metrics.jsonl | field /dev/stdin samples)" \
  "$(events jump_rewind rewind | tail -n 1 | sed 's/.*"step":\([0-9]*\).*"first":\([0-9]*\),"n":\([0-9]*\).*/\1 \2 \3/' | awk '{ print $2 + $3 + (60 - $1) * 4 }')"
is 'rewind: no spike is left in the metrics' "$(field jump_rewind/metrics.jsonl loss | tail -n 25 | awk '$1 > 1' | wc -l)" 0
finish
