#!/usr/bin/env bash
# dtrain --dry-run: what it prints, that a real run takes, sends and calls just that, and layouts that break a rule.
. "$(dirname "$0")/lib.sh"

dry=("$bin/dtrain" --dry-run --model tiny-llama --seq-len 64 --micro-batch 1 --threads 1)
hybrid=(--tp 2 --pp 2 --dp 2 --sp --zero 1 --recompute selective --global-batch 8 --precision f32)
yes_if() { if "$@"; then echo yes; else echo no; fi; }
number() { sed -n "s/.*\"$2\":\([0-9.]*\).*/\1/p" <<<"$1"; }

# ---- what it prints ----
"${dry[@]}" "${hybrid[@]}" --dry-run-rank 5 >rank5.json 2>rank5.err
is 'it needs no mpirun, no data and no --out' $? 0
is 'one line on standard output' "$(wc -l <rank5.json)" 1
is 'nothing on standard error' "$(cat rank5.err)" ''
rank5=$(cat rank5.json)
for key in model params ranks precision seq_len global_batch layout backend runs rank memory_bytes high_water_bytes flops ops collectives; do
  holds "key $key" "$rank5" "\"$key\":"
done
holds 'the layout in words' "$rank5" 'tp 2 x pp 2 (1f1b) x dp 2, sp, zero 1, recompute selective'
is 'its ranks' "$(number "$rank5" ranks)" 8
is 'of the rank that was asked for' "$(number "$rank5" rank)" 5
for owner in weights gradients optimizer activations comm; do holds "bytes of $owner" "$rank5" "\"$owner\":"; done
is 'the owners add up to the high-water mark' \
  "$(sed 's/.*"memory_bytes":{\([^}]*\)}.*/\1/' rank5.json | tr ',' '\n' | awk -F: '{ n += $2 } END { print n }')" "$(number "$rank5" high_water_bytes)"
is 'the ops add up to the FLOPs' "$(sed 's/.*"ops":{//' rank5.json | grep -o '"flops":[0-9.]*' | awk -F: '{ n += $2 } END { printf "%d\n", n }')" \
  "$(sed 's/.*"checkpoint_bytes":[0-9]*,"flops":\([0-9.]*\).*/\1/' rank5.json | awk '{ printf "%d\n", $1 }')"
is 'twice the same' "$("${dry[@]}" "${hybrid[@]}" --dry-run-rank 5)" "$rank5"
stages=$("${dry[@]}" "${hybrid[@]}" --dry-run-rank all-stages)
is 'all-stages is the first rank of each' "$(grep -o '"rank":[0-9]*' <<<"$stages" | xargs)" 'rank:0 rank:4'
is 'the first rank is meant without a word' "$(grep -o '"rank":[0-9]*' <<<"$("${dry[@]}" --pp 4)" | xargs)" 'rank:0'
is 'more ranks make more replicas' "$("${dry[@]}" --pp 2 --dry-run-ranks 6 | grep -o '"dp":[0-9]*')" '"dp":3'
big=("$bin/dtrain" --dry-run --model llama-3.1-405b --tp 8 --pp 16 --dp 128 --sp --zero 1 --seq-len 8192 --micro-batch 1 --global-batch 2048)
expect 0 '"rank":16383' 'the last of 16,384 ranks of a 405B model' "${big[@]}" --dry-run-rank 16383

