#!/usr/bin/env bash
# dbench: collectives under mpirun (JSON fields, nothing wrong, the table is written and read back), kernels of a model.
. "$(dirname "$0")/lib.sh"

comm=("$bin/dbench" comm -b 1K -e 64K -f 8 -n 5 -w 1 --json)
# rows FILE: the rows of a record, a line each, as JSON without spaces.
rows() { python3 -c 'import json, sys; [print(json.dumps(r, separators=(",", ":"))) for r in json.load(open(sys.argv[1]))["details"]["rows"]]' "$1"; }
for n in 1 2; do
  expect 0 '"bench":"comm"' "comm on $n ranks" mpirun -n "$n" "${comm[@]}"
  timeout 120 mpirun -n "$n" "${comm[@]}" >comm.json 2>comm.err </dev/null
  rows comm.json >comm.rows
  is "$n ranks: nothing is wrong" "$(grep -v '"op":"barrier"' comm.rows | field /dev/stdin wrong | sort -u)" 0
  is "$n ranks: one record in one line" "$(wc -l <comm.json) $(grep -c '^{"bench":"comm",' comm.json)" '1 1'
done
is 'all operations' "$(field comm.rows op | sort -u | tr '\n' ' ')" 'all_gather all_reduce barrier broadcast reduce_scatter send_recv '
is 'all ways of all_reduce' "$(grep all_reduce comm.rows | field /dev/stdin way | sort -u | tr '\n' ' ')" 'auto direct doubling hierarchical mpi mpi-blocking ring tree '
is 'the sizes asked for' "$(field comm.rows bytes | sort -un | tr '\n' ' ')" '0 1024 8192 65536 '
for key in memory type redop root count ranks nodes in_place us us_min us_max samples algbw_gb_s busbw_gb_s; do
  is "every row has $key" "$(grep -vc "\"$key\":" comm.rows)" 0
done
is 'ranks' "$(field comm.rows ranks | sort -u)" 2
is 'bus bandwidth of 2 ranks: all_reduce as algbw' "$(grep all_reduce comm.rows | awk -F'gb_s":' '{ split($2, a, ","); split($3, b, ","); if (a[1] != b[1]) n++ } END { print n + 0 }')" 0
# A ring of 2 sends half of the 16384 elements twice.
is 'exact counts of a step list' "$(python3 -c '
import json
m = {m["name"]: m for m in json.load(open("comm.json"))["metrics"]}
ring = "comm.all_reduce.ring.65536.f32"
print(m[ring + ".sent_bytes"]["samples"], m[ring + ".sent_messages"]["kind"], len(m[ring + ".us"]["samples"]), len(m))')" "[65536.0] count 5 $(python3 -c 'import json; print(len(json.load(open("comm.json"))["metrics"]))')"
expect 0 '#wrong' 'the table for people' mpirun -n 2 "$bin/dbench" comm -b 1K -e 1K -n 5 -w 0 --op all_gather
expect 0 '"type":"bf16"' 'bf16 over two nodes' mpirun -n 4 "${comm[@]}" --op all_reduce --dtype bf16 --ranks-per-node 2
expect 0 '"type":"f16"' 'f16' mpirun -n 2 "${comm[@]}" --op reduce_scatter --dtype f16
expect 0 '"nodes":3' 'three nodes' mpirun -n 3 "${comm[@]}" --op all_reduce --way ring --way hierarchical --ranks-per-node 1
expect 0 '"bench"' 'without mpirun' "${comm[@]}"

