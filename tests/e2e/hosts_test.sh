#!/usr/bin/env bash
# Training across two hosts: network namespaces with host names and shared memory of their own, joined by a cable of 100
# Mbit/s, mpirun over TCP between them. The same losses as on one host. Skipped (77) where namespaces cannot be made.
#
# All of it lives in namespaces of this test, which end with its last process: nothing is left behind, however it ends.
skip() { printf 'skipped: %s\n' "$1"; exit 77; }
namespaces=(unshare --net --mount --uts --pid --fork --kill-child --mount-proc)
if [ "${1:-}" != inside ]; then
  for tool in unshare nsenter ip tc; do command -v $tool >/dev/null || skip "no $tool here (util-linux, iproute2)"; done
  "${namespaces[@]}" true || skip 'this user or kernel cannot make namespaces'
  exec "${namespaces[@]}" "$0" inside
fi
. "$(dirname "$0")/lib.sh"

# ---- the hosts: h1 and h2 at 10.77.0.1 and 10.77.0.2 ----
printf '127.0.0.1 localhost\n10.77.0.1 h1\n10.77.0.2 h2\n' >hosts
mount --bind hosts /etc/hosts
declare -A holder
for h in h1 h2; do
  unshare --net --mount --uts sh -c "hostname $h && mount -t tmpfs none /dev/shm && echo >$h.up && exec sleep 600" </dev/null >$h.log 2>&1 &
  holder[$h]=$!
done
for _ in $(seq 100); do [ -e h1.up ] && [ -e h2.up ] && break; sleep 0.1; done

# on HOST COMMAND..., and what mpirun starts its daemons with instead of ssh: agent HOST SHELL-TEXT.
{
  echo '#!/bin/bash'
  declare -p holder
  echo "h=\$1; shift; exec nsenter -t \"\${holder[\$h]}\" --net --mount --uts --wd='$PWD' \"\$@\""
} >on
printf '#!/bin/bash\nh=$1; shift; exec %q "$h" bash -c "$*"\n' "$PWD/on" >agent
chmod +x on agent

ip link add c1 type veth peer name c2 || skip 'this kernel has no virtual cable (veth)'
for i in 1 2; do
  ip link set c$i netns "${holder[h$i]}" name eth0
  ./on h$i ip addr add 10.77.0.$i/24 dev eth0
  ./on h$i ip link set lo up
  ./on h$i ip link set eth0 up
  ./on h$i tc qdisc add dev eth0 root tbf rate 100mbit burst 64kb latency 20ms || skip 'this kernel cannot limit a rate (tbf)'
done
is 'two hosts' "$(./on h1 uname -n) $(./on h2 uname -n)" 'h1 h2'

sent() { ./on "$1" awk '/eth0:/ { sub(/.*:/, ""); print $9 }' /proc/net/dev; }

# ---- training ----
make_text 3000 >text.txt
"$bin/dtrain" prepare --input text.txt --tokenizer bytes --output data.h5 2>/dev/null
train=("$bin/dtrain" --model tiny-llama --data data.h5 --seq-len 64 --micro-batch 1 --global-batch 4 --lr 1e-3 --warmup-steps 2
       --precision f32 --threads 1 --eps 1e-4 --peak-flops 1e12 --comm-timeout 20)
across=(./on h1 env OMPI_MCA_plm_rsh_agent="$PWD/agent" mpirun --host h1:2,h2:2 -n 4 --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0)
# both NAME BYTES OPTION...: on two hosts, and on one whose ranks count as two nodes. At least BYTES go through the cable.
both() {
  local name=$1 bytes=$2 before after key
  shift 2
  before=$(sent h1)
  expect 0 '"steps":6' "$name on two hosts" "${across[@]}" "${train[@]}" "$@" --steps 6 --out "${name}_two"
  after=$(sent h1)
  expect 0 '"steps":6' "$name on one host" ./on h1 mpirun -n 4 "${train[@]}" "$@" --steps 6 --ranks-per-node 2 --out "${name}_one"
  is "$name: the ranks are on both hosts" "$(sed -n '/"hosts"/,/]/p' "${name}_two/run.json" | grep -o 'h[12]' | xargs)" 'h1 h1 h2 h2'
  is "$name: what they share goes through the cable" "$([ $((after - before)) -gt "$bytes" ] && echo yes)" yes
  is "$name: a line a step" "$(wc -l <"${name}_two/metrics.jsonl")" 6
  for key in loss grad_norm batch_fingerprint; do
    is "$name: the same $key to the bit" "$(field "${name}_two/metrics.jsonl" $key)" "$(field "${name}_one/metrics.jsonl" $key)"
  done
}
# Two nodes each send half of all gradients (492,384 of 4 bytes) and half of their sums in each of the 6 steps.
both data $((6 * 492384 * 4))
both shards $((6 * 492384 * 4)) --zero 3 --zero-group node
# Two stages: what crosses is a stream of 64 x 96 numbers for each of the 4 samples.
both tensors $((6 * 4 * 64 * 96 * 4)) --tp 2 --sp --pp 2
is 'the cable was the limit at times' "$(./on h1 tc -s qdisc show dev eth0 | sed -n 's/.*overlimits \([0-9]*\).*/\1/p' | awk '{ print ($1 > 0) }')" 1
is 'each host keeps a record of its resources' "$(ls data_two | grep -c '^resources.*jsonl$')" 2
is 'the second its own' "$(field data_two/resources-h2.jsonl host | sort -u)" h2

# ---- a host is lost, with all that was in its memory, and the durable checkpoints with it ----
memory=(--local-checkpoint-dir /dev/shm/checkpoints --local-checkpoint-every 2 --checkpoint-every 4 --checkpoint-mode sync --tp 2 --zero 1 --lr-schedule constant)
expect 0 '"steps":8' 'the unbroken run' "${across[@]}" "${train[@]}" "${memory[@]}" --steps 8 --out unbroken
for lost in h1 h2; do
  expect 0 '"steps":4' "$lost lives" "${across[@]}" "${train[@]}" "${memory[@]}" --steps 4 --out "lost_$lost"
  ./on $lost rm -rf /dev/shm/checkpoints
  rm -rf "lost_$lost"/checkpoints/*
  expect 0 '/dev/shm/checkpoints' "$lost is replaced: its files come from its neighbour" "${across[@]}" "${train[@]}" "${memory[@]}" --steps 8 --resume auto --out "lost_$lost"
  is "$lost: the losses are those of the unbroken run" "$(field "lost_$lost/metrics.jsonl" loss)" "$(field unbroken/metrics.jsonl loss)"
done

# ---- a rank is held on the second host ----
"${across[@]}" "${train[@]}" --steps 200000 --comm-timeout 3 --out held >/dev/null 2>held.err </dev/null &
job=$!
for _ in $(seq 200); do [ "$(cat held/metrics.jsonl 2>/dev/null | wc -l)" -ge 2 ] && break; sleep 0.1; done
for p in $(pgrep -f 'out held'); do
  tr '\0' '\n' 2>/dev/null <"/proc/$p/environ" | grep -qx OMPI_COMM_WORLD_RANK=3 && kill -STOP "$p"
done
wait $job
is 'a rank that is held ends the job with an error' "$([ $? -ne 0 ] && echo yes)" yes
is 'it is named once, with its host' "$(grep -c '^rank 3 (host h2) did not' held.err)" 1
finish
