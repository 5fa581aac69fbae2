#!/usr/bin/env bash
# dtrain --device cuda in the build of the simulator, under mpirun: losses as on the CPU in several layouts, stop and
# resume to the bit, a checkpoint that a CPU goes on from, and what cannot be.
. "$(dirname "$0")/lib.sh"
export RANKWRIGHT_SIMT_GUARD=1  # device memory that the host touches ends the run

make_text 400 >text.txt
expect 0 '' 'prepare' "$bin/dtrain" prepare --input text.txt --tokenizer bytes --output data.h5
cat >config.json <<'END'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2,
 "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 260, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
 "rope_theta": 10000.0, "tie_word_embeddings": false, "hidden_act": "silu", "initializer_range": 0.1}
END
train=("$bin/dtrain" --model config.json --data data.h5 --val-fraction 0.05 --seq-len 17 --micro-batch 1 --global-batch 4 --lr 1e-2
       --warmup-steps 1 --lr-schedule constant --steps 4 --precision f32 --threads 1 --eps 1e-4 --peak-flops 1e12 --comm-timeout 60)

near() { # near NAME FILE: its losses are those of the CPU's run
  local worst
  worst=$(paste <(field cpu/metrics.jsonl loss) <(field "$2" loss) |
    awk '{ d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > w) w = d } END { print (NR == 4 && w <= 1e-5) ? "near" : "far: " NR " steps, " w }')
  is "$1" "$worst" near
}

expect 0 '"steps":4' 'the CPU' "${train[@]}" --out cpu
is 'it learns' "$(field cpu/metrics.jsonl loss | awk 'NR == 1 { a = $1 } { b = $1 } END { print (b < a - 0.1) }')" 1
expect 0 '"steps":4' 'one device' "${train[@]}" --device cuda --out one
near 'its losses are the CPU'\''s within 1e-5' one/metrics.jsonl
holds 'run.json names the device' "$(cat one/run.json)" '"backend": "cuda"'
is 'a dry run tells its memory to the byte' "$("${train[@]}" --device cuda --dry-run 2>/dev/null | sed 's/.*"high_water_bytes":\([0-9]*\).*/\1/')" \
  "$(field one/metrics.jsonl planned | head -1)"
