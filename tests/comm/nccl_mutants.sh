#!/usr/bin/env bash
# Do the tests of NCCL communicators notice faults on the communication streams? Plants some, one at a time: copies a
# source, edits it, compiles it for the simulator and runs the tests with it. Fails when one is not noticed, when an edit
# no longer changes anything, or when the tests fail without a fault.
#
#   RANKWRIGHT_SOURCE=. RANKWRIGHT_BUILD=build-simt tests/comm/nccl_mutants.sh
set -uo pipefail
source_dir=$(realpath "${RANKWRIGHT_SOURCE:?the checkout}")
build=$(realpath "${RANKWRIGHT_BUILD:?the build folder}")
program=tests/comm/nccl_test
objects=libcore/comm/librw_comm_nccl.a.p
cases='an operation follows*,what is read*,a recorded step holds*,uneven parts*,a message*,recorded steps*,communicators with work*,an exception on*,a kernel that fails*,memory is registered*,messages that wait*'
scratch=$build/tests/nccl_mutants.tmp
rm -rf "$scratch"
mkdir -p "$scratch"
cd "$build" || exit 2
failed=0

# attempt NAME FILE EDIT: EDIT '' is the source as it is, which must pass.
attempt() {
  local name=$1 file=$2 edit=$3 command
  local mine=$scratch/${name// /-}
  mkdir -p "$mine"
  if [ -n "$edit" ]; then
    sed -E "$edit" "$source_dir/libcore/comm/$file" >"$mine/$file"
    if cmp -s "$source_dir/libcore/comm/$file" "$mine/$file"; then
      echo "FAIL  $name: the edit changes nothing in $file: the code has moved on, this script has not"
      return 1
    fi
  else
    cp "$source_dir/libcore/comm/$file" "$mine/$file"
  fi
  command=$(ninja -t commands -s "$objects/$file.o")
  command=${command//"$objects/$file.o"/"$mine/$file.o"}
  if ! eval "${command% -c *} -c $mine/$file" >"$mine/log" 2>&1; then
    echo "FAIL  $name: does not compile: $(tail -n 5 "$mine/log")"
    return 1
  fi
  # Objects come before the archives, whose own version of the file is then not asked for.
  command=$(ninja -t commands -s "$program")
  if ! eval "${command/"-o $program"/"-o $mine/test $mine/$file.o"}" >"$mine/log" 2>&1; then
    echo "FAIL  $name: does not link: $(tail -n 5 "$mine/log")"
    return 1
  fi
  timeout 15 "$mine/test" -tc="$cases" >"$mine/log" 2>&1
  local code=$?
  rm -f "$mine/test"
  if [ -z "$edit" ]; then
    [ $code -eq 0 ] && { printf '%-52s passes\n' "$name"; return 0; }
    echo "FAIL  $name: fails without a fault: $(tail -n 20 "$mine/log")"
    return 1
  fi
  if [ $code -eq 0 ]; then
    echo "FAIL  $name: not noticed"
    return 1
  fi
  [ $code -eq 124 ] && { printf '%-52s caught: it stops\n' "$name"; return 0; }
  printf '%-52s caught: %s\n' "$name" "$(grep -m1 -oE 'check failed: .*|did not .*|terminate called.*' "$mine/log" | cut -c1-100)"
}

attempt 'without a fault' nccl_channel.cpp '' || failed=1
attempt 'the operation does not wait for the kernels before' nccl_channel.cpp '/^ *make_wait\(stream, op\.begin\);/d' || failed=1
attempt 'the kernels after do not wait for the operation' nccl_channel.cpp '/make_wait\(s_->compute, op\.end\);/d' || failed=1
attempt 'done is recorded on the other stream' nccl_channel.cpp 's/record\(op\.end, stream\)/record(op.end, compute)/' || failed=1
attempt 'uneven parts are taken for even ones' nccl_channel.cpp 's/return p\.n == parts\[0\]\.n;/return p.n >= 0;/' || failed=1
attempt 'a message is sent before it is there' nccl_staging.cpp '/cudaStreamSynchronize\(stream\)/d' || failed=1
attempt 'aborts come one after the other' nccl_abort.cpp '/ncclGroup(Start|End)\(\);/d' || failed=1
attempt 'who fails waits for the abort' nccl_abort.cpp 's/state_->is_started = true;/& abort_all(state_->comms);/' || failed=1
attempt 'an exception waits for what is under way' nccl_channel.cpp '/uncaught_exceptions\(\) > 0\) s\.c\.family->fail/d' || failed=1
attempt 'a failed device is told to who cleans up' nccl_channel.cpp 's/event_ended\(op\.end\)/event_reached(op.end)/' || failed=1
attempt 'memory is registered where it can be' nccl_channel.cpp 's/if \(!agree\((.*)\)\) memory->deregister\(\);/agree(\1);/' || failed=1
attempt 'messages hold as many CTAs as they like' nccl_channel.cpp '/options\.maxCTAs = /d' || failed=1
exit $failed