# ---- links: fits, pairs, a cluster file ----
links=(mpirun -n 4 "$bin/dbench" comm -b 1K -e 64K -f 4 -n 5 -w 1 --op send_recv --ranks-per-node 2 --pair-bytes 64K)
expect 0 '#   network  send                2 ranks: ' 'a fit of each kind of link' "${links[@]}" --pairs rounds --cluster h100-sxm --cluster-fragment here.toml
expect 0 'at the same time' 'pairs in rounds say so' "${links[@]}" --pairs rounds
expect 0 'each alone' 'and pairs that were alone' "${links[@]}" --pairs alone
expect 0 'tp ' 'dplan reads the cluster file' "$bin/dplan" train --model tiny-llama --cluster ./here.toml --nodes 2 --global-batch 32 --seq-len 32
timeout 120 "${links[@]}" --pairs alone --json >links.json 2>/dev/null </dev/null
is 'all six pairs' "$(python3 -c 'import json; print(len(json.load(open("links.json"))["details"]["pair_matrix"]["pairs"]))')" 6
expect 0 '[[network.collective]]' 'dplan discover reads the record' "$bin/dplan" discover --ranks-per-node 2 --threads 1 --seconds 0.01 --comm-json links.json
expect 0 '' 'a fragment alone' "${links[@]}" --cluster-fragment fragment.toml
holds 'has the tables of a cluster file' "$(cat fragment.toml)" '[[node.collective]]'

expect 0 'comm.table: ' 'tune' mpirun -n 2 "$bin/dbench" comm -b 1K -e 64K -f 8 -n 5 -w 1 --ranks-per-node 1 --tune comm.table --json
holds 'the table says what it is' "$(cat comm.table)" '"format": "rankwright comm table"'
sed -E 's/"algorithm": "[a-z]+"/"algorithm": "tree"/; s/"segment_bytes": [0-9]+/"segment_bytes": 4096/' comm.table >tree.table
timeout 120 mpirun -n 2 "${comm[@]}" --op all_reduce --way auto --ranks-per-node 1 --comm-table tree.table >auto.json 2>/dev/null </dev/null
is 'the table is read back: auto takes its way' "$(rows auto.json | field /dev/stdin segment_bytes | sort -u)" 4096
expect 0 'rows' 'a second job adds its rows' mpirun -n 3 "$bin/dbench" comm -b 1K -e 1K -n 5 -w 0 --ranks-per-node 1 --tune comm.table --json
is 'and keeps the first one'"'"'s' "$(grep -o '"ranks": [0-9]*' comm.table | sort -u | tr '\n' ' ')" '"ranks": 2 "ranks": 3 '
echo '{"format": "rankwright comm table", "version": 1, "all_reduce": [{"ranks": 2}]}' >bad.table
expect 2 'all_reduce[0]' 'a wrong table names the row' mpirun -n 2 "${comm[@]}" --comm-table bad.table
is 'once' "$(mpirun -n 2 "${comm[@]}" --comm-table bad.table 2>&1 | grep -c 'all_reduce\[0\]')" 1
expect 2 'did you mean' 'a misspelt flag' "$bin/dbench" comm --itres 5
expect 2 'alltoall' 'an unknown operation' mpirun -n 2 "${comm[@]}" --op alltoall
expect 2 'did you mean comm' 'a misspelt subcommand' "$bin/dbench" com

kernels=("$bin/dbench" kernels --model tiny-llama --rows 32 --seq-len 16 --requests 2 --context 16 --seconds 0 --threads 1)
expect 0 'roofline' 'kernels' "${kernels[@]}"
"${kernels[@]}" --json >kernels.json 2>/dev/null
is 'one record' "$(wc -l <kernels.json) $(grep -c '^{"bench":"kernels",.*"peak_gflop_per_s":{"f32":' kernels.json)" '1 1'
for op in 'gemm qkv' 'gemm head d_w' attention_bwd swiglu_fwd rms_norm_bwd cross_entropy_finish adamw; do
  holds "$op is there" "$(cat kernels.json)" "\"op\":\"$op\""
  holds "$op is a metric" "$(cat kernels.json)" "\"name\":\"kernel.$op "
done
is 'f32 and bf16' "$(grep -o '"type":"[a-z0-9]*"' kernels.json | sort -u | tr '\n' ' ')" '"type":"bf16" "type":"f32" '
is 'no verdict but where it was quiet' "$(grep -o '"quiet":false,"roofline_share":[^}]*' kernels.json | grep -vc 'null$')" 0
expect 0 'device' 'dplan discover reads it' "$bin/dplan" discover --kernels-json kernels.json --seconds 0
expect 2 'seq-len' 'rows that do not divide' "${kernels[@]}" --seq-len 7
expect 2 '--model is needed' 'no model' "$bin/dbench" kernels
finish
