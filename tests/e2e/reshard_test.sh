#!/usr/bin/env bash
# A checkpoint written anew in another layout, by one process and by several, goes on as if it had been saved in it; and
# what cannot be resharded says why and leaves nothing.
. "$(dirname "$0")/lib.sh"

make_text 3000 >text.txt
"$bin/dtrain" prepare --input text.txt --tokenizer bytes --output data.h5 2>/dev/null
train=("$bin/dtrain" --model tiny-llama --data data.h5 --seq-len 64 --micro-batch 1 --global-batch 4 --lr 1e-3 --warmup-steps 2
       --lr-schedule constant --precision f32 --threads 1 --eps 1e-4 --peak-flops 1e12 --comm-timeout 20 --keep-last 0)
reshard=("$bin/dckpt" reshard)
# near NAME RUN N: the last N losses are, within 1e-4, those of the unbroken run.
near() {
  is "$1: losses within 1e-4" "$(paste <(field whole/metrics.jsonl loss | tail -n "$3") <(field "$2/metrics.jsonl" loss | tail -n "$3") |
    awk -v n="$3" '{ d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > w) w = d } END { print (NR == n && w <= 1e-4) ? "near" : NR " far: " w }')" near
}
shards() { cat "$1"/checkpoints/step-00000006/rank-*.h5 | cksum; }

expect 0 '"steps":10' 'one rank, unbroken' "${train[@]}" --steps 10 --out whole
expect 0 '"steps":6' 'the first part' "${train[@]}" --steps 6 --out one

# One process, two, three: the same files, which are those that the layout's own ranks would have saved.
expect 0 'tp 2 x pp 1 x dp 2, zero 3, 4 files' 'reshard' "${reshard[@]}" one --tp 2 --dp 2 --zero 3 -o four
expect 0 '"files":4,"ranks":2' 'by two processes' mpirun -n 2 "${reshard[@]}" one --tp 2 --dp 2 --zero 3 -o four2 --json
expect 0 '"files":4,"ranks":3' 'by three, in little memory' mpirun -n 3 "${reshard[@]}" one --tp 2 --dp 2 --zero 3 -o four3 --json --memory 256K --threads 2
is 'two write the same files' "$(shards four2)" "$(shards four)"
is 'three write the same files' "$(shards four3)" "$(shards four)"
expect 0 'intact' 'they are whole' "$bin/dckpt" verify four3
expect 0 'resharded_from' 'where it comes from' "$bin/dckpt" show four --json
expect 0 'tp 1 x pp 1 x dp 1' 'back to one' "${reshard[@]}" four3 -o back
is 'and the file is as it was' "$(shards back)" "$(shards one)"
expect 0 '' 'no tensor differs' "$bin/dckpt" diff one four

# Training goes on from them: in a new run, in the directory itself, and from the weights alone.
expect 0 '"steps":10' 'goes on as four ranks' mpirun -n 4 "${train[@]}" --tp 2 --dp 2 --zero 3 --steps 10 --resume four --out more
near 'four ranks' more 4
expect 0 '"steps":10' 'goes on where it lies' mpirun -n 4 "${train[@]}" --tp 2 --dp 2 --zero 3 --steps 10 --resume auto --out four
near 'where it lies' four 4
run_id() { sed -n 's/.*"run_id": "\(.*\)",/\1/p' "$1/run.json"; }
is 'as the same run' "$(run_id four)" "$(run_id one)"
expect 0 '"steps":7' 'goes on in another layout still' mpirun -n 3 "${train[@]}" --pp 3 --steps 7 --resume four2 --out three
expect 0 '"steps":1' 'begins from its weights' "${train[@]}" --init-from four2 --steps 1 --out from_weights

# Weights come out the same from any layout; an export with the optimizer is a checkpoint again.
expect 0 '' 'pipeline of uneven stages' "${reshard[@]}" four2 --pp 2 --stage-layers 1,3 -o uneven
for run in one four2 uneven; do expect 0 '' "export of $run" "$bin/dckpt" convert $run --dtype bf16 --optimizer -o $run-hf; done
is 'exports of two layouts hold the same weights' "$(cat four2-hf/*.safetensors | cksum)" "$(cat one-hf/*.safetensors | cksum)"
is 'and of a third' "$(cat uneven-hf/*.safetensors | cksum)" "$(cat one-hf/*.safetensors | cksum)"
expect 0 '' 'and back' "$bin/dckpt" convert uneven-hf --optimizer -o import
is 'to the file it was' "$(shards import)" "$(shards one)"
expect 0 '"steps":10' 'which trains on' "${train[@]}" --steps 10 --resume import --out imported
near 'imported' imported 4

