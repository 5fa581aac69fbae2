#!/usr/bin/env bash
# dbench: collectives under mpirun (JSON fields, nothing wrong, the table is written and read back), kernels of a model.
. "$(dirname "$0")/lib.sh"

comm=("$bin/dbench" comm -b 1K -e 64K -f 8 -n 5 -w 1 --json)
for n in 1 2; do
  expect 0 '"op":"all_reduce"' "comm on $n ranks" mpirun -n "$n" "${comm[@]}"
  timeout 120 mpirun -n "$n" "${comm[@]}" >comm.json 2>comm.err </dev/null
  is "$n ranks: nothing is wrong" "$(field comm.json wrong | sort -u)" 0
  is "$n ranks: a line a timing, nothing else" "$(grep -vc '^{"op":.*}$' comm.json)" 0
done
is 'all operations' "$(field comm.json op | sort -u | tr '\n' ' ')" 'all_gather all_reduce broadcast reduce_scatter send_recv '
is 'all ways of all_reduce' "$(grep all_reduce comm.json | field /dev/stdin way | sort -u | tr '\n' ' ')" 'auto direct doubling hierarchical mpi mpi-blocking ring tree '
is 'the sizes asked for' "$(field comm.json bytes | sort -un | tr '\n' ' ')" '1024 8192 65536 '
for key in memory type redop root count ranks nodes in_place us us_min us_max samples algbw_gb_s busbw_gb_s; do
  is "every line has $key" "$(grep -vc "\"$key\":" comm.json)" 0
done
is 'ranks' "$(field comm.json ranks | sort -u)" 2
is 'bus bandwidth of 2 ranks: all_reduce as algbw' "$(grep all_reduce comm.json | awk -F'gb_s":' '{ split($2, a, ","); split($3, b, ","); if (a[1] != b[1]) n++ } END { print n + 0 }')" 0
expect 0 '#wrong' 'the table for people' mpirun -n 2 "$bin/dbench" comm -b 1K -e 1K -n 5 -w 0 --op all_gather
expect 0 '"type":"bf16"' 'bf16 over two nodes' mpirun -n 4 "${comm[@]}" --op all_reduce --dtype bf16 --ranks-per-node 2
expect 0 '"nodes":3' 'three nodes' mpirun -n 3 "${comm[@]}" --op all_reduce --way ring --way hierarchical --ranks-per-node 1
expect 0 '"op"' 'without mpirun' "${comm[@]}"

expect 0 'comm.table: ' 'tune' mpirun -n 2 "$bin/dbench" comm -b 1K -e 64K -f 8 -n 5 -w 1 --ranks-per-node 1 --tune comm.table --json
holds 'the table says what it is' "$(cat comm.table)" '"format": "rankwright comm table"'
sed -E 's/"algorithm": "[a-z]+"/"algorithm": "tree"/; s/"segment_bytes": [0-9]+/"segment_bytes": 4096/' comm.table >tree.table
timeout 120 mpirun -n 2 "${comm[@]}" --op all_reduce --way auto --ranks-per-node 1 --comm-table tree.table >auto.json 2>/dev/null </dev/null
is 'the table is read back: auto takes its way' "$(field auto.json segment_bytes | sort -u)" 4096
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
is 'a line for the peaks' "$(grep -c '"peak_gflop_per_s":{"f32":' kernels.json)" 1
for op in 'gemm qkv' 'gemm head d_w' attention_bwd swiglu_fwd rms_norm_bwd cross_entropy_finish adamw; do
  is "$op is there" "$(grep -c "\"op\":\"$op\"" kernels.json | awk '{ print ($1 > 0) }')" 1
done
is 'f32 and bf16' "$(field kernels.json type | sort -u | tr '\n' ' ')" 'bf16 f32 '
is 'no verdict but where it was quiet' "$(grep '"quiet":false' kernels.json | grep -vc '"roofline_share":null')" 0
expect 2 'seq-len' 'rows that do not divide' "${kernels[@]}" --seq-len 7
expect 2 '--model is needed' 'no model' "$bin/dbench" kernels
finish
