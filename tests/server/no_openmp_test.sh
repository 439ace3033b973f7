#!/bin/bash
# The daemon, whose path is the first argument, has no OpenMP runtime, loaded or linked in: its
# threads would spin beside those of the compute pool.
set -euo pipefail

libraries=$(ldd "$1")
grep -q 'libc\.so' <<< "$libraries" || { echo "no_openmp_test: no libc in: $libraries" >&2; exit 1; }
if grep -E 'lib(g|i|)omp(5|)\.so' <<< "$libraries"; then
  echo "no_openmp_test: $1 loads the libraries above" >&2
  exit 1
fi
symbols=$(nm "$1" 2> /dev/null)
if grep -E ' (GOMP_parallel|omp_get_max_threads|__kmpc_fork_call)(@.*)?$' <<< "$symbols"; then
  echo "no_openmp_test: $1 has the symbols above" >&2
  exit 1
fi
