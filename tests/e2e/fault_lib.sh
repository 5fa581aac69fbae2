# Sourced by the tests of faults around saving: plants a fault in a run of a very small model, resumes it without, and looks
# whether that finds the newest intact checkpoint and goes on with the losses of a run that met no fault.
scratch=$(realpath "$scratch")
shim=$RANKWRIGHT_BUILD/tests/faults/libfault_shim.so
RANDOM=${RANKWRIGHT_SEED:-1}
full=${RANKWRIGHT_FULL:-}
tried=0 survived=0 wrong=0 after=:
amount() { if [ -n "$full" ]; then echo "$1"; else echo "$2"; fi; }
export OMP_NUM_THREADS=1

make_text 400 >text.txt
"$bin/dtrain" prepare --input text.txt --tokenizer bytes --output data.h5 2>/dev/null
cat >nano.json <<'END'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 257, "max_position_embeddings": 32,
 "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
 "hidden_act": "silu", "rms_norm_eps": 1e-05, "attention_bias": false, "mlp_bias": false, "rope_theta": 10000.0,
 "initializer_range": 0.02, "tie_word_embeddings": true}
END
dtrain=("$bin/dtrain" --model nano.json --data data.h5 --seq-len 16 --micro-batch 1 --warmup-steps 1 --lr-schedule constant
        --precision f32 --threads 1 --peak-flops 1e12 --comm-timeout 15 --checkpoint-every 2 --keep-last 3)
last=10 newest=6
losses() { sed -n 's/^{"step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl"; }
committed() { sed -n 's/.*"event":"checkpoint",.*"step":\([0-9]*\).*/\1/p' "$1/events.jsonl" 2>/dev/null | sort -n | tail -n 1; }
step_dir() { printf '%s/checkpoints/step-%08d' "$1" "$2"; }

# job LAYOUT OUT: sets `job` to how a run of this layout is started; what is in `under` is put before dtrain.
job() {
  case $1 in
    one) job=("${under[@]}" "${dtrain[@]}" --global-batch 2 --out "$2") ;;
    two) job=(mpirun -n 2 "${under[@]}" "${dtrain[@]}" --global-batch 2 --zero 1 --out "$2") ;;
    nodes) job=(mpirun -n 4 "${under[@]}" "${dtrain[@]}" --global-batch 2 --ranks-per-node 2 --tp 2 --zero 1 --out "$2" --checkpoint-every 4
                --local-checkpoint-dir "$2/node-{node}" --local-checkpoint-every 2) ;;
  esac
}
# prepare LAYOUT: the run without faults; and the one that those with faults go on from. That one was stopped at steps 2, 4
# and 6, whose saves are waited for: all three are there, however fast the disk is.
prepare() {
  local layout=$1 steps
  under=()
  job "$layout" "unbroken-$layout"
  "${job[@]}" --steps $last >log 2>&1 || miss "a run without faults ($layout)" "$(cat log)"
  losses "unbroken-$layout" >"losses-$layout"
  is "a loss a step ($layout)" "$(wc -l <"losses-$layout")" $last
  is "that changes ($layout)" "$(cut -d' ' -f2 "losses-$layout" | sort -u | wc -l)" $last
  job "$layout" "base-$layout"
  for steps in 2 4 6; do
    "${job[@]}" --steps $steps --resume auto >log 2>&1 || miss "the runs to start from ($layout)" "$(cat log)"
  done
  is "the checkpoints to start from ($layout)" "$(ls "base-$layout/checkpoints" | tr '\n' ' ')" 'step-00000002 step-00000004 step-00000006 '
}

fresh() { rm -rf run fired log && cp -r "base-$1" run; }
bad() { printf 'WRONG %s: %s\n' "$name" "$1"; tail -n 8 log | sed 's/^/      | /'; fault_ok=; }
# with_fault FAULT: plants one (tests/faults/fault_plan.h).
with_fault() {
  under=(env LD_PRELOAD="$shim" RANKWRIGHT_FAULT_DIR="$scratch/run" RANKWRIGHT_FAULT="$1" RANKWRIGHT_FAULT_FIRED="$scratch/fired")
}
# go LAYOUT STEPS: goes on with the run, whatever `under` does to it; sets `code`.
go() {
  job "$1" run
  { timeout 60 "${job[@]}" --steps "$2" --resume auto >log 2>&1 </dev/null; } 2>/dev/null
  code=$?
}
# Ranks whose mpirun was killed end by themselves.
wait_for_ranks() {
  local p left
  for _ in $(seq 200); do
    left=
    for p in $(pgrep -x dtrain); do [ "$(readlink "/proc/$p/cwd")" = "$scratch" ] && left=$p; done
    [ -z "$left" ] && return
    sleep 0.1
  done
  bad 'a rank outlives its job'
}

