#!/usr/bin/env bash
# Do the tests of the CUDA table notice faults? Plants some, one at a time: copies a source, edits it, compiles it
# for the simulator with AddressSanitizer and runs that kernel's case in four orders of threads. Prints what gave each
# fault away; fails when one is not noticed, when an edit no longer changes anything, or when a case fails without a
# fault.
#
#   RANKWRIGHT_SOURCE=. RANKWRIGHT_BUILD=build-simt tests/cuda/mutants.sh [NAME]     NAME: only the faults whose name holds it
set -uo pipefail
source_dir=$(realpath "${RANKWRIGHT_SOURCE:?the checkout}")
build=$(realpath "${RANKWRIGHT_BUILD:?the build folder}")
only=${1:-}
program=tests/cuda/cuda_mutant_cases
objects=kernels/cuda/librw_kernels_cuda.a.p
scratch=$build/tests/cuda_mutants.tmp
rm -rf "$scratch"
mkdir -p "$scratch"
cd "$build" || exit 2
# Memory that the simulator keeps for its next launch is no leak.
export ASAN_OPTIONS=detect_leaks=0
tell() { printf '%s\n' "$1" >"$2/result"; }

# compile OBJECT FOLDER NAME: an object of the library again, with AddressSanitizer; FOLDER's sources go before ours.
compile() {
  local command source
  command=$(ninja -t commands -s "$1")
  source=${command##* }
  [ -f "$2/kernels/cuda/${source##*/}" ] && command=${command%"$source"}$2/kernels/cuda/${source##*/}
  command=${command//"$1"/$2/$3.o}
  command=${command/ -I/ -I$2 -I}
  eval "${command/ -o / -fsanitize=address -O1 -w -o }" >"$2/log" 2>&1
}

# attempt NAME KERNEL CASE FILE EDIT: EDIT '' is the kernel as it is, which must pass.
attempt() {
  local name=$1 kernel=$2 one=$3 file=kernels/cuda/$4 edit=$5 mine=$scratch/${1// /-} command
  local object=$objects/meson-generated_.._simt_$kernel.cpp.o
  [ -f "$source_dir/kernels/cuda/$kernel.cpp" ] && object=$objects/$kernel.cpp.o
  mkdir -p "$mine/kernels/cuda"
  if [ -n "$edit" ]; then
    sed -E "$edit" "$source_dir/$file" >"$mine/$file" || { tell "FAIL  $name: sed refused the edit" "$mine"; return; }
    if cmp -s "$source_dir/$file" "$mine/$file"; then
      tell "FAIL  $name: the edit changes nothing in $file: the code has moved on, this script has not" "$mine"
      return
    fi
  fi
  if ! compile "$object" "$mine" kernel; then
    tell "FAIL  $name: does not compile: $(tail -n 5 "$mine/log")" "$mine"
    return
  fi
  # Objects come before the archives, whose own version of the file is then not asked for.
  command=$(ninja -t commands -s "$program")
  command=${command/"-o $program"/"-fsanitize=address -o $mine/test $mine/kernel.o $scratch/simulator/*.o"}
  if ! eval "$command" >"$mine/log" 2>&1; then tell "FAIL  $name: does not link: $(tail -n 5 "$mine/log")" "$mine"; return; fi
  timeout 100 "$mine/test" "$one" >"$mine/log" 2>&1
  local code=$?
  if [ -z "$edit" ]; then
    if [ $code -eq 0 ]; then tell "$(printf '%-58s passes' "$name")" "$mine"
    else tell "FAIL  $name: fails without a fault: $(tail -n 20 "$mine/log")" "$mine"; fi
  elif [ $code -ne 0 ] && grep -qE "^$one: [^r]|AddressSanitizer" "$mine/log"; then
    tell "$(printf '%-58s caught: %s' "$name" "$(grep -m1 -oE "^$one: .*|AddressSanitizer: [a-z-]+" "$mine/log" | cut -c1-110)")" "$mine"
  else
    tell "FAIL  $name: not noticed by case $one: $(tail -n 5 "$mine/log")" "$mine"
  fi
  rm -f "$mine/test" "$mine"/*.o
}

wanted=0 running=0
mutant() {  # mutant NAME KERNEL CASE FILE EDIT, beside the others
  [[ $1 == *"$only"* ]] || return 0
  if [ $running -ge 2 ]; then wait -n; running=$((running - 1)); fi
  attempt "$@" &
  wanted=$((wanted + 1)) running=$((running + 1))
}

mkdir -p "$scratch/simulator"
for part in block cublaslt fiber devices graphs guarded_memory memory queues streams; do
  compile "$objects/.._simt_$part.cpp.o" "$scratch/simulator" $part || { echo "FAIL  the simulator: $(tail -n 5 "$scratch/simulator/log")"; exit 1; }
done

for pair in norm:norm bias:bias gemm_finish:gemm_pack cross_entropy:cross_entropy activation:gelu gemm:gelu_product gemm:library_product norm:wide_norm rope:rope elementwise:add \
  elementwise:read optimizer:adamw embedding:embedding attention_fwd:attention attention_bwd:attention \
  attention_fwd_warpgroup:attention_90 attention_bwd_warpgroup:attention_90 warpgroup_probe:products_90; do
  mutant "without a fault: ${pair#*:} of ${pair%:*}" "${pair%:*}" "${pair#*:}" - ''
done

# A barrier is missing: what another thread writes is read before it is there.
mutant 'missing barrier: sums of a block' norm norm reduce.cuh '0,/^ *__syncthreads\(\);$/s/__syncthreads\(\);//'
mutant 'missing barrier: column sums' bias bias columns.cuh 's/^ *__syncthreads\(\);$//'
mutant 'missing barrier: softmax of a row' cross_entropy cross_entropy cross_entropy.cu '0,/^ *__syncthreads\(\);$/s/__syncthreads\(\);//'
mutant 'missing barrier: keys of attention' attention_fwd attention attention_fwd.cu 's/__syncthreads\(\);  \/\/ this tile is there.*//'
mutant 'missing barrier: keys of a warpgroup' attention_fwd_warpgroup attention_90 attention_fwd_warpgroup.cu 's/__syncthreads\(\);  \/\/ keys i and values.*//'

# Scratch is written again while others still read it.
mutant 'scratch reused: sums of a block' norm norm reduce.cuh '/lane < warps/,/return v/s/__syncthreads\(\);//'
mutant 'scratch reused: queries of attention' attention_fwd attention attention_fwd.cu 's/__syncthreads\(\);  \/\/ the last tile.s readers are done//'
mutant 'scratch reused: keys of attention backward' attention_bwd attention attention_bwd.cu '0,/the last tile.s readers/s/__syncthreads\(\);  \/\/ the last tile.s readers are done//'
mutant 'scratch reused: rows of a warpgroup' attention_fwd_warpgroup attention_90 attention_fwd_warpgroup.cu 's/__syncthreads\(\);  \/\/ the last tile.s readers are done//'
mutant 'scratch reused: queries of a warpgroup backward' attention_bwd_warpgroup attention_90 attention_bwd_warpgroup.cu 's/__syncthreads\(\);  \/\/ no tile is read any more.*//'
mutant 'scratch reused: values of a warpgroup' attention_fwd_warpgroup attention_90 attention_fwd_warpgroup.cu 's/v \+ \(i \+ 1\) % 2 \* kKeyTile/v + i % 2 * kKeyTile/'

# What is asynchronous is not waited for.
mutant 'missing wait: copies of keys' attention_fwd attention attention_fwd.cu 's/copy_async_wait<0>\(\);//'
mutant 'missing wait: copies of queries backward' attention_bwd attention attention_bwd.cu '0,/copy_async_wait<.>\(\);/s/copy_async_wait<.>\(\);//'
mutant 'missing wait: copies for a warpgroup' attention_fwd_warpgroup attention_90 attention_fwd_warpgroup.cu 's/copy_async_wait<0>\(\);//'
mutant 'missing wait: copies for a warpgroup backward' attention_bwd_warpgroup attention_90 attention_bwd_warpgroup.cu 's/copy_async_wait<0>\(\);//'
mutant 'missing wait: slopes of a warpgroup' attention_bwd_warpgroup attention_90 attention_bwd_warpgroup.cu '/wait<1>/{N;s/.*wait<1>\(\);\n( *settle\(d_p\))/\1/;}'
mutant 'missing wait: scores of a warpgroup' attention_fwd_warpgroup attention_90 attention_fwd_warpgroup.cu 's/products\.wait<1>\(\);//'
mutant 'missing wait: sums of a warpgroup' attention_fwd_warpgroup attention_90 attention_fwd_warpgroup.cu '/wait<1>/,/settle_sums/s/products\.wait<0>\(\);//'
mutant 'late fence: after the barrier' attention_bwd_warpgroup attention_90 attention_bwd_warpgroup.cu '/fence_shared_writes\(\);/{N;s/( *fence_shared_writes\(\);)\n(.*)/\2\n\1/;}'
mutant 'missing fence: numbers that tensor cores read' warpgroup_probe products_90 warpgroup_probe.cu 's/fence_shared_writes\(\);//'
mutant 'a warp apart: rows of its own' attention_fwd_warpgroup attention_90 attention_fwd_warpgroup.cu 's/rows\.next\(q, group_row/rows.next(q, warp_row/'
mutant 'a warp apart: skips what its warpgroup makes' attention_fwd_warpgroup attention_90 attention_fwd_warpgroup.cu 's/const int row = tile.first \+ group_row;/const int row = tile.first + warp_row;/'
mutant 'missing fence: copies that tensor cores read' attention_fwd_warpgroup attention_90 attention_fwd_warpgroup.cu 's/^ *fence_shared_writes\(\);$//'

# A factor is not where its descriptor says: the device is asked before anything relies on it.
mutant 'wrong descriptor: eight rows' warpgroup_probe products_90 warpgroup.cuh 's/kEightRows = 1024/kEightRows = 512/'
mutant 'wrong descriptor: the next panel' warpgroup_probe products_90 warpgroup.cuh 's/kRows \* kPanel \* 2\)/kRows * kPanel)/'
mutant 'wrong descriptor: no swizzle' warpgroup_probe products_90 warpgroup.cuh 's/\^ \(row % 8\)\)/^ 0)/'
mutant 'wrong descriptor: rows and columns exchanged' warpgroup_probe products_90 warpgroup.cuh 's/\.along = Along::rows/.along = Along::columns/'

# One element too far.
mutant 'out of bounds: gelu' activation gelu activation.cu 's/if \(i < n\) y\[i\]/if (i <= n) y[i]/'
mutant 'out of bounds: a row of the norm' norm norm norm.cu '0,/i < a\.c; i \+=/s/i < a\.c; i \+=/i <= a.c; i +=/'
mutant 'out of bounds: rotary pairs' rope rope rope.cu 's/if \(i >= a\.rows/if (i > a.rows/'
mutant 'out of bounds: the last piece of a sum' elementwise add elementwise.cu 's/i \+ kEach <= n\)/i + kEach <= n + 3)/'
mutant 'out of bounds: columns' bias bias columns.cuh 's/if \(i < n\)$/if (i <= n)/'

# A grid that is right for whole blocks alone.
mutant 'grid rounded down: gelu' activation gelu activation.cu '/gelu_fwd_kernel</s/blocks_for\(a\.n, kThreads\)/dim3(static_cast<unsigned>(a.n \/ kThreads))/'
mutant 'grid rounded down: adamw' optimizer adamw optimizer.cu 's/blocks_for\(a\.n, (kThreads \* kSize)\)/dim3(static_cast<unsigned>(a.n \/ (\1)))/'
mutant 'grid rounded down: embedding' embedding embedding embedding.cu 's/blocks_for\(n, kThreads\)/dim3(static_cast<unsigned>(n \/ kThreads))/'
mutant 'grid rounded down: columns' bias bias columns.cuh 's/blocks_for\(a\.n, kColumns\)/dim3(static_cast<unsigned>(a.n \/ kColumns))/'
mutant 'grid rounded down: a packed weight' gemm_finish gemm_pack gemm_finish.cu '/copy_kernel<T, S>/s/blocks_for\(p\.n \* p\.k, kThreads\)/dim3(static_cast<unsigned>(p.n * p.k \/ kThreads))/'

# What a library's product is told.
mutant 'exchanged: a product and its GELU' gemm gelu_product gemm.cpp 's/p\.out = g\.gelu;/p.out = g.c;/; s/p\.aux = g\.gelu != .*/p.aux = g.gelu;/'
mutant 'wrong operand: what the slope is of' gemm gelu_product gemm.cpp 's/p\.aux = g\.gelu_slope_of;/p.aux = g.a;/'
mutant 'not moved: a bias at no multiple of 16 bytes' gemm library_product gemm.cpp 's/ \|\| alignment_of\(g\.bias\) < kWidestAccess//'
mutant 'an order of its own: sums of every number of rows' gemm library_product gemm.cpp 's/Layouts\(g, p, kAskedRows\)/Layouts(g, p, g.m)/'
mutant 'not asked for: shared memory beside the declared' norm wide_norm launch.cuh 's/kMostStaticBytes = 16 << 10/kMostStaticBytes = 0/'
mutant 'mistaken algorithm: one without the epilogue in its key' gemm gelu_product gemm.cpp 's/static_cast<int64_t>\(p\.epilogue\)/0/'

# The host looks before the stream has been waited for.
mutant 'missing wait: read' elementwise read elementwise.cu 's/^ *RW_CUDA\(cudaStreamSynchronize\(native\(s\)\)\);$//'
wait

cat "$scratch"/*/result
failed=$(cat "$scratch"/*/result | grep -c '^FAIL')
printf '%d passed, %d failed\n' $((wanted - failed)) "$failed"
[ "$failed" -eq 0 ] && [ "$wanted" -gt 0 ] && [ "$(cat "$scratch"/*/result | wc -l)" -ge "$wanted" ]
