#!/usr/bin/env bash
# dbench preflight: a healthy job passes, a threshold that cannot be met fails by name, ranks that differ are told apart;
# between two hosts (network namespaces) whose interfaces differ, where those can be made.
if [ "${1:-}" != inside ] && unshare --net --mount --uts --pid --fork --kill-child --mount-proc true 2>/dev/null; then
  exec unshare --net --mount --uts --pid --fork --kill-child --mount-proc "$0" inside
fi
. "$(dirname "$0")/lib.sh"
ip link set lo up 2>/dev/null

# Others on this machine make ranks slow: speeds are not judged here.
preflight=("$bin/dbench" preflight --seconds 0.05 --pair-bytes 64K --out here --min-gemm-ratio 0 --min-pair-ratio 0)
# status ID: of a check in preflight.json.
status() { python3 -c 'import json, sys; print(next(c["status"] for c in json.load(open("preflight.json"))["checks"] if c["id"] == sys.argv[1]))' "$1"; }
told() { python3 -c 'import json, sys; print(next(c["found"] for c in json.load(open("preflight.json"))["checks"] if c["id"] == sys.argv[1]))' "$1"; }

expect 0 ' 0 failed' 'two ranks of this host' mpirun -n 2 "${preflight[@]}"
expect 0 'pass  network.reach' 'without mpirun' "${preflight[@]}"
is 'nothing is left where the disk was tried' "$(ls -A here)" ''
timeout 120 mpirun -n 2 "${preflight[@]}" --json >preflight.json 2>preflight.err </dev/null
is 'one JSON object' "$(python3 -c 'import json; d = json.load(open("preflight.json")); print(d["ranks"], len(d["facts"]), len(d["pair_matrix"]["pairs"]), len(d["checks"]))')" '2 2 1 32'
for id in software.binary software.versions software.environment network.clock_skew network.reach resources.disk; do
  is "$id passes" "$(status $id)" pass
done
# The PCI bus of another machine, whose GPUs do not answer; its cores are not these, but the numbers are.
mkdir silent && printf '#!/bin/sh\nexit 9\n' >silent/nvidia-smi && chmod +x silent/nvidia-smi
there=(env CUDA_VISIBLE_DEVICES= PATH="$PWD/silent:$PATH" HWLOC_XMLFILE="$source_dir/tests/plan/hosts/two_sockets.xml")
timeout 120 mpirun -n 1 "${there[@]}" "${preflight[@]}" --json >preflight.json 2>preflight.err </dev/null
is 'GPUs without a driver warn' "$(status resources.gpu_driver)" warn
holds 'and are told' "$(told resources.gpu_driver)" '4 x GH100 [H100 SXM5 80GB] at 0000:13:00.0, 0000:17:00.0, 0000:83:00.0, 0000:87:00.0: the PCI bus is that of the file'
holds 'their ways too, from the bus' "$(told resources.gpu_links)" '4 GPUs, PHB between 2 pairs, SYS between 4 pairs (NVLink not told); nearest NICs GPU 0 mlx5_0'
if taskset -c 0 true 2>/dev/null; then
  there+=(taskset -c 0)
  timeout 120 mpirun -n 3 --bind-to none "${there[@]}" "${preflight[@]}" --json >preflight.json 2>preflight.err </dev/null
  is 'ranks far from their GPU warn' "$(status resources.gpu_cores)" warn
  holds 'and are told' "$(told resources.gpu_cores)" 'runs on cores from 0 on, GPU 2 is near those from 4 on'
  is 'no card is named: well' "$(status resources.nic_cores)" pass
  timeout 120 mpirun -n 1 --bind-to none -x UCX_NET_DEVICES=mlx5_2:1 "${there[@]}" "${preflight[@]}" --json >preflight.json 2>preflight.err </dev/null
  holds 'a card of the other socket is told' "$(told resources.nic_cores)" 'has UCX_NET_DEVICES=mlx5_2:1, but mlx5_0 is near its cores'
else
  printf 'skipped: ranks far from their GPU (core 0 is not ours)\n'
