#!/usr/bin/env bash
# dbench train: the record of a short training under mpirun, a ladder, a sweep; dtrain's metrics port while it trains.
. "$(dirname "$0")/lib.sh"

train=("$bin/dbench" train --model tiny-llama --seq-len 32 --micro-batch 2 --precision f32 --threads 1 --warmup 1 --measure 3 --repeats 2 --comm-timeout 30)
timeout 120 mpirun -n 2 "${train[@]}" --json >one.json 2>one.err </dev/null
is 'it ends well' "$?" 0
is 'one record' "$(wc -l <one.json) $(grep -c '^{"bench":"train","name":"tiny-llama: tp 1 x pp 1 x dp 2, f32, 4 x 32 tokens",' one.json)" '1 1'
for metric in step_s tokens_per_s step_p90_s step_p99_s mfu.full mfu.causal mfu.hardware compute_s communication_s bubble_s data_s checkpoint_s \
  communication_exposed_s memory.weights.bytes memory.optimizer.bytes memory.planned.bytes calls.replica.all_reduce bytes.replica.all_reduce \
  kernel_calls kernel_flops; do
  holds "$metric is there" "$(cat one.json)" "\"name\":\"$metric\","
done
cat >look.py <<'P'
import json, sys
record = json.loads(open(sys.argv[1]).readline())
metrics = {m['name']: m for m in record['metrics']}
step, speed = metrics['step_s'], metrics['tokens_per_s']
problems = []
def need(what, ok):
    if not ok: problems.append(what)
need('a sample a repeat', len(step['samples']) == 2 and record['repeats'] == 2)
need('predicted beside measured', step['predicted'] > 0 and metrics['compute_s']['predicted'] > 0)
need('the roofline is a limit', 0 < step['limit'] < 1)
# 4 sequences of 32 tokens, in the median step
need('tokens/s and steps agree', abs(speed['samples'][0] * step['samples'][0] / 128 - 1) < 1e-6)
need('one peak for both MFUs', abs(metrics['mfu.full']['predicted'] * step['predicted'] / (metrics['mfu.full']['samples'][0] * step['samples'][0]) - 1) < 0.5)
need('the prediction says whether it was quiet', record['details']['prediction']['quiet'] in (True, False))
# Gradients of all parameters, f32, once: every parameter's bytes go through the replicas' all_reduce
params = record['details']['params']
need('gradient bytes', metrics['bytes.replica.all_reduce']['samples'][0] == 4 * params)
need('optimizer: two moments of f32', metrics['memory.optimizer.bytes']['samples'][0] >= 8 * params)
need('reading of the MFU', 'a CPU is not held to that' in record['details']['mfu_reading'])
need('counts are counts', metrics['kernel_calls']['kind'] == 'count')
print('; '.join(problems) or 'sound')
P
is 'the record is sound' "$(python3 look.py one.json)" sound
is 'no checkpoint, no folder stays' "$(find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'dbench-*' -newer look.py 2>/dev/null | wc -l)" 0
timeout 120 mpirun -n 2 "${train[@]}" --json >two.json 2>/dev/null </dev/null
counts() { python3 -c 'import json, sys; print(sorted((m["name"], m["samples"]) for m in json.load(open(sys.argv[1]))["metrics"] if m["kind"] == "count"))' "$1"; }
is 'counts are the same in every run' "$(counts two.json)" "$(counts one.json)"
if "$bin/dbench" --help | grep -q '^ *compare '; then
  out=$("$bin/dbench" compare one.json two.json --metric calls --metric memory --noisy 2>&1); got=$?
  is 'dbench compare reads it' "$got" 0
  [ "$got" = 0 ] || printf '%s\n' "$out"
fi

