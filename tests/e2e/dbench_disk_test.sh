#!/usr/bin/env bash
# dbench storage and ckpt over processes: records, refusals, and nothing left behind, also after signals.
. "$(dirname "$0")/lib.sh"

mkdir disk
for n in 1 2; do
  timeout 120 mpirun -n "$n" "$bin/dbench" storage --dir disk --size 3M --repeats 2 --small-files 3 --json >s.json 2>s.err </dev/null
  is "storage on $n ranks: one record" "$(grep -c '"bench":"storage"' s.json)" 1
  for name in write_direct write_buffered_fsync read_cached small_create_fsync_us; do
    is "$n ranks: $name" "$(grep -c "\"name\":\"$name\"" s.json)" 1
  done
  timeout 120 mpirun -n "$n" "$bin/dbench" ckpt --dir disk --size 2M --repeats 2 --loop-s 0.1 --json >c.json 2>c.err </dev/null
  is "ckpt on $n ranks: one record" "$(grep -c '"bench":"ckpt"' c.json)" 1
  for name in blocking_s save raw_write save_over_raw_write verify load loop_slowdown; do
    is "$n ranks: $name" "$(grep -c "\"name\":\"$name\"" c.json)" 1
  done
done
expect 0 'blocking_s' 'a model, for people' mpirun -n 2 "$bin/dbench" ckpt --dir disk --model tiny-llama --repeats 1 --loop-s 0.1
expect 0 'blocking_s' 'the local tier over two nodes' mpirun -n 4 "$bin/dbench" ckpt --dir disk --size 1M --tier local --ranks-per-node 2 --repeats 1 --loop-s 0.1
expect 2 'two nodes' 'the local tier on one node' "$bin/dbench" ckpt --dir disk --size 1M --tier local
expect 2 'a tenth stays free' 'more than there is' mpirun -n 2 "$bin/dbench" storage --dir disk --size 900T
expect 2 'a tenth stays free' 'a checkpoint larger than the disk' "$bin/dbench" ckpt --dir disk --size 900T
expect 2 'absent' 'no such folder' "$bin/dbench" storage --dir absent
is 'nothing is left' "$(ls -A disk)" ''

for signal in INT TERM KILL; do
  "$bin/dbench" storage --dir disk --size 8M --repeats 1000 >/dev/null 2>&1 &
  pid=$!
  for _ in $(seq 200); do [ -n "$(ls -A disk)" ] && break; sleep 0.05; done
  holds "it works before $signal" "$(ls -A disk)" .dbench
  kill -"$signal" "$pid"
  wait "$pid" 2>/dev/null
  for _ in $(seq 200); do [ -z "$(ls -A disk)" ] && break; sleep 0.05; done
  is "nothing is left after $signal" "$(ls -A disk)" ''
done
finish
