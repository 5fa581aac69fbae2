#!/usr/bin/env bash
# dplan train from the command line: what it plans dtrain runs and compares with; what it refuses, and what would help.
. "$(dirname "$0")/lib.sh"
plan=("$bin/dplan" train)
cpu=(--model tiny-llama --cluster cpu-2core --global-batch 8 --seq-len 32)

make_text 600 >text.txt
expect 0 '' 'prepare' "$bin/dtrain" prepare --input text.txt --train-bpe 400 --output data.h5

# ---- a plan is run as it is, and its prediction stands beside what was measured ----
expect 0 'tp ' 'a table' "${plan[@]}" "${cpu[@]}" -o plan.toml
expect 0 'global-batch = 8' 'its configuration is accepted' "$bin/dtrain" --config plan.toml --print-config
expect 0 ' s predicted, ' 'a planned run' mpirun --allow-run-as-root --oversubscribe -n 2 "$bin/dtrain" --config plan.toml --data data.h5 --out run --steps 5 --warmup-steps 1 --threads 1 --comm-timeout 60
mpirun --allow-run-as-root --oversubscribe -n 2 "$bin/dtrain" --config plan.toml --data data.h5 --out again --steps 3 --warmup-steps 1 --threads 1 --comm-timeout 60 >summary.json 2>/dev/null </dev/null
is 'memory to the byte' "$(python3 -c '
import json
memory = json.load(open("summary.json"))["prediction"]["memory_bytes"]
print(memory["predicted"] - memory["measured"])')" 0.0
is 'the run record knows its plan' "$(python3 -c 'import json; r = json.load(open("run/run.json")); print(r["plan"]["ranks"], r["plan"]["cluster"] != "", r["predicted"]["step-time-s"] > 0)')" '2 True True'
expect 0 '"prediction":{"step_time_s"' 'through a pipe' bash -c "'$bin/dplan' train ${cpu[*]} --tp 2 -o - 2>/dev/null | timeout 120 mpirun --allow-run-as-root --oversubscribe -n 2 '$bin/dtrain' --config - --data data.h5 --out piped --steps 3 --warmup-steps 1 --threads 1 --comm-timeout 60"
is 'the pin was kept' "$(python3 -c 'import json; print(json.load(open("piped/run.json"))["layout"]["tp"])')" 2

# ---- JSON ----
expect 0 '"plans":[{"layout":{' 'JSON' "${plan[@]}" --model llama-2-13b --cluster roce-4x8 --global-batch 512 --seq-len 4096 --json
"${plan[@]}" --model llama-2-13b --cluster roce-4x8 --global-batch 512 --seq-len 4096 --json --explain >plans.json
is 'its keys' "$(python3 -c '
import json
d = json.load(open("plans.json"))
p = d["plans"][0]
assert set(p) >= {"layout", "step_time_s", "tokens_per_s", "tflops_per_device", "mfu", "memory", "time_s", "provenance", "error_bar"}, p.keys()
assert set(p["tflops_per_device"]) == set(p["mfu"]) == {"full", "causal", "hardware"}
assert set(p["time_s"]) == {"compute", "exposed_tp", "exposed_pp", "exposed_dp", "bubble", "optimizer"}
assert abs(sum(p["time_s"].values()) - p["step_time_s"]) < 1e-9 * p["step_time_s"]
assert abs(sum(p["memory"]["by_owner"].values()) - p["memory"]["high_water_bytes"]) < 1
assert d["explain"] and d["rejected"]
print(p["layout"]["tp"] * p["layout"]["pp"] * p["layout"]["dp"])')" 32
"${plan[@]}" --model llama-2-13b --cluster roce-4x8 --global-batch 512 --seq-len 4096 --json >again.json
"${plan[@]}" --model llama-2-13b --cluster roce-4x8 --global-batch 512 --seq-len 4096 --json >twice.json
is 'the same again' "$(cmp again.json twice.json && echo same)" same

# ---- the classic small cluster: 13B on 4 nodes of 8, sharded states, recomputation, micro-batch 8 in 16 steps ----
expect 0 'recompute full, micro-batch 8' 'the classic plan fits' "${plan[@]}" --model llama-2-13b --cluster roce-4x8 --global-batch 4096 --seq-len 2048 --tp 1 --pp 1 --zero 3 --recompute full --micro-batch 8

# ---- refusals ----
expect 2 '--global-batch is missing' 'no batch' "${plan[@]}" --model tiny-llama --cluster cpu-2core
expect 2 '--tp 8 x --pp 8 = 64 does not divide 32 ranks' 'pins that conflict' "${plan[@]}" --model llama-2-13b --cluster roce-4x8 --global-batch 64 --tp 8 --pp 8
expect 2 'nope' 'no such cluster' "${plan[@]}" --model tiny-llama --cluster nope --global-batch 8
sed 's/memory-bandwidth/memory-bandwith/' "$RANKWRIGHT_SOURCE/configs/clusters/cpu-2core.toml" >typo.toml
expect 2 'did you mean "memory-bandwidth"' 'an unknown key' "${plan[@]}" --model tiny-llama --cluster ./typo.toml --global-batch 8
sed 's/^link-bandwidth = .*/link-bandwidth = 0/' "$RANKWRIGHT_SOURCE/configs/clusters/cpu-2core.toml" >zero.toml
expect 2 'link-bandwidth' 'a link without bandwidth' "${plan[@]}" --model tiny-llama --cluster ./zero.toml --global-batch 8
expect 3 'what would: more nodes: with' 'nothing fits' "${plan[@]}" --model llama-2-70b --cluster a100-80 --nodes 1 --global-batch 64
expect 3 'does not fit by' 'nothing fits: by how much' "${plan[@]}" --model llama-2-7b --cluster a100-80 --nodes 1 --global-batch 64 --max-memory 4Gi --json

finish
