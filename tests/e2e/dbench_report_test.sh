#!/usr/bin/env bash
# dbench report and cost on a run that was just trained, the page looked at in a headless browser.
. "$(dirname "$0")/lib.sh"

make_text 3000 >text.txt
"$bin/dtrain" prepare --input text.txt --tokenizer bytes --output text.h5 >prepare.log 2>&1 || miss 'a token file' "$(cat prepare.log)"
train=(mpirun -n 2 "$bin/dtrain" --model tiny-llama --data text.h5 --out run --seq-len 64 --micro-batch 1 --global-batch 4
  --threads 1 --comm-timeout 15 --val-fraction 0.05 --eval-every 10 --checkpoint-every 10)
timeout 200 "${train[@]}" --steps 20 --pp 2 >train.log 2>&1 </dev/null || miss 'a run' "$(cat train.log)"
timeout 200 "${train[@]}" --steps 30 --pp 2 --resume auto >>train.log 2>&1 </dev/null || miss 'the run goes on' "$(cat train.log)"
timeout 200 "${train[@]}" --steps 12 --out '<b>other' --lr 0.01 >>train.log 2>&1 </dev/null || miss 'another run' "$(cat train.log)"

expect 0 'report.html' 'a report' "$bin/dbench" report run -o report.html
expect 0 'both.html' 'a report of two runs' "$bin/dbench" report run '<b>other' -o both.html --title 'a "title" <script>'
is 'no script of anybody' "$(grep -ci '<script' both.html)" 0
is 'nothing is asked of the network' "$(grep -Eo '(src|href)="[^"#]*"|url\(|@import|https?://[^" ]*' report.html | sort -u | grep -v 'www.w3.org/2000/svg' | tr '\n' ' ')" 'href="data:," '
expect 0 '<!doctype html>' 'to standard output' "$bin/dbench" report run -o -
mkdir empty
expect 2 'empty' 'an empty directory' "$bin/dbench" report empty -o no.html
expect 2 'nothing to report' 'nothing' "$bin/dbench" report -o no.html
expect 2 'output' 'no output' "$bin/dbench" report run
printf '{"loss": 1' >>run/metrics.jsonl
expect 0 'torn.html' 'a torn line is no obstacle' "$bin/dbench" report run -o torn.html
is 'and no page was made for what failed' "$(ls no.html 2>/dev/null)" ''

expect 0 'effective utilisation' 'cost' "$bin/dbench" cost run --price 2.5
expect 0 '"bench":"cost"' 'cost as a record' "$bin/dbench" cost run --price 2.5 --json
expect 2 '--electricity' 'half a pair' "$bin/dbench" cost run --power-w 100
expect 2 '--price' 'no price' "$bin/dbench" cost run
"$bin/dbench" cost run --price 2.5 --json >cost.json
expect 0 'costs.html' 'a record in a report' "$bin/dbench" report --bench cost.json -o costs.html

browser=$(command -v chromium-headless-shell || command -v chromium || command -v google-chrome)
if [ -n "$browser" ]; then
  python3 -B "$source_dir/tests/e2e/dbench_report_page.py" "$browser" "$bin/dbench" report.html both.html || failed=$((failed + 1))
else
  echo 'skipped: the rendered page: no chromium-headless-shell, chromium or google-chrome here (scripts/setup installs one)'
fi
finish
