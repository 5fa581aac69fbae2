#!/usr/bin/env bash
# scripts/gpu_check and scripts/gpu_bundle without a GPU: the same checks on the simulator, small, run from the build that
# was packed and unpacked again; what fails is told.
. "$(dirname "$0")/../e2e/lib.sh"

expect 2 'expected [--with-cuda] [--simulated] BUILD' 'no build to pack' "$source_dir/scripts/gpu_bundle" "$scratch" none.tar.xz
expect 2 'is no whole build with -Dcuda=enabled' 'the simulator is not what a GPU wants' "$source_dir/scripts/gpu_bundle" "$RANKWRIGHT_BUILD" x.tar.xz
expect 2 'expected a name that ends in .tar.xz' 'another kind of archive' "$source_dir/scripts/gpu_bundle" --simulated "$RANKWRIGHT_BUILD" x.zip
expect 2 'there is no folder nowhere' 'a folder that is not there' "$source_dir/scripts/gpu_bundle" --simulated "$RANKWRIGHT_BUILD" nowhere/x.tar.xz
mkdir packed
timeout 300 "$source_dir/scripts/gpu_bundle" --simulated "$RANKWRIGHT_BUILD" packed/bundle.tar.xz >packed.log 2>&1 </dev/null
is 'a build is packed' $? 0
holds 'its size is told' "$(cat packed.log)" 'MB compressed'
tar xf packed/bundle.tar.xz
check=rankwright-gpu/scripts/gpu_check
timeout 500 env -u RANKWRIGHT_SOURCE -u RANKWRIGHT_BUILD -u RANKWRIGHT_CONFIGS "$check" --simulated --budget 400 --json >checks.json 2>checks.err </dev/null
is 'all checks pass' $? 0
python3 - checks.json <<'P' >told
import json, sys
found = json.load(open(sys.argv[1]))
for row in found['checks']:
    print(row['result'], row['check'], '|', row['figures'])
print('failed', found['failed'])
P
[ $failed -eq 0 ] || cat told checks.err
is 'none fails' "$(tail -n 1 told)" 'failed 0'
is 'only the sanitizer is skipped' "$(grep -c '^skipped' told) $(grep -c '^skipped compute-sanitizer' told)" '3 3'
for name in 'kernel tests' training 'two GPUs' serving 'training goldens' 'dbench kernels' 'dbench train' 'dbench serve'; do
  is "$name passes" "$(grep -c "^ok $name |" told)" 1
done

# ---- what fails ----
mkdir -p broken/tools
printf '#!/bin/sh\n# nccl/simt\necho it is broken >&2\nexit 3\n' >broken/tools/dtrain
chmod +x broken/tools/dtrain
expect 1 'dtrain ends with 3: it is broken' 'a tool that fails is told' "$source_dir/scripts/gpu_check" --simulated broken --only training
expect 2 'no tools/dtrain in' 'no build' "$source_dir/scripts/gpu_check" packed
expect 2 'expected a part of a check' 'no such check' "$source_dir/scripts/gpu_check" --simulated broken --only nothing
mkdir kept && touch kept/file
expect 2 'expected a new or an empty folder' 'a folder in use' "$source_dir/scripts/gpu_check" --simulated broken --keep kept
mkdir -p plain/tools && cp /bin/true plain/tools/dtrain
expect 1 'is no build with -Dcuda=simt' 'a build for the CPU' "$source_dir/scripts/gpu_check" --simulated plain
expect 1 'is no build with -Dcuda=enabled but with -Dcuda=simt' 'the simulator is no build for a GPU' "$source_dir/scripts/gpu_check" "$RANKWRIGHT_BUILD"
expect 1 'is no build with -Dcuda=enabled but with -Dcuda=disabled' 'nor is one without CUDA' "$source_dir/scripts/gpu_check" plain
expect 2 'expected a folder, found none' 'no such libraries' "$source_dir/scripts/gpu_check" --libraries nowhere "$RANKWRIGHT_BUILD"
mkdir -p linked/tools && { cat /bin/true; echo libcublasLt.so; } >linked/tools/dtrain && chmod +x linked/tools/dtrain
command -v nvidia-smi >/dev/null || expect 1 'no nvidia-smi' 'without a GPU the device is what fails' "$source_dir/scripts/gpu_check" linked
finish
