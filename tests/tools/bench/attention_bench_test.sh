#!/bin/bash
# A grid and a curve of attention_bench, small: its results are right, its files have what its tables
# have, and its exit status says whether a goal was missed. The program's path is the first argument.
# Times mean nothing here.
set -euo pipefail
attention_bench=$1

fails() { echo "attention_bench_test: $1" >&2; exit 1; }

# The largest heads: a call is timed for 0.3 s in all, and memory is read before each.
# runs OPTION...: the tables are in $table then.
runs() {
  local status=0 expected=0
  table=$("$attention_bench" --threads 2 --kv f16 --prompts 256 "$@") || status=$?
  ! grep -q ': missed' <<< "$table" || expected=1
  [[ $status == "$expected" ]] || fails "exit status $status for $*: $table"
}
runs --suite grid --pairs 2 --filter '32/32' --json "$TEST_TMPDIR/a.json" --csv "$TEST_TMPDIR/a.csv"
python3 - "$TEST_TMPDIR" "$table" << 'PYTHON'
import csv, json, sys
folder, table = sys.argv[1:]
of_json = json.load(open(f"{folder}/a.json"))["measurements"]
of_csv = list(csv.DictReader(open(f"{folder}/a.csv")))
assert len(of_json) == len(of_csv) == 4 * 4 and list(of_json[0]) == list(of_csv[0])
for row, other in zip(of_json, of_csv):
    assert float(other["ideal_us"]) == row["ideal_us"] > 0
    assert other["goals"] == row["goals"]
    judged = row["method"] == "two_phase" and row["shared_tokens"] in (0, 256)
    assert ((": reached" in row["goals"]) or (": missed" in row["goals"])) == judged, row
    assert row["goals"] in table
    if row["method"] == "two_phase":
        assert row["by_two_phase"] == row["by_two_phase_allowed"] == 1
    elif row["shared_tokens"] == 256:
        allowed = row["by_two_phase_allowed"]
        assert allowed == 1 if row["method"] == "paged_shared" else allowed >= 1, row
PYTHON

# 0.1 GB have room for the methods with chunks of each sequence's own up to a batch of 16.
runs --suite batch --pool-gb 0.1
grep -qE '^\| 16 \|( [0-9.]+ \|){4}( [0-9.]+ \([0-9.]+\) \|){3}$' <<< "$table" || fails "$table"
grep -qE '^\| 32 \| - \| - \|( [0-9.]+ \|){2} - \| - \| [0-9.]+ \([0-9.]+\) \|$' <<< "$table" ||
  fails "$table"
