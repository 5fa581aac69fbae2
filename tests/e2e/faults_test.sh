#!/usr/bin/env bash
# Ranks at fault, planted in runs of several processes: one that is held, one that dies, one that is slow. Each is named.
. "$(dirname "$0")/lib.sh"

make_text 3000 >text.txt
"$bin/dtrain" prepare --input text.txt --tokenizer bytes --output data.h5 2>/dev/null
train=("$bin/dtrain" --model tiny-llama --seq-len 64 --micro-batch 1 --global-batch 4 --lr 1e-3 --warmup-steps 2 --lr-schedule constant
       --precision f32 --threads 1 --peak-flops 1e12 --comm-timeout 20)
on_numbers=("${train[@]}" --data data.h5)

wait_for_steps() { for _ in $(seq 300); do [ "$(cat "$1/metrics.jsonl" 2>/dev/null | wc -l)" -ge "$2" ] && return; sleep 0.1; done; }
# pid_of JOB RANK: mpirun JOB's process of this rank.
pid_of() {
  local p
  for p in $(pgrep -P "$1"); do
    tr '\0' '\n' 2>/dev/null <"/proc/$p/environ" | grep -qx "OMPI_COMM_WORLD_RANK=$2" && echo "$p"
  done
}
events() { grep "\"event\":\"$2\"" "$1/events.jsonl"; }
yes_if() { if "$@"; then echo yes; else echo no; fi; }

# ---- a rank is held in the middle of a run: RANKS VICTIM NAME OPTION... ----
hold() {
  local ranks=$1 victim=$2 out=$3 job pid start code file
  shift 3
  mpirun -n "$ranks" "${on_numbers[@]}" "$@" --steps 200000 --comm-timeout 3 --out "$out" >/dev/null 2>"$out.err" </dev/null &
  job=$!
  wait_for_steps "$out" 3
  pid=$(pid_of $job "$victim")
  kill -STOP "$pid"
  start=$(date +%s)
  wait $job
  code=$?
  kill -KILL "$pid" 2>/dev/null
  is "$out: a rank that is held ends the job with an error" "$(yes_if [ $code -ne 0 ])" yes
  is "$out: a few seconds after --comm-timeout" "$(yes_if [ $(($(date +%s) - start)) -le 20 ])" yes
  is "$out: it is named once, with its host" "$(grep -c "^rank $victim (host $(uname -n)) did not .* step [0-9]" "$out.err")" 1
  is "$out: nobody else is" "$(grep -c '^rank [0-9]* (host .*) did not' "$out.err")" 1
  for file in $(seq 0 $((ranks - 1)) | grep -vx "$victim"); do
    file=$out/watchdog/rank-$file.jsonl
    is "$file: a line on the rank and at most 64 operations" "$(wc -l <"$file" | awk '{ print ($1 >= 2 && $1 <= 65) ? "so" : $1 }')" so
    is "$file: one of them failed" "$(yes_if grep -q '"state":"failed"' "$file")" yes
    is "$file: each tells what the watchdog needs" \
      "$(tail -n +2 "$file" | grep -cv '"op":".*"group":".*"sequence":[0-9]*,"bytes":[0-9]*,.*"state":".*"seconds":.*"phase":".*"step":[0-9]*')" 0
  done
}
hold 4 2 shards --tp 2 --zero 1
hold 3 1 stages --pp 3 --checkpoint-every 1

# ---- a rank dies ----
mpirun -n 3 "${on_numbers[@]}" --pp 3 --steps 200000 --out dead >/dev/null 2>dead.err </dev/null &
job=$!
wait_for_steps dead 3
start=$(date +%s)
kill -KILL "$(pid_of $job 2)"
wait $job
code=$?
is 'a rank that dies ends the job with an error' "$(yes_if [ $code -ne 0 ])" yes
is 'long before --comm-timeout' "$(yes_if [ $(($(date +%s) - start)) -le 10 ])" yes
holds 'and mpirun names it' "$(cat dead.err)" 'rank 2'

# ---- a rank is slow: its kernels are the plain ones ----
slow=("${on_numbers[@]}" --global-batch 12 --steps 200000 --out slow)
mpirun -n 2 "${slow[@]}" : -n 1 env RANKWRIGHT_ISA=scalar "${slow[@]}" >/dev/null 2>slow.err </dev/null &
job=$!
for _ in $(seq 400); do [ -n "$(events slow straggler 2>/dev/null)" ] && break; sleep 0.1; done
kill -USR1 $job
wait $job
is 'a slow rank stops nobody' $? 75
holds 'it is named' "$(events slow straggler)" '"rank":2'
holds 'with its host' "$(events slow straggler)" "\"host\":\"$(uname -n)\""
is 'after 20 steps at the earliest' "$(events slow straggler | head -n 1 | sed 's/.*"step":\([0-9]*\).*/\1/' | awk '{ print ($1 >= 20) }')" 1
holds 'and on the terminal' "$(cat slow.err)" "rank 2 on $(uname -n) computes for"

finish
