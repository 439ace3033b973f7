#!/bin/bash
# What ptxas says about Hopper's attention kernels, optimised as they are shipped (a minute of one
# core, hence not among the tests that always run). Each of these would cost the kernels their speed,
# or on a GPU their end, and nothing else here would show it:
#   - setmaxnreg ignored (C7508, C7509 and their like): warpgroups keep what they were launched with
#   - products serialised, or a fence put in where accumulators are touched between products (C7510
#     and its like)
#   - other than kLaunchRegisters (hopper_attention_layout.h) at the launch: setmaxnreg's pool is
#     another one
#   - spills
set -euo pipefail
nvcc=/usr/local/cuda/bin/nvcc
registers=168
kernels_of_a_file=4  # head dimensions
if [[ ! -x $nvcc ]]; then
  echo "no CUDA toolkit on this machine: nothing seen"
  exit 1
fi
failed=0
fail() {
  echo "FAILED: $1: $2"
  failed=1
}
for source in kernels/cuda/chunk_attention_hopper_{bf16,f16}.cu; do
  log=$TEST_TMPDIR/$(basename "$source").log
  "$nvcc" -std=c++20 -O3 -ccbin /usr/bin/g++ --expt-relaxed-constexpr -I. -arch=sm_90a -Xptxas -v \
    -cubin "$source" -o "$TEST_TMPDIR/kernels.cubin" > "$log" 2>&1 || { cat "$log"; exit 1; }
  if grep -E '\(C75[0-9]{2}\)|setmaxnreg|wgmma|warpgroup\.arrive' "$log"; then
    fail "$source" "ptxas changed what the kernels say"
  fi
  # One line for each kernel: its name, registers, bytes spilled and loaded again.
  table=$(awk '
    /Compiling entry function/ { split($0, quoted, "\047"); kernel = quoted[2] }
    /bytes spill stores/ { stores = $5; loads = $9 }
    /Used [0-9]+ registers/ {
      for (i = 1; i < NF; ++i) if ($i == "Used") print kernel, $(i + 1), stores, loads
    }' "$log")
  echo "$table"
  found=0
  while read -r kernel used stores loads; do
    [[ $kernel == *HopperAttention* ]] || continue
    found=$((found + 1))
    [[ $used == "$registers" ]] || fail "$kernel" "$used registers, not $registers"
    [[ $stores == 0 && $loads == 0 ]] || fail "$kernel" "spills $stores bytes, loads $loads"
  done <<< "$table"
  ((found == kernels_of_a_file)) || fail "$source" "$found kernels, not $kernels_of_a_file"
done
exit $failed
