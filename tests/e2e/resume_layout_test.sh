#!/usr/bin/env bash
# A run that is saved in one layout and goes on in another, and in the first again: losses as of one rank that never stopped.
. "$(dirname "$0")/lib.sh"

make_text 3000 >text.txt
"$bin/dtrain" prepare --input text.txt --tokenizer bytes --output data.h5 2>/dev/null
train=("$bin/dtrain" --model tiny-llama --data data.h5 --seq-len 64 --micro-batch 1 --global-batch 4 --lr 1e-3 --warmup-steps 2
       --lr-schedule constant --precision f32 --threads 1 --eps 1e-4 --peak-flops 1e12 --comm-timeout 20 --keep-last 0)
first=(--tp 2 --dp 2 --zero 1) second=(--pp 2 --dp 2 --zero 3)

# near NAME RUN KEY: the worst relative distance from the unbroken run is at most 1e-4.
near() {
  is "$1: $3 within 1e-4" "$(paste <(field whole/metrics.jsonl "$3") <(field "$2/metrics.jsonl" "$3") |
    awk '{ d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > w) w = d } END { print (NR == 12 && w <= 1e-4) ? "near" : NR " far: " w }')" near
}
weights() { rm -rf hf; "$bin/dckpt" convert "$1" -o hf >/dev/null 2>&1; cksum <hf/model.safetensors; }

expect 0 '"steps":12' 'one rank, unbroken' "${train[@]}" --steps 12 --out whole
expect 0 '"steps":4' 'tp 2 x dp 2, zero 1' mpirun -n 4 "${train[@]}" "${first[@]}" --steps 4 --out run
expect 0 '"steps":8' 'goes on as pp 2 x dp 2, zero 3' mpirun -n 4 "${train[@]}" "${second[@]}" --steps 8 --resume auto --out run
expect 0 '"steps":12' 'and as it began' mpirun -n 4 "${train[@]}" "${first[@]}" --steps 12 --resume auto --out run
is 'three layouts in the events' "$(grep -c '"layout":"tp' run/events.jsonl)" 3
is 'the batches are the same' "$(field run/metrics.jsonl batch_fingerprint)" "$(field whole/metrics.jsonl batch_fingerprint)"
near 'three layouts' run loss
near 'three layouts' run grad_norm

# A change of layout rounds nothing: after a step that changes nothing the weights are, to the bit, what was saved.
saved=run/checkpoints/step-00000004
for layout in second first; do
  declare -n options=$layout
  expect 0 '"steps":5' "from step 4, $layout layout" mpirun -n 4 "${train[@]}" "${options[@]}" --resume $saved --steps 5 --lr 0 --weight-decay 0 --out still_$layout
  is "$layout layout: the weights after a step of nothing are what was saved" "$(weights still_$layout)" "$(weights $saved)"
done
expect 0 'intact' 'its checkpoints are whole' "$bin/dckpt" verify run
is 'of 4 files each' "$(ls run/checkpoints/step-00000008 | grep -c '^rank-')" 4

# On other numbers of ranks.
expect 0 '"steps":9' 'on one rank' "${train[@]}" --resume run/checkpoints/step-00000008 --steps 9 --out one
expect 0 '"steps":9' 'on three' mpirun -n 3 "${train[@]}" --pp 3 --resume run/checkpoints/step-00000008 --steps 9 --out three
is 'the same ninth loss' "$(paste <(field one/metrics.jsonl loss) <(field three/metrics.jsonl loss) | awk '{ d = ($1 - $2) / $1; print (NR == 1 && d * d <= 1e-12) }')" 1

# Validation where the ranks have unlike numbers of batches: with ZeRO-3 they gather weights together.
for layout in '--zero 3' '--zero 2' '--pp 3 --dp 1'; do
  # shellcheck disable=SC2086  # several flags
  expect 0 '"val_loss"' "validation on three ranks, $layout" mpirun -n 3 "${train[@]}" --global-batch 3 $layout --steps 1 --val-fraction 0.037 --out val
  field val/events.jsonl val_loss >>val_losses
  rm -rf val
done
expect 0 '"val_loss"' 'and on one' "${train[@]}" --global-batch 3 --steps 1 --val-fraction 0.037 --out val
field val/events.jsonl val_loss >>val_losses
is 'one validation loss' "$(awk 'NR == 1 { first = $1 } { d = ($1 - first) / first; if (d * d < 1e-10) n++ } END { print n }' val_losses)" 4

finish
