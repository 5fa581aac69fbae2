#!/usr/bin/env bash
# scripts/closed_loop: what is measured is planned with, run, compared with its prediction, and diagnosed.
. "$(dirname "$0")/lib.sh"
export CLOSED_LOOP_DIR=$scratch/loop BUILD=$RANKWRIGHT_BUILD MPIRUN='mpirun --allow-run-as-root --oversubscribe' STEPS=12
timeout 240 "$source_dir/scripts/closed_loop" >out.json 2>log.txt </dev/null
code=$?
if [ $code -eq 0 ] || [ $code -eq 3 ]; then pass 'the loop comes to its end'; else miss "the loop: exit $code" "$(cat log.txt)"; fi
cd loop || exit 1
is 'a table for dtrain --comm-table' "$(python3 -c 'import json; print(len(json.load(open("comm_table.json"))["all_reduce"]) > 0)')" True
is 'the timings are exact' "$(python3 -c '
import json
r = json.load(open("comm.json"))
wrong = [m for m in r["metrics"] if m["name"].endswith(".wrong")]
print(len(wrong) > 0 and all(v == 0 for m in wrong for v in m["samples"]))')" True
holds 'the machine is measured' "$(cat machine.toml)" 'measured'
is 'the run followed its plan' "$(python3 -c '
import json, tomllib
plan, run = tomllib.load(open("plan.toml", "rb")), json.load(open("run/run.json"))
l = run["layout"]
print((plan["tp"], plan["pp"]) == (l["tp"], l["pp"]), run["predicted"]["step-time-s"] > 0)')" 'True True'
is 'the prediction stands beside what was measured' "$(python3 -c '
import json
p = json.loads(open("result.json").read().strip().splitlines()[-1])["prediction"]
print(p["step_time_s"]["predicted"] > 0, p["step_time_s"]["measured"] > 0, abs(p["memory_bytes"]["ratio"] - 1) < 1e-9)')" 'True True True'
is 'the doctor has looked at it' "$(python3 -c '
import json
d = json.load(open("doctor.json"))
print(d["kind"], all(f["layer"] in ("data flow", "communication", "resources", "parameters") for f in d["findings"]))')" 'run True'
holds 'a page to look at' "$(head -c 200 report.html)" '<!doctype html>'
expect 0 'CLOSED_LOOP_DIR' 'help' "$source_dir/scripts/closed_loop" --help
expect 2 'expected no arguments' 'no arguments' "$source_dir/scripts/closed_loop" here
mkdir "$scratch/mine" && touch "$scratch/mine/precious"
expect 2 'holds other things' "somebody's folder" env CLOSED_LOOP_DIR="$scratch/mine" "$source_dir/scripts/closed_loop"
is 'which is left alone' "$(ls "$scratch/mine")" precious
is 'one JSON line at the end' "$(wc -l <../out.json)" 1
finish