# recovers LAYOUT FLOOR [TEXT...]: a resume without faults starts from step FLOOR or a later one, says each TEXT, has the
# losses of the unbroken run, and leaves only checkpoints that verify (and `stays`, one that was damaged before).
recovers() {
  local layout=$1 floor=$2 from text dir
  shift 2
  under=()
  go "$layout" $last
  [ $code -eq 0 ] || bad "the resumed run ends with $code"
  from=$(sed -n 's/^resumed .* at step \([0-9]*\)$/\1/p' log | head -n 1)
  [ "${from:-0}" -ge "$floor" ] || bad "resumed at step ${from:-0}, although step $floor was committed"
  for text in "$@"; do grep -qF -- "$text" log || bad "the resume does not say: $text"; done
  losses run >losses
  # Lines that a fault kept from being written may be missing before the step it resumed at.
  awk -v from="${from:-0}" 'NR == FNR { want[$1] = $2; next } { if (!($1 in want) || want[$1] != $2 || $1 + 0 <= before) bad = 1; before = $1 + 0; got[$1] = 1 }
    END { for (s in want) if (s + 0 > from && !(s in got)) bad = 1; exit bad }' "losses-$layout" losses ||
    bad "other losses: $(tr '\n' ';' <losses)"
  for dir in run/checkpoints/step-*; do
    [ "$dir" = "$stays" ] || [[ $dir == *.tmp || $dir == *.damaged ]] || "$bin/dckpt" verify "$dir" >verify.log 2>&1 || bad "damaged afterwards: $(cat verify.log)"
  done
  # Whoever saves next clears away what an interrupted save or pruning left.
  [ "${from:-0}" = $last ] || [ "$(ls run/checkpoints | grep -v damaged | grep -c '\.')" = 0 ] || bad "left over: $(ls run/checkpoints | tr '\n' ' ')"
}
# One fault is over: counts it.
count() {
  tried=$((tried + 1))
  if [ -n "$fault_ok" ]; then survived=$((survived + 1)); else wrong=$((wrong + 1)); fi
}
begin() { name=$1 fault_ok=yes stays=; }

# What a test ends with.
tally() {
  is 'faults that did harm' $wrong 0
  finish
  local result=$?
  printf 'faults: tried %d, survived %d, wrong %d\n' $tried $survived $wrong
  return $result
}

# at_operation LAYOUT FAULT CODE...: the run goes on from step 6 with the fault and ends with one of the codes (1 and 2: with
# the cause) and with the words of `says`; `after` is run, and then it recovers. Not counted when the fault did not come to pass.
at_operation() {
  local layout=$1 fault=$2 floor
  shift 2
  begin "$layout: $fault"
  fresh "$layout"
  with_fault "$fault"
  go "$layout" $last
  [ -s fired ] || return 0
  [ "$layout" = one ] || wait_for_ranks
  case $code in
    0) losses run | cmp -s - "losses-$layout" || bad 'the run that went on has other losses' ;;
    1 | 2) grep -qE 'Input/output error|No space left on device' log || bad 'an error without its cause' ;;
  esac
  [ -z "${says:-}" ] || grep -qF -- "$says" log || bad "it does not say: $says"
  [ $code -ne 0 ] || ! grep -q '"event":"checkpoint_failed"' run/events.jsonl || grep -q 'checkpoint was saved' log || bad 'a save that failed in silence'
  case " $* " in *" $code "*) ;; *) bad "exit $code, expected one of $*" ;; esac
  floor=$(committed run)
  $after
  recovers "$layout" "${floor:-0}"
  count
}
# list_operations LAYOUT RANK PATH: "NUMBER KIND PATH" of what this rank does from step 6 on, where the path holds PATH.
list_operations() {
  fresh "$1"
  with_fault "action=list path=$3$([ "$1" = one ] || echo " rank=$2")"
  go "$1" $last
  awk '{ print NR, $2, $3 }' fired
}
# pick N: so many of the lines, in any order, rare kinds of operation before the many writes.
pick() { awk -v seed=$RANDOM 'BEGIN { srand(seed) } { print rand() * (3 + n[$2]++), $0 }' | sort -g | head -n "$1" | cut -d' ' -f2-; }

