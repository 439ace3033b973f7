#!/bin/bash
# A program with the real CUDA runtime in it starts on a machine that has no driver, an old one or
# no card, says which of them it is, and ends. Old drivers are stubs. Where there is no toolkit there
# is nothing to see.
set -euo pipefail
toolkit=/usr/local/cuda
if [[ ! -f $toolkit/lib64/libcudart_static.a ]]; then
  missing="no CUDA toolkit on this machine: not linked"
  printf '<testsuites><testsuite name="cuda"><testcase name="link"><skipped message="%s"/>%s\n' \
    "$missing" '</testcase></testsuite></testsuites>' > "$XML_OUTPUT_FILE"
  echo "$missing"
  exit 0
fi
# Linked as //kernels/cuda:toolkit_runtime says.
g++ -std=c++20 -I. -isystem "$toolkit/include" \
  tests/kernels/cuda/open_device.cc kernels/cuda/runtime_cuda.cc kernels/cuda/cublas_lt.cc \
  "-L$toolkit/lib64" -l:libcudart_static.a -ldl -lrt -pthread \
  -labsl_statusor -labsl_status -labsl_cord -labsl_strings -o "$TEST_TMPDIR/open_device"

failed=0
# expect FOLDER WHY: with FOLDER's driver the status says WHY.
expect() {
  local said rc=0
  said=$(LD_LIBRARY_PATH=$TEST_TMPDIR/$1 timeout 60 "$TEST_TMPDIR/open_device" 2>&1) || rc=$?
  echo "$1: $said"
  [[ $rc == 0 && $said == "FAILED_PRECONDITION: no CUDA device: $2" ]] && return
  echo "FAILED: $1: exit status $rc, expected: $2"
  failed=1
}

# driver FOLDER VERSION INIT: a libcuda.so.1 of VERSION whose cuInit returns INIT.
driver() {
  mkdir "$TEST_TMPDIR/$1"
  printf 'int cuDriverGetVersion(int* version) { *version = %s; return 0; }
int cuInit(unsigned flags) { (void)flags; return %s; }\n' "$2" "$3" |
    gcc -shared -fPIC -x c - -o "$TEST_TMPDIR/$1/libcuda.so.1"
}

version=$(sed -n 's/^#define CUDART_VERSION *//p' "$toolkit/include/cuda_runtime_api.h")
needed=$((version / 1000)).$((version % 1000 / 10))

if /sbin/ldconfig -p | grep -F libcuda.so.1 > "$TEST_TMPDIR/installed"; then
  echo "this machine has a driver: $(cat "$TEST_TMPDIR/installed")"
else
  expect none "no NVIDIA driver is installed (libcuda.so.1 was not found)"
fi
driver old 11040 0
expect old "the driver is for CUDA 11.4, this program needs $needed"
driver one_older "$((version - 1000 + 80))" 0
expect one_older "the driver is for CUDA $((version / 1000 - 1)).8, this program needs $needed"
driver no_card "$version" 100  # CUDA_ERROR_NO_DEVICE
expect no_card "no CUDA-capable device is detected"
exit $failed
