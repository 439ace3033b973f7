#!/bin/bash
# Every operation of kernel_bench, small: its checks hold, and it says what it ran. The program's
# path is the first argument. Times mean nothing here.
set -euo pipefail
kernel_bench=$1

fails() { echo "kernel_bench_test: $1" >&2; exit 1; }

# rows_of COUNT OPTION...: so many lines of the table, all of them right.
rows_of() {
  local count=$1 table
  shift
  table=$("$kernel_bench" --threads=2 --seconds=0.001 "$@") || fails "exit status $? for $*: $table"
  grep -q '^peaks: read ' <<< "$table" || fails "no peaks for $*: $table"
  [[ $(grep -cE '%  ok(, [1-9][0-9]* decided)?$' <<< "$table") == "$count" ]] ||
    fails "not $count rows that are ok for $*: $table"
}
products=(--cached --shape=576x576,576x1536 --dtype=q4_1,q8_0)
rows_of 16 --cached --shape=576x576 --rows=1,9 --dtype=f32,f16,bf16,q8_0,q4_0,q4_1,q5_0,q5_1
rows_of 6 --cached --shape=2048x2048 --rows=1,9 --dtype=q4_k,q5_k,q6_k
rows_of 8 "${products[@]}" --rows=1,17 --op=gate_up
rows_of 8 "${products[@]}" --rows=1,17 --int8
for coarse in all most; do
  rows_of 8 "${products[@]}" --rows=1,17 --coarse="$coarse"
  rows_of 8 "${products[@]}" --rows=1,17 --op=gate_up --coarse="$coarse"
done
rows_of 8 "${products[@]}" --rows=1,17 --op=argmax
rows_of 12 --op=layer --rows=1

refuses() {
  local status=0
  "$kernel_bench" "$1" > /dev/null 2> "$TEST_TMPDIR/error" || status=$?
  [[ $status == 2 ]] || fails "exit status $status for $1"
  grep -q -- "cannot use $1" "$TEST_TMPDIR/error" || fails "$(cat "$TEST_TMPDIR/error")"
}
refuses --op=none
refuses --coarse=some
refuses --rows=0
refuses --dtype=q4_1,q9
refuses --shape=576x576,1x1

# A type that packs no 576 columns, an operation that takes no so many rows: no case, no success.
measures_nothing() {
  local status=0
  "$kernel_bench" --threads=2 --seconds=0.001 "$@" > /dev/null 2> "$TEST_TMPDIR/error" || status=$?
  [[ $status == 2 ]] || fails "exit status $status for $*"
  grep -q "nothing was measured" "$TEST_TMPDIR/error" || fails "$(cat "$TEST_TMPDIR/error")"
}
measures_nothing --dtype=q4_k --shape=576x576
measures_nothing --op=logits --rows=512

help=$("$kernel_bench" --help)
grep -q -- '--shape=' <<< "$help" && grep -q '49152x576' <<< "$help" || fails "$help"
