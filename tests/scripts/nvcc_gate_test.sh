#!/usr/bin/env bash
# scripts/nvcc_gate with a compiler and a disassembler made for it: what it lets pass and what it tells.
# Usage: nvcc_gate_test.sh [SOURCE_ROOT]
set -euo pipefail

source_root=${1:-$(cd "$(dirname "$0")/../.." && pwd)}
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/scripts" "$tree/kernels/cuda" "$tree/toolkit/bin"
cp "$source_root/scripts/nvcc_gate" "$tree/scripts/"
touch "$tree/kernels/cuda/norm.cu" "$tree/kernels/cuda/attention_fwd.cu"
echo "cuda_kernels_90a = ['attention_fwd_warpgroup']" >"$tree/kernels/cuda/meson.build"
export CUDA_HOME=$tree/toolkit CUOBJDUMP=$tree/toolkit/bin/cuobjdump
export RELEASE=13.0 SPILLS=0 REGISTERS=40 SHARED=128 INSTRUCTION=HMMA.16816.F32.BF16
norm=_ZN2rw4cuda12_GLOBAL__N_115norm_fwd_kernelIfEEvT_
attention=_ZN2rw4cuda12_GLOBAL__N_120attention_fwd_kernelI13__nv_bfloat16Li64EEEvT_
warpgroup=_ZN2rw4cuda12_GLOBAL__N_130attention_fwd_warpgroup_kernelI13__nv_bfloat16Li64EEEvT_
cat >"$tree/toolkit/bin/nvcc" <<FAKE
#!/usr/bin/env bash
if [ "\$1" = --version ]; then echo "Cuda compilation tools, release \$RELEASE, V\$RELEASE.1"; exit; fi
for argument; do
  case \$argument in *.cubin) cubin=\$argument ;; *norm.cu) kernel=$norm ;; *attention_fwd.cu) kernel=$attention ;; *warpgroup.cu) kernel=$warpgroup ;; -arch=*) arch=\${argument#*=} ;; esac
done
[ -z "\${BROKEN:-}" ] || { echo 'error: no' >&2; exit 1; }
touch "\$cubin"
cat >&2 <<TEXT
ptxas info    : Compiling entry function '\$kernel' for '\$arch'
ptxas info    : Function properties for \$kernel
    0 bytes stack frame, \$SPILLS bytes spill stores, \$SPILLS bytes spill loads
\${SERIAL:-}
ptxas info    : Used \$REGISTERS registers, used 1 barriers, \$SHARED bytes smem, 400 bytes cmem[0]
TEXT
FAKE
cat >"$CUOBJDUMP" <<FAKE
#!/usr/bin/env bash
printf '\t\tFunction : %s\n        /*0000*/  %s R1, R2 ;\n' "\$(case "\$*" in *warpgroup*) echo $warpgroup ;; *) echo $attention ;; esac)" "\$INSTRUCTION"
FAKE
chmod +x "$tree/toolkit/bin/nvcc" "$CUOBJDUMP"
checks=0

expect() {  # expect CODE PATTERN ARGUMENT...
  local code=0 found
  found=$("$tree/scripts/nvcc_gate" "${@:3}" 2>&1) || code=$?
  checks=$((checks + 1))
  if [ "$code" != "$1" ] || ! grep -Eq -- "$2" <<<"$found"; then
    echo "nvcc_gate_test: check $checks: expected exit $1 and a line like $2, found exit $code: $found" >&2
    exit 1
  fi
}

expect 0 '^wrote kernels/cuda/registers.csv' --update
grep -q '^# nvcc release 13.0 V13.0.1$' "$tree/kernels/cuda/registers.csv"
grep -q '^norm,norm_fwd_kernel<float>,sm_80,40,128,0,0$' "$tree/kernels/cuda/registers.csv"
grep -q '^attention_fwd,"attention_fwd_kernel<bf16, 64>",sm_90,40,128,0,0$' "$tree/kernels/cuda/registers.csv"
expect 0 '^nvcc_gate: 4 kernels, 0 faults'
expect 0 '^nvcc_gate: 2 kernels, 0 faults' norm
expect 2 'no kernels/cuda/nome.cu; there are attention_fwd norm' nome
REGISTERS=41 expect 1 '^FAIL  norm.cu norm_fwd_kernel<float> sm_80: registers are 41, expected 40'
RELEASE=13.1 REGISTERS=41 expect 0 '^warning: 4 differences from registers.csv, which is of nvcc release 13.0'
SPILLS=8 expect 1 '^FAIL  norm.cu norm_fwd_kernel<float> sm_90: spills 8 bytes'
SHARED=232449 expect 1 '^FAIL  norm.cu .*232449 bytes of static shared memory; at most 232448'
INSTRUCTION=FFMA expect 1 '^FAIL  attention_fwd.cu attention_fwd_kernel<bf16, 64> sm_80: no tensor-core instruction'
SPILLS=8 expect 1 '^FAIL  ' --update
touch "$tree/kernels/cuda/attention_fwd_warpgroup.cu"
expect 1 '^FAIL  attention_fwd_warpgroup.cu attention_fwd_warpgroup_kernel<bf16, 64> sm_90a: no tensor-core instruction' attention_fwd_warpgroup
INSTRUCTION=HGMMA.64x64x16.F32.BF16 expect 1 '^FAIL  attention_fwd_warpgroup.cu .* sm_90a: is not in registers.csv' attention_fwd_warpgroup
SERIAL='ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to branches' \
  expect 1 '^FAIL  attention_fwd_warpgroup.cu: wgmma.mma_async instructions are serialized due to branches' attention_fwd_warpgroup
rm "$tree/kernels/cuda/attention_fwd_warpgroup.cu"
# Of a build: both architectures' lines of a file in one text.
built=$tree/build/kernels/cuda
expect 2 'expected the folder of a build with -Dcuda=enabled, found none' --build "$tree/build" norm
mkdir -p "$built"
expect 2 'found one without compiled kernels' --build "$tree/build" norm
CUOBJDUMP=/nowhere expect 2 'CUOBJDUMP: expected a program, found /nowhere'
for name in norm attention_fwd; do
  for arch in sm_80 sm_90; do
    "$CUDA_HOME/bin/nvcc" -arch=$arch $name.cu "$built/$name.cubin" 2>>"$built/$name.ptxas"
  done
  touch "$built/$name.o"
done
BROKEN=1 expect 0 '^nvcc_gate: 4 kernels, 0 faults' --build "$tree/build"
sed -i 's/Used 40/Used 39/' "$built/norm.ptxas"
expect 1 '^FAIL  norm.cu norm_fwd_kernel<float> sm_90: registers are 39, expected 40' --build "$tree/build"
INSTRUCTION=FFMA expect 1 '^FAIL  attention_fwd.cu attention_fwd_kernel<bf16, 64> sm_90: no tensor-core' --build "$tree/build"
touch -d '1 hour ago' "$built/norm.o"
expect 2 'norm.o is not there, or older' --build "$tree/build"
BROKEN=1 expect 1 '^FAIL  norm.cu for sm_80 does not compile'
rm "$tree/kernels/cuda/norm.cu"
expect 1 '^FAIL  norm.cu norm_fwd_kernel<float> sm_80: is in registers.csv, but there is no such kernel'
CUDA_HOME=$tree/none expect 0 skipped

echo "nvcc_gate_test: $checks checks passed"
