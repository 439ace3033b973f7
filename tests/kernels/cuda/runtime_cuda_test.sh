#!/bin/bash
# What the real runtime's code makes of CUDA's errors, with a fake of libcudart linked in its place.
# Where there is no toolkit there is nothing to see.
set -euo pipefail
toolkit=/usr/local/cuda
if [[ ! -f $toolkit/include/cuda_runtime_api.h ]]; then
  missing="no CUDA toolkit on this machine: not compiled"
  printf '<testsuites><testsuite name="cuda"><testcase name="errors"><skipped message="%s"/>%s\n' \
    "$missing" '</testcase></testsuite></testsuites>' > "$XML_OUTPUT_FILE"
  echo "$missing"
  exit 0
fi
g++ -std=c++20 -I. -isystem "$toolkit/include" \
  tests/kernels/cuda/runtime_cuda_cases.cc tests/kernels/cuda/fake_cuda_runtime.cc \
  kernels/cuda/runtime_cuda.cc -labsl_statusor -labsl_status -labsl_cord -labsl_strings \
  -lgmock_main -lgmock -lgtest -pthread -o "$TEST_TMPDIR/runtime_cuda_cases"
exec "$TEST_TMPDIR/runtime_cuda_cases"
