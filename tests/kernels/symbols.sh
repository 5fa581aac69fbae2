#!/bin/sh
# No object that is built for one instruction set may define a symbol that the linker shares with other objects (weak,
# from inline functions and templates outside rw::cpu_<isa>): the copy with AVX-512 instructions could be the one kept.
# usage: symbols.sh LIBRARY.a...
set -eu
bad=$(nm -A -C --defined-only "$@" | grep -E ' [WVu] ' | grep -Ev ' DW\.ref\.| rw::cpu_[a-z0-9_]+::' || true)
if [ -n "$bad" ]; then
  echo "weak symbols outside rw::cpu_<isa>:" >&2
  echo "$bad" >&2
  exit 1
fi
