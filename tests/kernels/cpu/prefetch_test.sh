#!/bin/bash
# Kernels that ask the caches for what they read or write soon still do: GCC takes a function that
# only prefetches for one without effects, and its calls out (kernels/cpu/prefetch.h).
#
#   prefetch_test.sh ARCHIVE FUNCTION [ARCHIVE FUNCTION ...]
#
# Fails where an archive has no function whose demangled name begins with FUNCTION (an extended
# regular expression), or has one without a prefetch.
set -euo pipefail
objdump=/usr/bin/objdump
checked=0
while [[ $# -gt 0 ]]; do
  "$objdump" --disassemble --demangle --no-show-raw-insn "$1" > "$TEST_TMPDIR/listing"
  if nm "$1" 2> /dev/null | grep -E '__(a|t|ub)san_' > /dev/null; then
    missing="sanitized"
    printf '<testsuites><testsuite name="cpu"><testcase name="prefetch"><skipped message="%s"/>%s\n' \
      "$missing" '</testcase></testsuite></testsuites>' > "$XML_OUTPUT_FILE"
    echo "$missing"
    exit 0
  fi
  awk -v name="$2" '
    function Close() {
      if (inside && !prefetches) { print "no prefetch in " title; missing++ }
      if (inside) seen++
      inside = 0
    }
    /^[0-9a-f]+ <.*>:$/ {
      Close()
      title = $0
      sub(/^[0-9a-f]+ </, "", title)
      gsub(/refrain::kernels::cpu::|\(anonymous namespace\)::|^void /, "", title)
      inside = title ~ ("^" name) && title !~ /\[clone \.cold\]/
      prefetches = 0
    }
    /\tprefetch/ { prefetches++ }
    END {
      Close()
      print name ": " seen + 0 " functions"
      exit missing > 0 || seen == 0
    }' "$TEST_TMPDIR/listing" || { echo "in $1"; exit 1; }
  checked=$((checked + 1))
  shift 2
done
[[ $checked -gt 0 ]]
