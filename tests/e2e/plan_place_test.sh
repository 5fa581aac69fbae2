#!/usr/bin/env bash
# dplan place: its rankfile is what the installed mpirun takes, and the ranks run where it says; what cannot be is refused.
. "$(dirname "$0")/lib.sh"
place=("$bin/dplan" place)

# ---- a node of two devices: this machine ----
cat >two.toml <<'END'
name = "two"
[device.core]
peak-f32 = 1e11
memory = "1Gi"
memory-bandwidth = 1e10
[[node]]
name = "box"
device = "core"
count = 1
devices = 2
link = "shared-memory"
link-bandwidth = 5e9
END
echo 'localhost slots=2' >hosts
cores=$(nproc)
if [ "$cores" -ge 2 ] && lscpu -p=SOCKET | grep -v '#' | sort -u | wc -l | grep -qx 1; then
  expect 0 'tp 2 x dp 1 x pp 1 over 2 of 2 devices' 'a table and a file' "${place[@]}" --tp 2 --cluster two.toml --hosts hosts --node-cores 2 --format rankfile --output ranks
  is 'the rankfile' "$(cat ranks)" "$(printf 'rank 0=localhost slot=0:0\nrank 1=localhost slot=0:1')"
  landed=$(timeout 60 mpirun --hostfile hosts --rankfile ranks -n 2 sh -c 'echo "$OMPI_COMM_WORLD_RANK:$(sed -n "s/Cpus_allowed_list:[[:space:]]*//p" /proc/self/status)"' 2>mpirun.err </dev/null | sort)
  first=$(lscpu -p=CPU | grep -v '#' | sed -n 1p) second=$(lscpu -p=CPU | grep -v '#' | sed -n 2p)
  is 'mpirun puts the ranks there' "$landed" "$(printf '0:%s\n1:%s' "$first" "$second")"
  [ -s mpirun.err ] && sed 's/^/      | /' mpirun.err
  # Whole sockets, which ranks share.
  "${place[@]}" --tp 2 --cluster two.toml --hosts hosts --format rankfile --output ranks >/dev/null
  is 'a socket each' "$(cat ranks)" "$(printf 'rank 0=localhost slot=0:*\nrank 1=localhost slot=0:*')"
  expect 0 '1' 'mpirun takes sockets' mpirun --hostfile hosts --rankfile ranks -n 2 sh -c 'echo $OMPI_COMM_WORLD_RANK'
else
  printf 'skipped: mpirun --rankfile needs two cores of one socket here\n'
fi
expect 0 'rank 1=localhost slot=0:1' 'to standard output, the table beside it' "${place[@]}" --tp 2 --cluster two.toml --hosts hosts --node-cores 2 --format rankfile
is 'standard output is the file alone' "$("${place[@]}" --tp 2 --cluster two.toml --hosts hosts --format hostfile 2>/dev/null)" 'localhost slots=2'

# ---- a model's bytes, a plan's layout ----
cat >plan.toml <<'END'
model = "tiny-llama"
tp = 2
dp = "2"
pp = 2
seq-len = 64
micro-batch = 2
global-batch = 8
[plan]
nodes = 4
END
sed 's/count = 1/count = 4/; s/link-bandwidth.*/&\nnics = 1\nnic-bandwidth = 1e9/' two.toml >eight.toml
printf 'h1\nh2\nh3\nh4\n' >four
json=$("${place[@]}" --config plan.toml --cluster eight.toml --hosts four --json)
holds 'one JSON object' "$json" '"layout":{"tp":2,"dp":2,"pp":2}'
holds 'ranks by host' "$json" '"rank":7,"node":3,"device":1,"leaf":0,"host":"h4"'
holds 'bytes of the dry run' "$json" '"bytes":"dry run"'
is 'as many ranks as devices' "$(grep -o '"rank":' <<<"$json" | wc -l)" 8
# A stage's activations cross from h1, h2 to h3, h4: 4 ranks send 2 micro-batches of 128 x 96 bf16 and get as many back.
stage=$((4 * 2 * 2 * 128 * 96 * 2))
is 'pipelines cross with what they send' "$("${place[@]}" --config plan.toml --dp 1 --micro-batch 2 --global-batch 4 --nodes 2 --cluster eight.toml --json | grep -o '"placed":{"domain":[0-9.e+]*,"node":[0-9.e+]*,"leaf":[0-9.e+]*' | sed 's/.*://' | cut -d. -f1)" "$((stage / 2))"
expect 0 'h2 slots=2' '--format hostfile' "${place[@]}" --tp 2 --dp 2 --pp 2 --cluster eight.toml --hosts four --format hostfile
for format in rankfile slurm k8s env; do
  expect 0 '' "--format $format" "${place[@]}" --config plan.toml --cluster eight.toml --hosts four --format $format
