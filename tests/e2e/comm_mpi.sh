#!/bin/sh
# comm_mpi.sh MPIRUN PROGRAM RANKS RANKS_PER_NODE MODE: runs `PROGRAM MODE` on that many processes, of which each
# RANKS_PER_NODE count as a node (0: all), and checks how the job ends. The limit of 50 s is below every timeout inside.
set -u
mpirun=$1 program=$2 ranks=$3 per_node=$4 mode=$5
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
output=$(timeout 50 "$mpirun" -n "$ranks" "$program" "$mode" "$per_node" "$folder" 2>&1 </dev/null)
rc=$?
printf '%s\nexit code %s\n' "$output" "$rc"
must_say() {
  case $output in
    *"$1"*) ;;
    *) echo "missing in the output: $1"; exit 1 ;;
  esac
}
[ "$rc" -ne 124 ] || { echo "the job did not end"; exit 1; }
case $mode in
  die)  # whoever notices first, mpirun or a waiting rank, names rank 1
    [ "$rc" -ne 0 ] || exit 1
    must_say "rank 1 " ;;
  watchdog)
    [ "$rc" -eq 1 ] || exit 1
    must_say "rank 1 (host "
    must_say "did not arrive at all_reduce #1 of dp group {0,1,2}, 390.6 KiB, step 5, backward; it took part in barrier #0" ;;
  late)
    [ "$rc" -eq 1 ] || exit 1
    must_say "rank 1 on host "
    must_say "did not arrive within 1.0 s" ;;
  *)
    [ "$rc" -eq 0 ] || exit 1
    must_say "$mode passed: $ranks ranks" ;;
esac
