#!/usr/bin/env bash
# Do the laws of parallel training notice faults? Plants some, one at a time: copies a source file, edits it, compiles it,
# links the law tests with it, and runs those that should fail. Prints which law caught which fault; fails when one is not
# caught, when an edit no longer changes anything, or when a law fails without a fault.
#
#   RANKWRIGHT_SOURCE=. RANKWRIGHT_BUILD=build tests/mutants/run.sh [NAME]     NAME: only the faults whose name holds it
set -uo pipefail
source_dir=$(realpath "${RANKWRIGHT_SOURCE:?the checkout}")
build=$(realpath "${RANKWRIGHT_BUILD:?the build folder}")
only=${1:-}
program=tests/train/parallel_test
scratch=$build/tests/mutants.tmp
mkdir -p "$scratch"
cd "$build" || exit 2
export OMP_NUM_THREADS=1
passed=0 failed=0

# law NAME: what picks a law in the test program. Those that are not a subcase of `each way` are test cases of their own.
law() {
  case $1 in
    'collectives by hand') printf '%s\n' '-tc=what tensor parallelism sends*' ;;
    *) printf '%s\n' '-tc=each way to split the work*' "-sc=$1" ;;
  esac
}
run_law() {  # run_law PROGRAM LAW
  local args
  mapfile -t args < <(law "$2")
  timeout 120 "$1" "${args[@]}" 2>&1
}
miss() { failed=$((failed + 1)); printf 'FAIL  %s: %s\n' "$1" "$2"; }

# mutant NAME SOURCE EDIT LAW...: every one of the laws must notice.
mutant() {
  local name=$1 source=$2 edit=$3 folder object mine command log
  shift 3
  [[ $name == *"$only"* ]] || return 0
  folder=$(dirname "$source")
  object=$folder/librw_$(basename "$folder").a.p/$(basename "$source").o
  mine=$scratch/${name// /-}
  log=$mine.log
  mkdir -p "$mine"
  sed -E "$edit" "$source_dir/$source" >"$mine/$(basename "$source")" || { miss "$name" 'sed refused the edit'; return; }
  if cmp -s "$source_dir/$source" "$mine/$(basename "$source")"; then
    miss "$name" "the edit changes nothing in $source: the code has moved on, this script has not"
    return
  fi
  command=$(ninja -t commands -s "$object")
  command=${command//"$object"/$mine/object.o}
  command="${command% -c *} -O1 -w -c $mine/$(basename "$source")"
  if ! eval "$command" >"$log" 2>&1; then miss "$name" 'does not compile'; tail -n 20 "$log"; return; fi
  # Objects come before the archives, whose own version of the file is then not asked for.
  command=$(ninja -t commands -s "$program")
  command=${command/"-o $program"/"-o $mine/test $mine/object.o"}
  if ! eval "$command" >"$log" 2>&1; then miss "$name" 'does not link'; tail -n 20 "$log"; return; fi
  local one by=()
  for one in "$@"; do
    run_law "$mine/test" "$one" >"$log"
    if [ $? -eq 1 ] && grep -q 'Status: FAILURE' "$log"; then
      by+=("$one$(sed -nE 's/.*: ([^ ]+) of the bound$/ (\1 of the bound)/p' "$log" | head -n 1)")
    else
      miss "$name" "not noticed by: $one"
      tail -n 20 "$log"
      return
    fi
  done
  passed=$((passed + 1))
  printf '%-52s caught by: %s' "$name" "${by[0]}"
  printf '; %s' "${by[@]:1}" | sed 's/^; $//'
  printf '\n'
  rm -rf "$mine"
}

for one in 'tensor parallelism' 'sequence parallelism' 'shared key/value heads' 'data parallelism' 'sharded gradients' \
  'sharded weights' 'pipeline with a tied embedding' 'split backward' 'collectives by hand'; do
  run_law "$program" "$one" >"$scratch/law.log" && grep -q 'test cases: *1 ' "$scratch/law.log" && continue
  miss "$one" 'fails without a fault'
  tail -n 20 "$scratch/law.log"
done

mutant 'norm gradients not summed over tp' libcore/train/grad_sync.cpp \
  's/if \(plan_\.sequence_parallel\) add_over/if (false) add_over/' 'sequence parallelism'
mutant 'parameters counted twice in the norm' libcore/train/grad_norm.cpp \
  's/if \(!layout\.params\(\)\[piece\.param\]\.owned\) continue;//' 'tensor parallelism'
mutant 'loss divided by the local number of targets' libcore/train/step.cpp \
  's/std::max<int64_t>\(1, result\.valid_tokens\)/std::max<int64_t>(1, count_valid(targets_.host, n_local) * l.dp)/' 'data parallelism'
mutant 'tied embedding not summed over its ends' libcore/train/grad_sync.cpp \
  's/mesh_\.ends->all_reduce\(/if (false) &/' 'pipeline with a tied embedding'
mutant 'gathered weights not forgotten' libcore/train/sharded_weights.cpp \
  's/^void ShardedWeights::forget\(\) \{/& return;/' 'sharded weights'
mutant 'mlp output not summed' libcore/model/block.cpp \
  's/(a\.branch = ctx\.tp\.)reduce\(TpBuffer::branch, batch\.rows\)/\1partial(TpBuffer::branch)/' 'tensor parallelism' 'collectives by hand'
mutant 'shared key/value gradients not summed' libcore/train/grad_sync.cpp \
  's/if \(mesh_\.kv->size\(\) > 1\) add_over/if (false) add_over/' 'shared key/value heads'
mutant 'output bias added by every rank' libcore/model/weights.cpp \
  's/const bool adds = tp\.rank == 0;/const bool adds = true;/' 'tensor parallelism'
mutant 'micro-batches overwrite sharded gradients' libcore/train/grad_sync.cpp \
  's/if \(reduced_\[g\]\)/if (false)/' 'sharded gradients'
mutant 'weight half reads what came after' libcore/model/block.cpp \
  's/if \(keep == nullptr\) return sum;/return sum;/' 'split backward'

printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
