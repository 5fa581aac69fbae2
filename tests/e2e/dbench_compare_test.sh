#!/usr/bin/env bash
# dbench compare and baseline: verdicts and exit codes on records written by hand.
. "$(dirname "$0")/lib.sh"

# record FILE NAME FINGERPRINT QUIET SAMPLES CALLS: appends a record with a time and a count.
record() {
  printf '{"bench":"train","name":"%s","time":"2026-01-31T12:34:56Z","tool_version":"0.1.0","machine":{"fingerprint":"%s","cpu_model":"Example","cpus":2},"config":{"steps":7},"quiet":%s,"metrics":[{"name":"step_s","unit":"s","better":"lower","kind":"time","samples":[%s]},{"name":"calls","unit":"","better":"lower","kind":"count","samples":[%s]},{"name":"mfu","unit":"","better":"higher","kind":"fact","samples":[0.5]}]}\n' \
    "$2" "$3" "$4" "$5" "$6" >>"$1"
}
compare=("$bin/dbench" compare)
old='1.01,0.98,1.04,1.00,0.99,1.02,0.97'
slow='1.09,1.05,1.12,1.06,1.04,1.10,1.08'
record base.json 'tiny tp 2' aaaa true "$old" 8
record same.json 'tiny tp 2' aaaa true '0.98,1.01,1.00,1.03,0.99,0.97,1.02' 8
record slow.json 'tiny tp 2' aaaa true "$slow" 8
record count.json 'tiny tp 2' aaaa true "$old" 9
record fewer.json 'tiny tp 2' aaaa true "$old" 7
record noisy.json 'tiny tp 2' aaaa false "$slow" 8
record one.json 'tiny tp 2' aaaa true 1.5 8
record zero.json 'tiny tp 2' aaaa true '0,-1,null' 8
record other.json 'tiny tp 2' bbbb true "$slow" 8
record else.json 'another' aaaa true "$old" 8

expect 0 'no regression: 2 same' 'the same' "${compare[@]}" base.json same.json
expect 3 'REGRESSION: 1 worse, 1 same: step_s +7.7 %' 'slower' "${compare[@]}" base.json slow.json
expect 0 '1 better' 'faster' "${compare[@]}" slow.json base.json
expect 3 'calls +12.5 %' 'one call more' "${compare[@]}" base.json count.json
expect 0 '1 better' 'one call fewer' "${compare[@]}" base.json fewer.json
expect 0 'no regression' 'counts ignored' "${compare[@]}" base.json count.json --counts ignore
expect 0 'no regression: 1 same' 'another metric' "${compare[@]}" base.json slow.json --metric calls
expect 3 'REGRESSION: 1 worse' 'a glob' "${compare[@]}" base.json slow.json --metric 'step*'
expect 0 'no regression' 'a wide threshold' "${compare[@]}" base.json slow.json --threshold 20%
expect 3 'REGRESSION' 'paired' "${compare[@]}" base.json slow.json --paired
expect 3 'REGRESSION' 'the second of two is slower' "${compare[@]}" base.json same.json slow.json
expect 3 'REGRESSION' 'standard input' bash -c "cat slow.json | '$bin/dbench' compare base.json -"
expect 0 '(not judged)' 'facts' "${compare[@]}" base.json same.json -v
expect 0 'worse if the machine had been quiet' 'not quiet' "${compare[@]}" base.json noisy.json
expect 3 'REGRESSION' 'not quiet, believed' "${compare[@]}" base.json noisy.json --noisy
expect 0 'too few to know the noise' 'one sample' "${compare[@]}" base.json one.json
expect 0 'only positive samples' 'samples without a ratio' "${compare[@]}" base.json zero.json
expect 2 'aaaa and bbbb differ' 'another machine' "${compare[@]}" base.json other.json
expect 3 'aaaa and bbbb differ' 'another machine, allowed' "${compare[@]}" base.json other.json --any-machine
expect 2 'found train "tiny tp 2" and train "another"' 'no case in common' "${compare[@]}" base.json else.json
expect 2 'found none' 'no such metric' "${compare[@]}" base.json same.json --metric tokens
expect 2 'NEW...' 'one file' "${compare[@]}" base.json
expect 2 '--threshold' 'a threshold that is no share' "${compare[@]}" base.json same.json --threshold 5
: >empty.json
expect 2 'an empty file' 'an empty file' "${compare[@]}" base.json empty.json
echo '{"op":"gemm","us":3}' >foreign.json
expect 2 'foreign.json: expected a record of dbench' 'a file of another tool' "${compare[@]}" base.json foreign.json
expect 2 'missing.json' 'a file that is not there' "${compare[@]}" base.json missing.json
cat else.json >>same.json
expect 0 'only new has: train "another"' 'a new case is named' "${compare[@]}" base.json same.json
expect 0 'only base has: train "another"' 'a lost case is named' "${compare[@]}" same.json base.json

