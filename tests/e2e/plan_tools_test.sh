#!/usr/bin/env bash
# The subcommands of dplan beside train and place, each on a shipped profile: what they print, and what they refuse.
. "$(dirname "$0")/lib.sh"
plan=$bin/dplan
expect 0 '' 'a plan to work on' "$plan" train --model llama-2-13b --cluster h100-sxm --nodes 4 --global-batch 256 --seq-len 4096 --pp 4 --tp 2 -o plan.toml
job=(--config plan.toml --cluster h100-sxm --nodes 4)

# ---- memory ----
expect 0 'A rank may take' 'memory of a plan' "$plan" memory "${job[@]}" --rank all-stages
expect 0 '"fits":true' 'memory as JSON' "$plan" memory "${job[@]}" --json
expect 3 '' 'memory that a device does not have' "$plan" memory --model llama-2-70b --cluster a100-80 --nodes 1 --tp 8 --micro-batch 1 --global-batch 8
expect 2 'from 0 to 31' 'a rank that there is not' "$plan" memory "${job[@]}" --rank 32

# ---- schedule ----
expect 0 'bubble 27.27 %' 'the bubble of 4 stages and 8 micro-batches: 3/11' "$plan" schedule --pp 4 --micro-batches 8
expect 0 '' 'a drawing' "$plan" schedule "${job[@]}" --svg pipeline.svg
is 'it is XML' "$(python3 -c 'import xml.etree.ElementTree as t; print(t.parse("pipeline.svg").getroot().tag.split("}")[1])')" svg
is 'every action with its times' "$("$plan" schedule --pp 3 --micro-batches 5 --json | python3 -c 'import json, sys; print(str(json.load(sys.stdin)).count("begin"))')" 30
expect 2 'at most 262144' 'a timeline that is too long' "$plan" schedule --pp 64 --micro-batches 8192
expect 2 'both go to standard output' 'two things to one place' "$plan" schedule --pp 2 --svg - --json
expect 2 'the plan says it' 'equal stages beside a model' "$plan" schedule "${job[@]}" --forward-ms 2
ln -s real.svg link.svg
expect 0 'unequal stages included' 'a drawing through a link' "$plan" schedule --pp 2 --svg link.svg
is 'the link stays' "$(readlink link.svg):$(head -c 4 real.svg)" 'real.svg:<?xm'

# ---- scale ----
expect 0 'S(N) = 1 /' 'a scaling law' "$plan" scale --model llama-2-7b --cluster h100-sxm --nodes 1..8 --global-batch 256 --seq-len 4096
printf 'n,step_time_s\n1,100\n2,52.5\n4,28.75\n8,16.875\n' >measured.csv # 0.95 / N + 0.05: Amdahl
expect 0 'P = 0.05' 'a law fitted to measured steps' "$plan" scale --measured measured.csv
expect 2 'three sizes or more' 'too few points' bash -c "head -n 3 measured.csv >few.csv; '$plan' scale --measured few.csv"

# ---- ckpt ----
expect 0 'save every' 'how often to save' "$plan" ckpt "${job[@]}"
expect 2 'mtbf' 'no failure rate' "$plan" ckpt --model tiny-llama --cluster cpu-2core --global-batch 8 --step-time 1 --bandwidth 1e9 --blocking 0.1
expect 2 '-1 for the copy' 'a negative stop' "$plan" ckpt "${job[@]}" --blocking -0.5
expect 0 'the time to write decides' 'a slow disk sets the interval' "$plan" ckpt "${job[@]}" --bandwidth 1e7

# ---- serve ----
expect 0 ' * ' 'serving within latencies' "$plan" serve --model llama-3-8b --cluster h100-sxm --nodes 1 --workload in=512,out=64,rate=4,requests=200 --slo-ttft-ms 500 --slo-itl-ms 50
expect 3 '' 'latencies that nothing keeps' "$plan" serve --model llama-3-8b --cluster h100-sxm --nodes 1 --workload in=4096,out=64,rate=4,requests=50 --slo-ttft-ms 1 --slo-itl-ms 1
expect 0 '' 'a published trace format' "$plan" serve --model llama-3-8b --cluster h100-sxm --nodes 1 --workload "$source_dir/tests/plan/chat_trace.jsonl" --slo-ttft-ms 2000 --slo-itl-ms 100
printf '{"timestamp": 0, "input_length": 5, "output_length": "x"}\n' >bad.jsonl
expect 2 'bad.jsonl:1' 'a bad line has its number' "$plan" serve --model llama-3-8b --cluster h100-sxm --workload bad.jsonl --slo-ttft-ms 1 --slo-itl-ms 1