fi
expect 2 'HWLOC_XMLFILE=preflight.err: expected a host' 'a topology that is none' env HWLOC_XMLFILE=preflight.err "${preflight[@]}"
expect 3 'fail  resources.memory' 'memory that nobody has' mpirun -n 2 "${preflight[@]}" --min-memory 1000000G
is 'once' "$(mpirun -n 2 "${preflight[@]}" --min-memory 1000000G 2>&1 | grep -c 'fail  resources.memory')" 1
expect 3 'fail  resources.disk' 'a folder that cannot be written' mpirun -n 2 "${preflight[@]}" --out /proc/nowhere
expect 0 'warn  resources.disk_speed' 'a disk that is too slow' "${preflight[@]}" --min-disk-mb-s 1e9
expect 2 'did you mean' 'a misspelt flag' "$bin/dbench" preflight --min-memroy 1G
timeout 120 mpirun -n 1 -x OMP_NUM_THREADS=1 "${preflight[@]}" --json : -n 1 -x OMP_NUM_THREADS=2 "${preflight[@]}" --json >preflight.json 2>preflight.err </dev/null
is 'a variable that differs warns' "$(status software.environment)" warn
holds 'and is told' "$(told software.environment)" 'OMP_NUM_THREADS: rank 1'
cp "$bin/dbench" ./other && printf x >>other
timeout 120 mpirun -n 1 "${preflight[@]}" --json : -n 1 ./other "${preflight[@]:1}" --json >preflight.json 2>preflight.err </dev/null
is 'another program: exit code' $? 3
is 'another program fails' "$(status software.binary)" fail
# A rank that hangs is named by those that wait for it, who are not named.
mkdir slow && printf '#!/bin/sh\nexec sleep 15\n' >slow/nvidia-smi && chmod +x slow/nvidia-smi
timeout 120 mpirun -n 1 "${preflight[@]}" --comm-timeout 4 : -n 1 env PATH="$PWD/slow:$PATH" "${preflight[@]}" --comm-timeout 4 : \
  -n 1 "${preflight[@]}" --comm-timeout 4 >hangs.out 2>hangs.err </dev/null
is 'a rank that hangs: exit code' $? 1
holds 'it is named' "$(cat hangs.err)" 'rank 1 on host'
is 'and no other' "$(grep -cE 'rank (0|2) on host' hangs.err)" 0

# ---- two hosts ----
if [ "${1:-}" != inside ] || ! command -v ip nsenter >/dev/null || ! ip link add c1 type veth peer name c2; then
  printf 'skipped: two hosts (no namespaces or virtual cables here)\n'
  finish
  exit
fi
printf '127.0.0.1 localhost h2\n10.78.0.1 h1\n' >hosts # h2 is a loopback address: a common mistake
mount --bind hosts /etc/hosts
# A host of its own has a /sys of its own: that of the machine shows the machine's interfaces.
declare -A holder
for h in h1 h2; do
  unshare --net --mount --uts sh -c "hostname $h && mount -t sysfs none /sys && mount -t tmpfs -o size=64m none /dev/shm && echo >$h.up && exec sleep 600" </dev/null >$h.log 2>&1 &
  holder[$h]=$!
done
for _ in $(seq 100); do [ -e h1.up ] && [ -e h2.up ] && break; sleep 0.1; done
{
  echo '#!/bin/bash'
  declare -p holder
  echo "h=\$1; shift; exec nsenter -t \"\${holder[\$h]}\" --net --mount --uts --wd='$PWD' \"\$@\""
} >on
printf '#!/bin/bash\nh=$1; shift; exec %q "$h" bash -c "$*"\n' "$PWD/on" >agent
chmod +x on agent
for i in 1 2; do
  ip link set c$i netns "${holder[h$i]}" name eth0
  ./on h$i ip addr add 10.78.0.$i/24 dev eth0
  ./on h$i ip link set lo up
  ./on h$i ip link set eth0 up
done
./on h2 ip link set eth0 mtu 1400
# mpirun finds the second host by its address.
sed -i 's/^h=\$1/h=${1\/10.78.0.2\/h2}/' agent
timeout 120 ./on h1 env OMPI_MCA_plm_rsh_agent="$PWD/agent" mpirun --host h1:1,10.78.0.2:1 -n 2 --mca btl_tcp_if_include eth0 \
  --mca oob_tcp_if_include eth0 "${preflight[@]}" --json --comm-timeout 30 >preflight.json 2>preflight.err </dev/null
is 'two hosts: exit code' $? 3
is 'two hosts' "$(python3 -c 'import json; print(*json.load(open("preflight.json"))["hosts"])')" 'h1 h2'
is 'an MTU that differs fails' "$(status network.mtu)" fail
holds 'and is told' "$(told network.mtu)" 'rank 1 (h2) has 1400; the others 1500'
is 'a name at 127.0.0.1 is found' "$(status network.host_names)" fail
holds 'and is told' "$(told network.host_names)" 'rank 0 (h1) finds h2 at 127.0.0.1'
is 'a small /dev/shm warns' "$(status resources.shm)" warn
is 'the clock is one' "$(status network.clock_skew)" pass
finish