done
expect 2 'there is no folder no' 'a folder that is not there' "${place[@]}" --tp 2 --cluster two.toml --hosts hosts --format hostfile -o no/ranks
expect 0 'share its socket 0' 'a rankfile without --node-sockets says so' "${place[@]}" --tp 2 --cluster two.toml --hosts hosts --format rankfile
sed '/micro-batch/d; s/global-batch = 8/global-batch = 6/' plan.toml >no_micro.toml
expect 0 'tp 2 x dp 2 x pp 2' 'no micro-batch: one that divides the batch' "${place[@]}" --config no_micro.toml --cluster eight.toml --hosts four
expect 2 'letters, digits' 'a host name that is none' bash -c 'printf "h1\nh\"2\nh3\nh4\n" >quoted; exec "$@"' _ "${place[@]}" --tp 2 --cluster eight.toml --hosts quoted
expect 2 'RFC 1123' 'a job name that is none' "${place[@]}" --tp 2 --cluster eight.toml --hosts four --format k8s --job-name 'a: b'
expect 2 '--sp shards' '--sp without tp' "${place[@]}" --sp true --tp 1 --cluster eight.toml
expect 2 '--pp is 1' '--vpp without stages' "${place[@]}" --vpp 2 --tp 2 --cluster eight.toml
expect 2 'at most 65536' 'too many nodes' "${place[@]}" --tp 8 --cluster h100-sxm --nodes 65537
expect 0 '<gpu dev="7"' '--format nccl-topo of a shipped cluster' "${place[@]}" --tp 8 --cluster h100-sxm --nodes 1 --format nccl-topo

# ---- other jobs, spare devices ----
printf 'h2\n' >busy
json=$("${place[@]}" --tp 2 --dp 2 --cluster eight.toml --hosts four --occupied busy --reserve 2 --json)
is 'nothing on a busy host' "$(grep -c '"host":"h2"' <<<"$json")" 0
expect 2 '4 are missing' 'too few devices left' "${place[@]}" --tp 2 --dp 4 --cluster eight.toml --hosts four --occupied busy --reserve 2
expect 2 'did you mean h2?' 'a host that is not there' bash -c 'echo h22 >other; exec "$@"' _ "${place[@]}" --tp 2 --cluster eight.toml --hosts four --occupied other
expect 2 'host h3 has 1 slots' 'a host with too few slots' bash -c 'printf "h1\nh2\nh3 slots=1\nh4\n" >few; exec "$@"' _ "${place[@]}" --tp 2 --cluster eight.toml --hosts few
expect 2 'names 4 hosts' 'other numbers of hosts than of nodes' "${place[@]}" --tp 2 --cluster eight.toml --nodes 3 --hosts four
expect 2 'give --hosts' 'a rankfile without hosts' "${place[@]}" --tp 2 --cluster eight.toml --format rankfile
expect 2 '--cluster' 'no cluster' "${place[@]}" --tp 2
expect 2 'rankfile' 'an unknown format' "${place[@]}" --tp 2 --cluster eight.toml --format rank
expect 2 '--format' 'an output without a format' "${place[@]}" --tp 2 --cluster eight.toml --output x
finish
