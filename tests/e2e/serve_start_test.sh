#!/usr/bin/env bash
# What a server refuses before it serves, and what it leaves behind in --out.
. "$(dirname "$0")/lib.sh"

make_text 600 >text.txt
expect 0 '' 'prepare' "$bin/dtrain" prepare --input text.txt --train-bpe 400 --output data.h5
expect 0 '' 'train' "$bin/dtrain" --model tiny-llama --data data.h5 --seq-len 32 --micro-batch 2 --steps 2 --warmup-steps 1 --threads 1 --out run
serve=("$bin/dserve" --model run --port 0 --threads 1)
printf '{"prompt": "one two three"}\n' >warm.jsonl
expect 2 'expected a key, found an empty one' 'an empty key' "${serve[@]}" --api-key=
expect 2 'this machine can give' 'more memory than there is' "${serve[@]}" --memory 900TiB
expect 2 'Expected at least --memory' 'too little memory' "${serve[@]}" --memory 1
expect 2 'expected --prefix-cache' 'a warm-up without a cache' "${serve[@]}" --no-prefix-cache --warmup warm.jsonl
expect 2 'multiple of 64 up to 512' 'a group that the weights do not have' "${serve[@]}" --quantize int8 --quantize-group 100
expect 2 'expected as many as there are ranks' 'more ranks asked for than there are' "${serve[@]}" --tp 2
expect 2 "the model's longest sequence" 'longer than the model' "${serve[@]}" --max-model-len 1Mi
expect 2 '--device cuda:99' 'a device that is not there' "${serve[@]}" --device cuda:99
expect 2 'chatml' 'an unknown template' "${serve[@]}" --chat-template nope
mkdir hf && "$bin/dckpt" convert run -o hf/m >/dev/null 2>&1
printf '{"eos_token_id": [1, 99999]}' >hf/m/generation_config.json
expect 2 'generation_config.json: eos_token_id' 'an end that is no token' "$bin/dserve" --model hf/m --port 0

# Two lives with one --out: events and the step log go on.
for life in 1 2; do
  "${serve[@]}" --out out --log-steps --log-spans --trace --warmup warm.jsonl >server.json 2>server.log </dev/null &
  server=$!
  for _ in $(seq 300); do
    url=$(sed -n 's/.*"url": *"\([^"]*\)".*/\1/p' server.json)
    [ -n "$url" ] && curl -fsS --max-time 5 -o /dev/null "$url/health" 2>/dev/null && break
    sleep 0.1
  done
  is "life $life: an answer" "$(curl -fsS --max-time 60 "$url/v1/completions" -d '{"prompt": "one two three four", "max_tokens": 9, "n": 2, "ignore_eos": true}' | grep -o '"completion_tokens":18')" '"completion_tokens":18'
  kill -TERM "$server"
  wait "$server"
  is "life $life: a clean end" $? 0
done
is 'events of both' "$(grep -o '"event":"[a-z]*"' out/events.jsonl | tr -d '\n')" "$(for _ in 1 2; do printf '"event":"%s"' start ready drain end; done)"
expect 0 '"equal":true' 'the log of both replays' "$bin/dserve" replay out/steps.jsonl
is 'all arrivals are in it' "$("$bin/dserve" replay out/steps.jsonl | field /dev/stdin arrivals)" 6
head -c -20 out/steps.jsonl >torn.jsonl
expect 0 '"torn":true' 'a torn log replays up to its end' "$bin/dserve" replay torn.jsonl
python3 - out/trace.json <<'P'
import json, sys
text = open(sys.argv[1]).read().rstrip().rstrip(",")
events = json.loads(text if text.endswith("]") else text + "]")
rows = {}
for e in events:
    if e["ph"] == "X": rows.setdefault(e["tid"], []).append((e["ts"], e["ts"] + e["dur"]))
bad = 0
for spans in rows.values():
    spans.sort(key=lambda s: (s[0], -s[1]))
    open_ends = []
    for start, end in spans:
        while open_ends and open_ends[-1] <= start + 0.002: open_ends.pop()
        bad += bool(open_ends) and end > open_ends[-1] + 0.002
        open_ends.append(end)
sys.exit(f"{bad} slices overlap without nesting" if bad or not rows else 0)
P
is 'slices of a row nest' $? 0
finish
