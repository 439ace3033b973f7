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
source tests/kernels/cuda/ptxas_report.sh
registers=168
kernels_of_a_file=4  # head dimensions
need_toolkit
for source in kernels/cuda/chunk_attention_hopper_{bf16,f16}.cu; do
  log=$(ptxas_log "$source" sm_90a)
  if grep -E '\(C75[0-9]{2}\)|setmaxnreg|wgmma|warpgroup\.arrive' "$log"; then
    fail "$source" "ptxas changed what the kernels say"
  fi
  table=$(kernels_of "$log")
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
