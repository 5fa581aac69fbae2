#!/usr/bin/env bash
# scripts/check_floors on trees made for it: a right one passes, each wrong one is told by file, line and what is allowed.
# Usage: check_floors_test.sh [SOURCE_ROOT]
set -euo pipefail

source_root=${1:-$(cd "$(dirname "$0")/../.." && pwd)}
check=$source_root/scripts/check_floors
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
checks=0

put() {  # put FILE LINE...: a file of those lines
  mkdir -p "$tree/$(dirname "$1")"
  printf '%s\n' "${@:2}" > "$tree/$1"
}
fresh() {
  rm -rf "${tree:?}"/*
  put libcore/base/check.h '#pragma once' '// MPI_Allreduce, cudaStream_t and boost::asio may stand in a comment.'
  put libcore/spec/box.h '#include <vector>' '#include "libcore/base/check.h"' '/* hid_t' 'dnnl::memory */ const char* kText = "hsize_t";'
  put kernels/cpu/gemm.cpp '#include <oneapi/dnnl/dnnl.h>' '#include "kernels/cpu/gemm.h"' '#include "libcore/base/check.h"'
  put libcore/plan/price.cpp '#include "libcore/train/step.h"' '#include "libcore/serve/pool.h"' '#include "kernels/ops.h"'
  put libcore/bench/doctor.cpp '#include "libcore/plan/price.h"'
  put tools/dplan/main.cpp '#include "libcore/plan/price.h"' '#include "tools/dplan/show.h"'
  put tests/spec/box_test.cpp '#include "libcore/spec/box.h"' '#include "tests/ref/naive.h"'
}
fail() { echo "check_floors_test: $1" >&2; exit 1; }

expect_clean() {
  checks=$((checks + 1))
  found=$("$check" "$tree" 2>&1) || fail "$1: expected no fault, found: $found"
}
expect_fault() {  # expect_fault PATTERN: exit 3 and a line that matches
  checks=$((checks + 1))
  local code=0
  found=$("$check" "$tree" 2>&1) || code=$?
  [ "$code" = 3 ] || fail "expected exit 3 for $1, found $code: $found"
  grep -Eq "$1" <<< "$found" || fail "expected a line like $1, found: $found"
  [ "$(grep -c ':[0-9]*: ' <<< "$found")" = 1 ] || fail "expected one fault, found: $found"
}
wrong() {  # wrong FILE LINE PATTERN: the right tree plus one file whose second line is LINE
  fresh
  put "$1" '#include <vector>' "$2"
  expect_fault "^$1:2: .*$3"
}

fresh
expect_clean "the right tree"

# Floors.
wrong libcore/base/log.cpp '#include "libcore/spec/box.h"' 'floor 0.*may include libcore/base itself$'
wrong libcore/base/log.cpp '#include "kernels/ops.h"' 'may include libcore/base itself$'
wrong libcore/spec/a.cpp '#include "libcore/device/arena.h"' 'floor 1.*libcore/spec itself and libcore/base kernels'
wrong libcore/comm/a.cpp '  #  include "libcore/model/decoder.h"  // up' 'floor 2'
wrong libcore/comm/a.cpp '#include "libcore/tensor/source.h"' 'floor 2'
wrong libcore/data/a.h '#include "libcore/ckpt/shard.h"' 'floor 3'
wrong libcore/model/a.cpp '#include "libcore/data/order.h"' 'floor 3'
wrong libcore/ckpt/a.cpp '#include "libcore/model/decoder.h"' 'floor 3'
wrong libcore/serve/a.cpp '#include "libcore/train/step.h"' 'floor 4'
wrong libcore/train/a.cpp '#include "libcore/serve/pool.h"' 'floor 4'
wrong libcore/plan/a.cpp '#include "libcore/bench/doctor.h"' 'floor 5'
wrong libcore/plan/a.cpp '#include "tools/dplan/show.h"' 'floor 5'
wrong kernels/cpu/a.cpp '#include "libcore/base/error.h"' 'kernels/ and libcore/base/check.h'
wrong kernels/cpu/a.h '#include "libcore/device/arena.h"' 'kernels/ and libcore/base/check.h'
wrong libcore/spec/a.cpp '#include "box.h"' 'path from the root'
wrong libcore/spec/a.cpp '#include "libcore/utils/x.h"' 'folder that has a floor'
fresh; put libcore/utils/x.h '#pragma once'; expect_fault '^libcore/utils/x.h:1: libcore/utils has no floor'

# What headers name.
wrong libcore/comm/a.h '#include <mpi.h>' 'MPI'
wrong libcore/comm/a.h 'MPI_Comm comm;' 'MPI'
wrong libcore/ckpt/a.h '#include <hdf5.h>' 'HDF5'
wrong libcore/ckpt/a.h 'struct A { /* the file */ hid_t file; };' 'HDF5'
wrong libcore/net/a.h '#include <boost/beast.hpp>' 'Boost'
wrong libcore/net/a.h 'boost::asio::io_context io;' 'Boost'
wrong kernels/a.h '#include <cuda_runtime.h>' 'CUDA'
wrong kernels/a.h 'void run(cudaStream_t s);' 'CUDA'
wrong kernels/cpu/a.h '#include <oneapi/dnnl/dnnl.hpp>' 'DNN'
wrong kernels/cpu/a.h 'dnnl::memory memory;' 'DNN'
wrong kernels/cpu/a.h 'dnnl_primitive_t primitive;' 'DNN'
wrong libcore/spec/a.h '#include <nlohmann/json.hpp>' 'JSON.*libcore/base/json.h'
fresh; put libcore/base/json.h '#include <nlohmann/json_fwd.hpp>'; expect_clean "base/json.h"

# Length.
lines() { fresh; mkdir -p "$tree/$(dirname "$1")"; seq "$2" | sed 's/^/\/\/ /' > "$tree/$1"; }
lines libcore/spec/long.cpp 500; expect_clean "500 lines"
lines libcore/spec/long.cpp 501; expect_fault '^libcore/spec/long.cpp:501: 501 lines; at most 500'
lines tests/spec/long.cpp 501; expect_fault 'at most 500'
lines scripts/long 501; expect_fault 'at most 500'
lines tools/dplan/long.cpp 250; expect_clean "a tool of 250 lines"
lines tools/dplan/long.cpp 251; expect_fault 'at most 250'

# Several faults are all told; a tree that is none is refused.
fresh
put libcore/spec/a.cpp '#include "libcore/comm/comm.h"' '#include "libcore/train/step.h"'
code=0; found=$("$check" "$tree" 2>&1) || code=$?
[ "$code" = 3 ] && grep -q '2 faults' <<< "$found" || fail "expected 2 faults, found: $found"
code=0; "$check" "$tree/tools" > /dev/null 2>&1 || code=$?
[ "$code" = 2 ] || fail "expected exit 2 for a folder without libcore/, found $code"

echo "check_floors_test: $((checks + 2)) checks passed"