is 'one rank communicates for no time' "$(field one/metrics.jsonl total_s | awk '$1 > 0' | wc -l)" 0
expect 0 '"steps":4' 'tp 2 x dp 2 on devices' mpirun -n 4 "${train[@]}" --device cuda --tp 2 --sp --dp 2 --zero 1 --out tpdp
near 'its losses are the CPU'\''s within 1e-5' tpdp/metrics.jsonl
is 'communication takes the device some time, each step' "$(field tpdp/metrics.jsonl total_s | awk '$1 > 0' | wc -l)" 4
holds 'run.json names each rank'\''s device' "$(tr -d ' \n' <tpdp/run.json)" '"devices":["cuda:0(simulatedGPU)","cuda:1(simulatedGPU)"'
expect 0 '"steps":2' 'pp 2 x dp 2 on devices, the first half' mpirun -n 4 "${train[@]}" --device cuda --pp 2 --dp 2 --steps 2 --out ppdp
expect 0 '"steps":4' 'and the second' mpirun -n 4 "${train[@]}" --device cuda --pp 2 --dp 2 --out ppdp --resume auto
near 'its losses are the CPU'\''s within 1e-5' ppdp/metrics.jsonl
expect 0 '"steps":4' 'two stages, drawn' mpirun -n 2 "${train[@]}" --device cuda --pp 2 --steps 4 --trace-steps 2..3 --out drawn
near 'drawing changes no loss' drawn/metrics.jsonl
is 'the drawing' "$(python3 "$source_dir/tests/e2e/step_trace.py" drawn/trace.json 2 2 4 2,3)" 'the trace can be true'
expect 0 '"steps":4' 'the same without a stop' mpirun -n 4 "${train[@]}" --device cuda --pp 2 --dp 2 --checkpoint-every 2 --out whole
is 'stop and resume change no bit of the losses' "$(field ppdp/metrics.jsonl loss)" "$(field whole/metrics.jsonl loss)"
is 'nor of the gradient norms' "$(field ppdp/metrics.jsonl grad_norm)" "$(field whole/metrics.jsonl grad_norm)"
"$bin/dckpt" convert ppdp -o ppdp_hf >/dev/null 2>&1
"$bin/dckpt" convert whole -o whole_hf >/dev/null 2>&1
is 'nor of the weights' "$(cksum <ppdp_hf/model.safetensors)" "$(cksum <whole_hf/model.safetensors)"
expect 0 'intact' 'the checkpoint saved behind the steps is whole' "$bin/dckpt" verify whole
expect 0 '"steps":5' 'a CPU goes on from it' "${train[@]}" --steps 5 --out whole --resume auto
expect 0 '"steps":6' 'and a device from that' "${train[@]}" --steps 6 --device cuda --out whole --resume auto
expect 0 'worst gradient' '--verify-parallel looks at a device too' mpirun -n 2 "${train[@]}" --device cuda --steps 1 --verify-parallel 1 --check-replicas-every 1 --out verified
expect 0 '"skipped":0' 'f16 with a loss scale' "${train[@]}" --device cuda --precision f16 --loss-scale 64 --steps 2 --out f16

expect 2 'expected cpu, cuda or cuda:N' 'no such kind of device' "${train[@]}" --device gpu --out none
expect 2 "found 'gpu'" 'nor for a dry run' "${train[@]}" --device gpu --dry-run
expect 2 "found 'cuda:x'" 'before the model is looked at' "$bin/dbench" kernels --model none.json --device cuda:x
expect 2 'expected cuda:0 to cuda:7' 'a device that is not there' "${train[@]}" --device cuda:99 --out none
expect 2 "found 'cuda:x'" 'a device whose number is none, before any file is read' "${train[@]}" --device cuda:x --data nothing.h5 --out none
RANKWRIGHT_SIMT_CAPABILITY=89 expect 2 'compute capability 8.9 and 99 KiB of shared memory a block' 'a GPU with too little shared memory' "${train[@]}" --device cuda --out none
RANKWRIGHT_SIMT_MEMORY=3 expect 1 'has no memory left to be opened' 'a GPU without room' "${train[@]}" --device cuda --out none
RANKWRIGHT_SIMT_DEVICES=two expect 1 'RANKWRIGHT_SIMT_DEVICES: expected a whole number' 'no number of devices' "${train[@]}" --device cuda --out none
sed 's/"head_dim": 8/"head_dim": 322/' config.json >wide.json
expect 2 'attention takes heads of up to 321 elements in training' 'heads that are too large' "${train[@]}" --model wide.json --device cuda --out wide
is 'and no run is begun' "$([ -e wide ] && echo begun)" ''
kernels=("$bin/dbench" kernels --model config.json --rows 3 --seq-len 3 --requests 2 --context 17 --device cuda --seconds 0.001 --repeats 1)
expect 0 '"backend":"cuda (simulated GPU)"' 'every op of dbench kernels, its operands on the device' "${kernels[@]}" --json
expect 2 'attention takes heads of up to 321' 'nor measured' "${kernels[@]}" --model wide.json
# What the command line has wrong is told before a device is opened.
export RANKWRIGHT_SIMT_DEVICES=0
expect 2 '--rows 4 is not divisible by --seq-len 3' 'rows that are no sequences' "${kernels[@]}" --rows 4
expect 2 'those are of models with GELU' 'an op that this model has not' "${kernels[@]}" --op gemm_gelu
unset RANKWRIGHT_SIMT_DEVICES
expect 0 'goes through NCCL' '--allreduce says nothing to a device' mpirun -n 2 "${train[@]}" --steps 1 --device cuda --allreduce ring --out ring
expect 2 'ranks 0 and 1 of host' 'one GPU for two ranks' mpirun -n 2 "${train[@]}" --device cuda:1 --out none
expect 2 '--nan-trace' '--nan-trace is the CPU'\''s' "${train[@]}" --device cuda --nan-trace --out none
expect 0 '"backend":"accelerator"' 'a dry run needs no device' "${train[@]}" --device cuda --dry-run
finish