# Two layers, odd sizes.
cat >odd.json <<'J'
{"model_type": "qwen2", "hidden_size": 28, "intermediate_size": 45, "num_hidden_layers": 2, "num_attention_heads": 7,
 "num_key_value_heads": 1, "vocab_size": 259, "max_position_embeddings": 65, "tie_word_embeddings": true}
J
odd=("$bin/dtrain" --model odd.json --data data.h5 --seq-len 33 --micro-batch 1 --global-batch 3 --precision f32 --threads 1 --peak-flops 1e12
     --comm-timeout 20 --warmup-steps 1)
expect 0 '"steps":6' 'an odd model on three ranks' mpirun -n 3 "${odd[@]}" --dp 3 --zero 2 --steps 6 --out odd
expect 0 '2 files' 'as a pipeline' "${reshard[@]}" odd --pp 2 -o odd2
expect 0 '21 files' 'far more ranks than rows' mpirun -n 2 "${reshard[@]}" odd2 --dp 21 --zero 3 -o odd21
expect 0 '3 files' 'as it was' "${reshard[@]}" odd21 --dp 3 --zero 2 -o odd3
is 'bit for bit' "$(shards odd3)" "$(shards odd)"
expect 0 '"steps":7' 'goes on as two stages' mpirun -n 2 "${odd[@]}" --pp 2 --steps 7 --resume odd2 --out odd_more

# What cannot be.
expect 2 "--tp 2 does not divide the model's 7 heads" 'heads that tp does not divide' "${reshard[@]}" odd --tp 2 -o bad
expect 2 '--pp 3 x --vpp 1 = 3 stages are more than' 'more stages than layers' mpirun -n 2 "${reshard[@]}" odd --pp 3 -o bad
expect 2 '--stage-layers' 'layers that do not add up' "${reshard[@]}" odd --pp 2 --stage-layers 1,2 -o bad
expect 2 'is too small: a row of tensor' 'memory for less than a row' mpirun -n 2 "${reshard[@]}" one --tp 2 --memory 1K -o bad
expect 2 'expected an empty or new directory' 'an output that is there' "${reshard[@]}" one --tp 2 -o four2
expect 2 'holds run' 'another run, even with --force' "${reshard[@]}" one --tp 2 -o odd --force
expect 2 'found a file' 'a file as output' "${reshard[@]}" one --tp 2 -o text.txt
expect 2 'expected a run' 'no such source' "${reshard[@]}" nothing -o bad
expect 2 'dckpt convert' 'a Hugging Face directory' "${reshard[@]}" one-hf -o bad
expect 2 'output' 'no output' "${reshard[@]}" one
expect 0 '2 files' 'the same step again, with --force' "${reshard[@]}" one --tp 2 -o four2 --force
expect 0 'intact' 'is whole' "$bin/dckpt" verify four2
is 'of two files' "$(ls four2/checkpoints/step-00000006 | grep -c rank-)" 2

cp -r one hurt
shard=hurt/checkpoints/step-00000006/rank-00000.h5
size=$(stat -c %s $shard)
for at in 5000 $((size / 2)) $((size - 1)); do
  cp one/checkpoints/step-00000006/rank-00000.h5 $shard
  printf '\x55\xaa' | dd of=$shard bs=1 seek=$((at - 1)) conv=notrunc status=none
  expect 3 'damaged' "a byte at $at is wrong" mpirun -n 2 "${reshard[@]}" hurt/checkpoints/step-00000006 --tp 2 -o bad
done
truncate -s $((size / 2)) $shard
expect 3 'damaged' 'half a file' "${reshard[@]}" hurt/checkpoints/step-00000006 --tp 2 -o bad
rm $shard
expect 3 'damaged' 'no file' "${reshard[@]}" hurt/checkpoints/step-00000006 --tp 2 -o bad
cp one/checkpoints/step-00000006/rank-00000.h5 $shard
sed -i 's/"step": 6/"step": 7/' hurt/checkpoints/step-00000006/manifest.json
expect 3 'damaged' 'a manifest that was changed' "${reshard[@]}" hurt/checkpoints/step-00000006 --tp 2 -o bad
is 'nothing is left of all that' "$(ls -d bad* 2>/dev/null)" ''

finish
