# What ptxas says of a source's kernels, optimised as they are shipped. For the ptxas tests, which
# source it; they run in the folder of the sources.
nvcc=/usr/local/cuda/bin/nvcc
failed=0

# fail WHAT WHY: notes it and goes on, so that one run tells everything.
fail() {
  echo "FAILED: $1: $2"
  failed=1
}

# need_toolkit: a test that sees nothing fails.
need_toolkit() {
  if [[ ! -x $nvcc ]]; then
    echo "no CUDA toolkit on this machine: nothing seen"
    exit 1
  fi
}

# ptxas_log SOURCE ARCHITECTURE: compiles it and prints the name of the file with what was said.
ptxas_log() {
  local log=$TEST_TMPDIR/$(basename "$1").$2.log
  "$nvcc" -std=c++20 -O3 -ccbin /usr/bin/g++ --expt-relaxed-constexpr -I. "-arch=$2" -Xptxas -v \
    -cubin "$1" -o "$TEST_TMPDIR/kernels.cubin" > "$log" 2>&1 || { cat "$log" >&2; exit 1; }
  echo "$log"
}

# kernels_of LOG: a line for each kernel: its name, registers, bytes spilled and loaded again.
kernels_of() {
  awk '
    /Compiling entry function/ { split($0, quoted, "\047"); kernel = quoted[2] }
    /bytes spill stores/ { stores = $5; loads = $9 }
    /Used [0-9]+ registers/ {
      for (i = 1; i < NF; ++i) if ($i == "Used") print kernel, $(i + 1), stores, loads
    }' "$1"
}
