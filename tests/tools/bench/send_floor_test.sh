#!/bin/bash
# send_floor, small: it says how long its sends took, and refuses what it cannot do. The program's
# path is the first argument. Times mean nothing here.
set -euo pipefail
send_floor=$1

fails() { echo "send_floor_test: $1" >&2; exit 1; }

line='^\{"p50_us":([0-9]+\.[0-9]),"p99_us":([0-9]+\.[0-9]),"within_200_us":(0|1)\.[0-9]{4}\}$'
for threads in 1 3; do
  output=$("$send_floor" --connections=5 --threads=$threads --bytes=100 --steps=20 --steps-per-s=1000)
  [[ $output =~ $line ]] || fails "$threads threads: $output"
  awk "BEGIN { exit !(0 < ${BASH_REMATCH[1]} && ${BASH_REMATCH[1]} <= ${BASH_REMATCH[2]}) }" ||
    fails "$threads threads: $output"
done

refuses() {
  local status=0
  "$send_floor" "$1" > /dev/null 2> "$TEST_TMPDIR/error" || status=$?
  [[ $status == 2 ]] || fails "exit status $status for $1"
  grep -q -- "$1" "$TEST_TMPDIR/error" || fails "$(cat "$TEST_TMPDIR/error")"
}
refuses --steps=0
refuses --connections=1001
refuses --threads=two
refuses --quickly
