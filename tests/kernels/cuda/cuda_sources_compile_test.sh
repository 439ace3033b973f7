#!/bin/bash
# Every CUDA source compiles with nvcc for Hopper; where there is no toolkit there is nothing to see.
set -euo pipefail
nvcc=/usr/local/cuda/bin/nvcc
if [[ ! -x "$nvcc" ]]; then
  missing="no CUDA toolkit on this machine: not compiled"
  printf '<testsuites><testsuite name="cuda"><testcase name="compile"><skipped message="%s"/>%s\n' \
    "$missing" '</testcase></testsuite></testsuites>' > "$XML_OUTPUT_FILE"
  echo "$missing"
  exit 0
fi
# Without optimisation: it is to be seen that they compile, in seconds.
compile() {
  local language=cu
  [[ "$1" == *.cc ]] && language=c++
  "$nvcc" -std=c++20 -Xcicc -O1 -Xptxas -O0 -ccbin /usr/bin/g++ --expt-relaxed-constexpr -I. \
    -gencode=arch=compute_90a,code=sm_90a -x "$language" -c "$1" -o "$TEST_TMPDIR/$(basename "$1").o"
  echo "compiled $1"
}
export -f compile
export nvcc
sources=(kernels/cuda/*.cu kernels/cuda/runtime_cuda.cc kernels/cuda/cublas_lt.cc tests/kernels/cuda/*.cu)
[[ ${#sources[@]} -gt 5 ]]
printf '%s\n' "${sources[@]}" | xargs -P 2 -I{} bash -c 'compile {}'
