#!/usr/bin/env bash
# Train, export, import, generate: the same weights give the same text from run, checkpoint and Hugging Face directory.
. "$(dirname "$0")/lib.sh"

make_text 2000 >text.txt
expect 0 '' 'prepare with a learned tokenizer' "$bin/dtrain" prepare --input text.txt --train-bpe 400 --output data.h5
for model in tiny-llama tiny-gpt2 tiny-qwen2; do
  expect 0 '"steps":12' "train $model" "$bin/dtrain" --model $model --data data.h5 --seq-len 64 --micro-batch 4 --steps 12 --lr 3e-3 \
    --warmup-steps 2 --threads 2 --precision bf16 --out $model
  expect 0 '' "export $model" "$bin/dckpt" convert $model -o $model-hf
  g=(--prompt 'one two ' --max-tokens 20 --seed 3)
  from_run=$("$bin/dserve" generate --model $model "${g[@]}" 2>/dev/null)
  is "$model: run and export give the same text" "$("$bin/dserve" generate --model $model-hf "${g[@]}" 2>/dev/null)" "$from_run"
  is "$model: again the same" "$("$bin/dserve" generate --model $model "${g[@]}" --threads 1 2>/dev/null)" "$from_run"
  holds "$model: the text goes on from the prompt" "$from_run" 'one two '
  is "$model: another seed, another text" "$([ "$("$bin/dserve" generate --model $model --prompt 'one two ' --max-tokens 20 --seed 4 2>/dev/null)" != "$from_run" ] && echo yes)" yes
  expect 0 '"finish_reason":"length"' "$model: json" "$bin/dserve" generate --model $model "${g[@]}" --json
  expect 0 '"steps":2' "$model: training goes on from the export" "$bin/dtrain" --init-from $model-hf --data data.h5 --seq-len 64 --steps 2 \
    --warmup-steps 1 --threads 2 --out $model-again
  first=$(field $model-again/metrics.jsonl loss | head -n 1)
  is "$model: and starts where it ended" "$(echo "$first $(field $model/metrics.jsonl loss | head -n 1)" | awk '{ print ($1 < $2 - 0.5) }')" 1
  "$bin/dckpt" convert $model-again -o $model-x >/dev/null 2>&1
  expect 2 'expected an empty or new directory' "$model: a used export folder is refused" "$bin/dckpt" convert $model -o $model-hf
done
expect 0 'tokenizer' 'show' "$bin/dckpt" show tiny-llama
expect 0 '"step"' 'show --json' "$bin/dckpt" show tiny-llama --json
is 'a piped config is read once for all ranks' "$(printf 'steps = 1\nwarmup-steps = 0\n' | mpirun -n 2 "$bin/dtrain" --config - --model tiny-llama --data data.h5 --seq-len 32 --micro-batch 2 --threads 1 --out piped 2>/dev/null | field /dev/stdin steps)" 1
is '--print-config gives a config that gives itself' "$("$bin/dtrain" --model m --lr 0.25 --print-config | "$bin/dtrain" --config - --print-config)" "$("$bin/dtrain" --model m --lr 0.25 --print-config)"
finish