# ---- discover, calibrate ----
expect 0 '' 'this machine' "$plan" discover --ranks-per-node 1 --threads 1 --seconds 0.05 -o here.toml
expect 0 'tp 1 x pp 1' 'and a plan for it' "$plan" train --model tiny-llama --cluster ./here.toml --global-batch 8 --seq-len 32
# What nvidia-smi and the PCI bus of another machine tell: a nvidia-smi of our own, and a file in hwloc's XML.
hosts=$source_dir/tests/plan/hosts
mkdir silent without_topo answering
printf '#!/bin/sh\nexit 9\n' >silent/nvidia-smi
printf '#!/bin/sh\ncase "$*" in\n*--query-gpu=name,memory.total,pci.bus_id*) printf "NVIDIA H100 80GB HBM3, 81559, 00000000:17:00.0\\nNVIDIA H100 80GB HBM3, 81559, 00000000:87:00.0\\n" ;;\n*) exit 9 ;;\nesac\n' >without_topo/nvidia-smi
printf '#!/bin/sh\n[ "$*" != "topo -m" ] && exec %q/without_topo/nvidia-smi "$@"\nprintf "\\tGPU0\\tGPU1\\tCPU Affinity\\nGPU0\\t X \\tNV18\\tN/A\\nGPU1\\tNV18\\t X \\tN/A\\n"\n' "$PWD" >answering/nvidia-smi
# ./there SMI XML: dplan discover where SMI is nvidia-smi's folder.
printf '#!/bin/sh\nCUDA_VISIBLE_DEVICES= PATH=%q/$1:$PATH HWLOC_XMLFILE=$2 exec %q discover --ranks-per-node 1 --threads 1 --seconds 0 -o there.toml\n' "$PWD" "$plan" >there
chmod +x ./*/nvidia-smi there
expect 0 "warning: the GPUs of the file $hosts/two_sockets.xml (HWLOC_XMLFILE) do not answer" 'GPUs that do not answer are not passed over' ./there silent "$hosts/two_sockets.xml"
expect 0 "# not in this file: the PCI bus's NVIDIA GPUs, 4 x GH100 [H100 SXM5 80GB] at 0000:13:00.0" 'the file says so' cat there.toml
expect 0 'unset HWLOC_XMLFILE to see this host' 'and what to do' cat there.toml
expect 0 'PHB between 2 pairs, SYS between 4 pairs (NVLink not told); nearest NICs GPU 0 mlx5_0' 'and what the bus tells' cat there.toml
./there silent "$hosts/no_gpus.xml" 2>there.err
is 'a machine without GPUs has nothing to be told' "$(grep -c 'GPU' there.toml there.err | tr '\n' ' ')" 'there.toml:0 there.err:0 '
expect 0 '2 x h100-sxm' 'two GPUs of four' ./there answering "$hosts/two_sockets.xml"
expect 0 '2 GPUs, NV18 between all; nearest NICs GPU 0 mlx5_1 (PIX), GPU 1 mlx5_3 (PIX)' 'cards from the bus beside NVLink from nvidia-smi' cat there.toml
expect 0 '2 x h100-sxm' 'a nvidia-smi without its matrix' ./there without_topo "$hosts/two_sockets.xml"
expect 0 "2 GPUs, SYS between all (NVLink not told); nearest NICs GPU 0 mlx5_1 (PIX), GPU 1 mlx5_3 (PIX) (hwloc); the link is still the profile's" 'ways from the bus' cat there.toml
expect 0 'nics = 4' 'cards from the bus' cat there.toml
printf '<topology version="2.0">' >bad.xml
expect 2 'HWLOC_XMLFILE=bad.xml: expected a host' 'a topology that is none' ./there silent bad.xml
mkfifo never.xml
expect 2 'HWLOC_XMLFILE: never.xml' 'nor a pipe that nobody writes into' ./there silent never.xml
make_text 600 >text.txt
expect 0 '' 'prepare' "$bin/dtrain" prepare --input text.txt --train-bpe 400 --output data.h5
for batch in 2 4; do
  expect 0 '' "a run of micro-batch $batch" "$bin/dtrain" --model tiny-llama --data data.h5 --out "run$batch" --seq-len 32 --micro-batch $batch --global-batch 8 --steps 9 --warmup-steps 1 --threads 1
done
expect 0 'mean error of the fitted runs' 'calibrated' "$plan" calibrate run2 --check run4 --cluster ./here.toml -o fitted.toml
# On a machine that others slow the fit may miss its own run: then it says so, and the file stays a guess.
says=measured
[[ "$("$plan" calibrate run2 --cluster ./here.toml -o again.toml 2>&1)" == *'stays marked guess'* ]] && says=guess
is 'closer than before' "$("$plan" calibrate run2 run4 --cluster ./here.toml --json | python3 -c 'import json, sys; d = json.load(sys.stdin); print(d["mean_error"] <= d["mean_error_before"])')" True
expect 0 "$says" 'the file says so' cat again.toml
expect 0 '# fitted by dplan calibrate to 1 run from' 'and from what' cat fitted.toml
expect 0 'given more than once' 'a run twice' "$plan" calibrate run2 run2 --cluster ./here.toml
expect 2 'run.json' 'not a run' "$plan" calibrate . --cluster ./here.toml
finish