# ---- a real run takes, sends and calls just that ----
make_text 1000 >text.txt
"$bin/dtrain" prepare --input text.txt --tokenizer bytes --output data.h5 2>/dev/null
# real NAME RANKS OPTION...: rank 0's last metrics line against the dry run. `world` is left out: a run says more to all.
real() {
  local name=$1 ranks=$2 line
  shift 2
  mpirun -n "$ranks" "${dry[@]:0:1}" "${dry[@]:2}" "$@" --data data.h5 --steps 2 --peak-flops 1e12 --comm-timeout 20 --out "$name" >/dev/null 2>"$name.err" </dev/null
  is "$name: the real run" $? 0
  "${dry[@]}" "$@" --dry-run-ranks "$ranks" >"$name.json"
  line=$(tail -n 1 "$name/metrics.jsonl")
  is "$name: bytes by owner" "$(sed 's/.*"memory_bytes":{\([^}]*\)}.*/\1/' "$name.json" | tr ',' '\n' | sort)" \
    "$(sed 's/.*"memory_bytes":{\([^}]*\)}.*/\1/' <<<"$line" | tr ',' '\n' | grep -v -e planned -e outside_arena -e mapped | sort)"
  is "$name: bytes in all" "$(number "$(cat "$name.json")" high_water_bytes)" "$(number "$line" planned)"
  for what in calls bytes; do
    is "$name: collectives, $what" \
      "$(sed 's/.*"collectives":\[\([^]]*\)\].*/\1/' "$name.json" | grep -o '{[^}]*}' | sed "s/.*\"group\":\"\([a-z_]*\)\",\"kind\":\"\([a-z_]*\)\".*/& \1.\2/; s/.*\"$what\":\([0-9]*\).* \([a-z_.]*\)\$/\2 \1/" | grep -v '^world' | sort)" \
      "$(sed "s/.*\"communication\":{\(.*\)},\"memory_bytes.*/\1/; s/.*\"$what\":{\([^}]*\)}.*/\1/" <<<"$line" | tr ',' '\n' | tr -d '"' | tr ':' ' ' | grep -v '^world' | sort)"
  done
}
real shards 2 --zero 3 --global-batch 4 --precision bf16
real hybrid 4 --tp 2 --pp 2 --sp --global-batch 4 --schedule zb-h1

# ---- errors: exit 2, the rule and what would work; nothing is made ----
refused() { expect 2 "$1" "refused: ${*:2}" "${dry[@]}" "${@:2}"; }
refused "--tp 4 does not divide the model's 6 heads; the nearest layouts that work on 4 ranks: tp 2 x pp 1 x dp 2" --tp 4
refused "5 stages are more than the model's 4 layers" --pp 5
refused "8 stages are more than the model's 4 layers" --pp 2 --vpp 4 --schedule interleaved
refused 'is not divisible by --micro-batch x dp = 1 x 2 = 2; the nearest that fit are 2 and 4' --dp 2 --global-batch 3
refused 'the nearest that fit are 2 and 4' --dp 2 --zero 3 --global-batch 3
refused '--sp shards over the tensor-parallel ranks, but --tp is 1' --sp
refused '--schedule interleaved runs several chunks a stage, but --vpp is 1' --pp 2 --schedule interleaved
refused 'needs a multiple of --pp 2' --pp 2 --vpp 2 --schedule interleaved --global-batch 3
refused "expected --pp x --vpp = 2 x 1 = 2 entries that add up to the model's 4 layers, like 2,2" --pp 2 --stage-layers 3,2
refused '--zero-group node says where --zero shards, but --zero is 0' --dp 2 --zero-group node
refused "does not divide the number of ranks, 3; the nearest layouts that work on 3 ranks: tp 1 x pp 1 x dp 3" --tp 2 --dry-run-ranks 3
refused 'expected all-stages or a rank from 0 to 3, found "4"' --tp 2 --dp 2 --dry-run-rank 4
refused 'expected all-stages or a rank from 0 to 0, found "-1"' --dry-run-rank=-1
refused 'found "first"' --dry-run-rank first
refused "longer than the model's longest sequence, 256" --seq-len 1000
refused '--model is missing' --model ''
refused '--zero: expected a whole number from 0 to 3' --zero 4
for bad in '--tp 4' '--pp 3 --vpp 2' '--tp 2 --dp 3'; do
  # shellcheck disable=SC2086  # several words
  out=$(mpirun -n 4 "${dry[@]:0:1}" "${dry[@]:2}" $bad --data data.h5 --out refused 2>&1 </dev/null)
  is "a job of 4 ranks refuses $bad" $? 2
  is 'with one word' "$(grep -c '^dtrain: error' <<<"$out")" 1
  holds 'and what works' "$out" 'the nearest layouts that work on 4 ranks: tp'
done
is 'and makes nothing' "$(ls -d refused 2>/dev/null)" ''
finish
