#!/bin/bash
# The program from its options to its output: cachesim PATH is the first argument.
set -euo pipefail
cachesim=$1
trace=tests/data/cachesim-traces/random_paths.jsonl

fails() { echo "command_line_test: $1" >&2; exit 1; }

"$cachesim" --help | grep -q -- --policies= || fails "--help does not name the options"

"$cachesim" --sizes=10,50 --policies=lru,oracle "$trace" > "$TEST_TMPDIR/table"
[[ $(grep -c '| lru |' "$TEST_TMPDIR/table") == 2 ]] || fails "no two rows of lru"
grep -q '| 10 % | .* | oracle | .* | 1.000 | 1.00 |' "$TEST_TMPDIR/table" || fails "no row of oracle"

"$cachesim" --sizes=10 --json=- tests/data/cachesim-traces/agentic_sample.jsonl.gz |
  python3 -c 'import json, sys; [r] = json.load(sys.stdin); p = r["sizes"][0]["policies"]
assert r["requests"] == 16 and r["block_tokens"] == 64, r
assert set(p) == {"lru", "s3fifo", "reuse_rate", "oracle"}, p
assert all(0 < v["hit_rate"] < 1 for v in p.values()), p' || fails "JSON is not as documented"

"$cachesim" --sizes=10 --policies=lru --served-tokens-per-s=1000 --await=off "$trace" |
  grep -q '| waiting, mean |$' || fails "no column of what waits"

refuses() {
  local text=$1 status=0
  shift
  "$cachesim" "$@" > /dev/null 2> "$TEST_TMPDIR/error" || status=$?
  [[ $status == 2 ]] || fails "exit status $status for $*"
  grep -q -- "$text" "$TEST_TMPDIR/error" || fails "no '$text' for $*: $(cat "$TEST_TMPDIR/error")"
}
refuses 'cannot use --sizes=0' --sizes=0 "$trace"
refuses 'cannot use --speed=1' --speed=1 "$trace"
refuses 'cannot use --served-tokens-per-s=-1' --served-tokens-per-s=-1 "$trace"
refuses 'cannot use --await=1' --await=1 "$trace"
refuses 'cannot use --answers=1' --answers=1 "$trace"
refuses 'no/such: cannot open' no/such
refuses 'must be one of' --policies=mru "$trace"
# Before the replay, of which nothing is printed.
refuses '--json: cannot write no/such/out.json: No such file' --json=no/such/out.json "$trace"
"$cachesim" --json=no/such/out.json "$trace" 2> /dev/null | grep -q . && fails "it replayed first"
refuses 'no/such: cannot open' --json="$TEST_TMPDIR/none" no/such
[[ ! -e $TEST_TMPDIR/none ]] || fails "a file without a result is left"
# Nothing else tells of a full disk.
for options in --json=- --answers=on; do
  status=0
  "$cachesim" --sizes=10 --policies=lru "$options" "$trace" > /dev/full 2> "$TEST_TMPDIR/error" ||
    status=$?
  [[ $status == 2 ]] || fails "exit status $status where nothing could be printed ($options)"
  grep -q 'cannot write to standard output' "$TEST_TMPDIR/error" || fails "it does not say so"
done
# A path may hold any bytes, JSON only UTF-8.
odd=$TEST_TMPDIR/$'caf\xe9.jsonl'
cp "$trace" "$odd"
"$cachesim" --sizes=10 --policies=lru --json="$TEST_TMPDIR/odd.json" "$odd" > /dev/null ||
  fails "exit status $? for a path that is no UTF-8"
python3 -c 'import json, sys; [r] = json.load(open(sys.argv[1]))
assert r["trace"].endswith("caf\ufffd.jsonl"), r' "$TEST_TMPDIR/odd.json" || fails "no JSON of it"
exit 0
