#!/bin/sh
# parallel_mpi.sh MPIRUN PROGRAM RANKS_PER_NODE: `PROGRAM RANKS_PER_NODE` on 8 processes.
set -u
. "${RANKWRIGHT_SOURCE:?run through meson test}/scripts/mpi_env"
output=$(timeout 240 "$1" -n 8 "$2" "$3" 2>&1 </dev/null)
rc=$?
printf '%s\nexit code %s\n' "$output" "$rc"
[ "$rc" -eq 0 ] || exit 1
layouts=$(printf '%s\n' "$output" | sed -n 's/^\([0-9]*\) layouts on 8 ranks, 0 faults$/\1/p')
[ "${layouts:-0}" -ge 10 ] || { echo 'expected at least 10 layouts on 8 ranks'; exit 1; }