"${compare[@]}" base.json slow.json --json >verdict.json
is 'JSON: one line' "$(wc -l <verdict.json)" 1
holds 'JSON: the regression' "$(cat verdict.json)" '"regression":true,"summary":"REGRESSION: 1 worse'
holds 'JSON: the metric' "$(cat verdict.json)" '"name":"step_s","unit":"s","kind":"time","base":1.0,"new":1.08,"n_base":7,"n_new":7'
is 'the same seed, the same answer' "$("${compare[@]}" base.json slow.json --json | cksum)" "$(cksum <verdict.json)"

# Runs appended to one file: a run is a sample.
for v in 1.01 0.98 1.04 1.00 0.99; do record runs.json 'tiny tp 2' aaaa true "$v,$v,9" 8; done
for v in 1.09 1.06 1.12 1.08 1.07; do record slow_runs.json 'tiny tp 2' aaaa true "$v,$v,9" 8; done
expect 3 '5 runs of base, 5 runs of new' 'runs pool' "${compare[@]}" runs.json slow_runs.json
holds 'five samples' "$("${compare[@]}" runs.json slow_runs.json --json)" '"n_base":5,"n_new":5'

# Names, units and characters.
sed 's/\[8\]/[9]/' else.json >more.json
expect 3 'new is "another"' 'two names, asked for' "${compare[@]}" base.json more.json --pair 'tiny tp 2=another'
expect 2 'expected BASE=NEW' 'a pair of which one is not there' "${compare[@]}" base.json more.json --pair 'tiny tp 2=other'
sed 's/"unit":"s"/"unit":"ms"/' base.json >ms.json
cat base.json ms.json >mixed.json
expect 2 'expected one unit' 'units mixed on one side' "${compare[@]}" base.json mixed.json
record control.json $'\\u001b[31mred\\u202e' aaaa true "$old" 8
expect 0 '?[31mred?' 'a terminal gets no control characters' "${compare[@]}" control.json control.json
mkfifo pipe.json
expect 2 'pipe.json' 'a pipe is not waited for' timeout 20 "${compare[@]}" base.json pipe.json

baseline=("$bin/dbench" baseline)
expect 2 'expected a directory of baselines' 'nothing kept yet' "${compare[@]}" --baseline benchmarks same.json
expect 0 'benchmarks/aaaa/train/tiny-tp-2.json' 'save' "${baseline[@]}" save base.json
expect 2 '--replace' 'not over what is there' "${baseline[@]}" save slow.json
expect 0 'tiny tp 2' 'list' "${baseline[@]}" list
holds 'list as JSON' "$("${baseline[@]}" list --json)" '"fingerprint":"aaaa"'
expect 3 'REGRESSION' 'compare with the baseline' "${compare[@]}" --baseline benchmarks slow.json
expect 0 'no regression' 'of this machine' "${compare[@]}" --baseline benchmarks base.json
expect 2 'only of aaaa (Example, 2 CPUs)' 'no baseline of that machine' "${compare[@]}" --baseline benchmarks other.json
expect 2 'none of this case' 'no baseline of that case' "${compare[@]}" --baseline benchmarks else.json
expect 0 '' 'replace' "${baseline[@]}" save runs.json --replace
expect 0 '' 'append' "${baseline[@]}" save runs.json --append
holds 'ten runs' "$("${baseline[@]}" list --json)" '"runs":10'
expect 0 'kept/aaaa/train/nightly.json' 'another directory, another name' "${baseline[@]}" save base.json --dir kept --as nightly
expect 3 'REGRESSION' 'and found by it' "${compare[@]}" --baseline kept --as nightly slow.json
expect 2 '--noisy' 'not of a crowded machine' "${baseline[@]}" save noisy.json --dir crowded
expect 0 'crowded/aaaa' 'unless it is said' "${baseline[@]}" save noisy.json --dir crowded --noisy
for i in 1 2 3 4 5 6; do "${baseline[@]}" save base.json --dir kept --as nightly --append >/dev/null & done
wait
holds 'seven runs' "$("${baseline[@]}" list --dir kept --json)" '"runs":7'
expect 2 'did you mean' 'a misspelt subcommand' "${baseline[@]}" lst
expect 2 'FILE' 'nothing to save' "${baseline[@]}" save
finish
