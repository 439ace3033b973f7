#!/bin/bash
# That the own matrix products keep what they sum in registers, for both architectures that have
# machine code of their own: sums that are spilled cost a product its speed, and nothing else here
# would show it. Three minutes of one core, hence not among the tests that always run.
set -euo pipefail
source tests/kernels/cuda/ptxas_report.sh
need_toolkit
for source in kernels/cuda/gemm_{tile_block256,tile_block32,tile_dense,fma,splits}.cu; do
  for architecture in sm_80 sm_90a; do
    log=$(ptxas_log "$source" "$architecture")
    most=0
    found=0
    while read -r kernel used stores loads; do
      found=$((found + 1))
      ((used <= most)) || most=$used
      [[ $stores == 0 && $loads == 0 ]] ||
        fail "$kernel for $architecture" "spills $stores bytes, loads $loads"
    done < <(kernels_of "$log")
    echo "$source, $architecture: $found kernels, at most $most registers"
    compiled=$(grep -c 'Compiling entry function' "$log")
    ((found > 0 && found == compiled)) ||
      fail "$source for $architecture" "$found kernels seen of $compiled"
  done
done
exit $failed