expect 0 'measured' 'the table for people' mpirun -n 2 "${train[@]}" --repeats 1
expect 0 'What limits here' 'without mpirun, without a prediction' "${train[@]}" --repeats 1 --no-predict
timeout 250 mpirun -n 2 "${train[@]}" --ladder --repeats 1 --json >ladder.json 2>ladder.err </dev/null
is 'the ladder ends well' "$?" 0
is 'its rungs' "$(grep -o '"ladder":{"rung":"[^"]*"' ladder.json | cut -d'"' -f6 | tr '\n' ',')" \
  'dp 2,+ zero 1,+ tp 2,+ sp,pp 2,+ schedule zb-h1,+ recompute selective,+ recompute full,'
expect 0 'vs base' 'the ladder as a table' mpirun -n 2 "${train[@]}" --ladder --repeats 1 --no-predict
expect 0 'skipped: ' 'one rank has no ranks to lay out' "${train[@]}" --ladder --repeats 1 --no-predict
timeout 120 mpirun -n 3 "${train[@]}" --sweep-ranks 1,2,3 --scaling weak --repeats 1 --json --keep kept >sweep.json 2>sweep.err </dev/null
is 'the sweep ends well' "$?" 0
is 'three sizes and a law' "$(wc -l <sweep.json) $(grep -c '"growth":' sweep.json)" '4 1'
is 'weak: samples follow the ranks' "$(grep -o '"name":"tiny-llama[^"]*tokens"' sweep.json | grep -o ', [0-9]* x' | tr -d ' x,' | tr '\n' ' ')" '2 4 6 '
is 'run directories are kept' "$(ls kept/*/metrics.jsonl | wc -l)" 3
expect 0 'needs three' 'two sizes make no law' mpirun -n 2 "${train[@]}" --sweep-ranks 1,2 --repeats 1 --no-predict

expect 2 '--model is missing' 'no model' "$bin/dbench" train
expect 2 'did you mean' 'a misspelt flag' "${train[@]}" --laddr
expect 2 'more than this job' 'more ranks than there are' mpirun -n 2 "${train[@]}" --sweep-ranks 1,4
expect 2 'expected numbers of ranks' 'no numbers' "${train[@]}" --sweep-ranks 1,,2
expect 2 'exclude each other' 'two questions' "${train[@]}" --sweep-ranks 1 --ladder
expect 2 'leave them out' 'a ladder and a layout' mpirun -n 2 "${train[@]}" --ladder --tp 2
expect 2 'does not divide' 'a layout that is none' mpirun -n 2 "${train[@]}" --tp 4
expect 2 '--keep kept: expected a new' 'a used folder' "${train[@]}" --keep kept

# ---- dbench validate ----
validate=("$bin/dbench" validate --config "$source_dir/configs/bench/validate.toml" --seq-len 16 --measure 2 --warmup 1 --repeats 1 --requests 3
  --concurrency 2 --input-len 8 --output-len 4 --scale-ranks 3 --timeout 60)
timeout 200 "${validate[@]}" --baseline baselines --save --json >validate.json 2>validate.err </dev/null
is 'validate passes or warns' "$?" 0
is 'all stages' "$(grep -o '"stage":"[a-z-]*"' validate.json | cut -d'"' -f4 | tr '\n' ' ')" 'train serve serve-tp scale-up '
holds 'training stands beside its prediction' "$(cat validate.json)" 'step_s: '
holds 'serving stands beside its prediction' "$(cat validate.json)" 'median_tpot_ms: '
is 'a baseline of each stage' "$(find baselines -name '*.json' | wc -l)" 4
expect 3 'train: exit' 'a launcher that fails fails the stage' "${validate[@]}" --stage train --launcher 'sh -c false {n}'
expect 2 '--stage: expected train' 'an unknown stage' "$bin/dbench" validate --stage tarin

# ---- dtrain --metrics-port ----
make_text 400 >corpus.txt
"$bin/dtrain" prepare --input corpus.txt --tokenizer bytes --output corpus.h5 2>/dev/null || miss 'prepare'
run=("$bin/dtrain" --model tiny-llama --data corpus.h5 --seq-len 32 --micro-batch 2 --precision f32 --threads 1 --comm-timeout 30)
mpirun -n 2 "${run[@]}" --out live --steps 20000 --metrics-port auto 2>live.err >/dev/null </dev/null &
job=$!
for _ in $(seq 300); do
  port=$(sed -n 's|.*metrics: http://127.0.0.1:\([0-9]*\)/metrics.*|\1|p' live.err)
  [ -n "$port" ] && [ -s live/metrics.jsonl ] && break
  sleep 0.1
done
cat >scrape.py <<'P'
import json, sys, urllib.request
port = sys.argv[1]
get = lambda path: urllib.request.urlopen(f'http://127.0.0.1:{port}{path}', timeout=20).read().decode()
assert json.loads(get('/health'))['state'] == 'training'
scraped = {}
for line in get('/metrics').splitlines():
    if not line.startswith('#'):
        name, _, value = line.rpartition(' ')
        scraped[name] = float(value)
steps = int(scraped['rankwright_train_step_seconds_count'])
lines = [json.loads(l) for l in open('live/metrics.jsonl').read().split('\n')[:-1]]
# A scrape may fall between the updates of one step.
for n in (steps - 1, steps, steps + 1):
    some = lines[:n]
    if n < 1 or n > len(lines): continue
    total = sum(l['seconds']['compute'] for l in some)
    if abs(scraped['rankwright_train_seconds_total{category="compute"}'] - total) < 1e-9 * total:
        print('the sum of', 'some' if n > 0 else 'no', 'lines')
        break
else:
    print('no sum of the lines')
P
is 'a scrape while it trains' "$(python3 scrape.py "$port" 2>&1)" 'the sum of some lines'
expect 2 "--metrics-port $port: " 'a taken port ends the next run at its start' "${run[@]}" --out other --steps 1 --metrics-port "$port"
kill -USR1 "$job" 2>/dev/null
wait "$job"
is 'it still stops cleanly' "$?" 75
expect 2 'expected a port' 'no port' "${run[@]}" --out other --steps 1 --metrics-port 70000
finish
