#!/usr/bin/env bash
# Bad input gets a clear error (which thing, expected, found, what to do), exit code 2, and nothing is lost.
. "$(dirname "$0")/lib.sh"

make_text 400 >text.txt
"$bin/dtrain" prepare --input text.txt --tokenizer bytes --output data.h5 2>/dev/null
t=("$bin/dtrain" --model tiny-llama --data data.h5 --seq-len 32 --micro-batch 2 --steps 2 --warmup-steps 1 --threads 1 --peak-flops 1e12)

expect 2 'expected' 'no such model' "${t[@]}" --model nowhere --out o
expect 2 'gpt2-124m' 'an unknown model lists the known ones' "${t[@]}" --model nowhere --out o
expect 2 'none.h5' 'no such data' "${t[@]}" --data none.h5 --out o
head -c 3000 data.h5 >cut.h5
expect 2 'cut.h5' 'a truncated token file' "${t[@]}" --data cut.h5 --out o
echo '{"model_type": "mamba"}' >mamba.json
expect 2 'mamba' 'an unknown model type' "${t[@]}" --model mamba.json --out o
echo '{"model_type": "llama", "hidden_size": "x"}' >bad.json
expect 2 'hidden_size' 'a wrong key type' "${t[@]}" --model bad.json --out o
echo '{"model_type"' >torn.json
expect 2 'torn.json' 'a torn config' "${t[@]}" --model torn.json --out o
sed 's/"vocab_size": [0-9]*/"vocab_size": 200/' "$source_dir/configs/models/tiny-llama.json" >small.json
expect 2 'vocab' 'a vocabulary larger than the model' "${t[@]}" --model small.json --out o
expect 2 'not divisible' 'a global batch that does not divide' mpirun -n 2 "${t[@]}" --global-batch 7 --out o
is 'an error of all ranks is printed once' "$(mpirun -n 2 "${t[@]}" --global-batch 7 --out o 2>&1 | grep -c 'not divisible')" 1
expect 2 'longer than' 'a sequence longer than the model' "${t[@]}" --seq-len 100000 --out o
head -c 20 text.txt >short.txt
"$bin/dtrain" prepare --input short.txt --tokenizer bytes --output short.h5 2>/dev/null
expect 2 'needs at least' 'a sequence longer than the data' "${t[@]}" --data short.h5 --out o
: >empty.txt
expect 2 'empty.txt' 'an empty corpus' "$bin/dtrain" prepare --input empty.txt --tokenizer bytes --output empty.h5
is 'which leaves no file' "$(ls | grep -c '^empty.h5')" 0
expect 2 'none.json' 'no such tokenizer' "$bin/dtrain" prepare --input text.txt --tokenizer none.json --output x.h5
expect 2 'did you mean' 'a misspelt flag' "${t[@]}" --sep-len 3 --out o
printf 'model = "tiny-llama"\nsepq-len = 3\n' >run.toml
expect 2 'run.toml:2' 'a misspelt key names its line' "${t[@]}" --config run.toml --out o
expect 2 '--steps' 'a number that is none' "${t[@]}" --steps many --out o
expect 2 'run directory' 'no --out' "${t[@]}"
expect 2 'expected a directory' '--out is a file' "${t[@]}" --out text.txt
mkdir hf && cp "$source_dir/configs/models/tiny-llama.json" hf/config.json
expect 2 'safetensors' '--init-from without weights' "${t[@]}" --model '' --init-from hf --out o
head -c 100 /dev/urandom >hf/model.safetensors
expect 2 'model.safetensors' '--init-from with broken weights' "${t[@]}" --model '' --init-from hf --out o
expect 2 '--resume' '--resume from nothing' "${t[@]}" --resume nowhere --out o
is 'nothing was made on the way' "$(ls -d o 2>/dev/null)" ''

"${t[@]}" --out run >/dev/null 2>&1
cp -r run good
expect 2 'seed' 'another seed on resume' "${t[@]}" --out run --resume auto --seed 9 --steps 4
expect 2 'model' 'another model on resume' "${t[@]}" --model tiny-gpt2 --out run --resume auto --steps 4
expect 0 'global-batch was' 'another batch on resume is told' "${t[@]}" --out run --resume auto --steps 4 --global-batch 4
expect 2 '--prompt is needed' 'no prompt' "$bin/dserve" generate --model good --prompt ''
expect 2 'nowhere' 'generate from nowhere' "$bin/dserve" generate --model nowhere --prompt x
expect 0 'intact' 'an intact checkpoint verifies' "$bin/dckpt" verify good
file=$(ls good/checkpoints/*/rank-*.h5 | head -n 1)
printf 'X' | dd of="$file" bs=1 seek=9000 conv=notrunc 2>/dev/null
expect 3 'rank-' 'a flipped byte is found, exit 3' "$bin/dckpt" verify good
expect 3 'damaged' 'generate refuses damaged weights' "$bin/dserve" generate --model good --prompt x
expect 3 'damaged' 'convert refuses damaged weights' "$bin/dckpt" convert good -o out_hf
is 'and leaves nothing' "$(ls -A out_hf 2>/dev/null)" ''
expect 3 'none of the checkpoints' 'a run whose checkpoints are all damaged is not begun anew' "${t[@]}" --out good --resume auto
is 'and keeps its history' "$(wc -l <good/metrics.jsonl)" 2
"${t[@]}" --steps 3 --checkpoint-every 1 --checkpoint-mode sync --keep-last 0 --out older >/dev/null 2>&1
printf 'X' | dd of=older/checkpoints/step-00000003/rank-00000.h5 bs=1 seek=90000 conv=notrunc 2>/dev/null
expect 0 'step-00000002 at step 2' 'a flipped byte makes resume fall back to the checkpoint before' "${t[@]}" --steps 3 --out older --resume auto

expect 1 'not finite' 'a run that only skips ends with an error' "${t[@]}" --lr 1e38 --precision f32 --warmup-steps 0 --steps 40 --max-skips 4 --out wild
expect 0 'nothing to do' 'a finished run has nothing to do' "${t[@]}" --out run --resume auto --steps 4 --global-batch 4
expect 0 'lr 0.0003 -> 0.001' 'a changed setting is told on resume' "${t[@]}" --out run --resume auto --steps 5 --global-batch 4 --lr 0.001
expect 2 'this CPU runs' 'an unknown instruction set' env RANKWRIGHT_ISA=nonsense "${t[@]}" --out isa
expect 1 'out of memory' 'a batch beyond memory' "${t[@]}" --seq-len 256 --micro-batch 1000000 --out big
expect 1 'standard output cannot be written' 'a full output is an error' bash -c "'$bin/dtrain' --print-config >/dev/full"
mkfifo pipe
expect 2 '--input -' 'a pipe cannot be read twice' "$bin/dtrain" prepare --input pipe --train-bpe 300 --output pipe.h5
cp data.h5 'd:1.h5'
expect 0 '' 'a colon in a file name' "${t[@]}" --data d:1.h5 --out colon
"${t[@]}" --steps 100000 --out busy >/dev/null 2>&1 </dev/null &
job=$!
for _ in $(seq 600); do [ "$(cat busy/metrics.jsonl 2>/dev/null | wc -l)" -ge 1 ] && break; sleep 0.1; done
expect 2 'another process is training' 'a second trainer in the same run is refused' "${t[@]}" --out busy --resume auto
kill -TERM $job
wait $job
is 'and the first one saves when it is stopped' $? 75
finish
