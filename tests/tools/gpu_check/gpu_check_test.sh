#!/bin/bash
# gpu_pack and gpu_check with real programs over the emulated device, on small shapes.
set -euo pipefail
pack=$TEST_TMPDIR/pack out=$TEST_TMPDIR/out

fails() {
  echo "gpu_check_test: $1" >&2
  cat "$out"/gpu-check.json "$out"/logs/* >&2 || true
  exit 1
}

tools/gpu_pack --emulated --binaries "$PWD" --out "$pack"
[[ -x $pack/part1/gpu_check && ! -e $pack/part2 ]] || fails "the pack is not as it should be"

# A peer, whose rows are joined with those that attention_bench writes: slower than any device here.
{
  echo '#!/bin/bash'
  for shared in 0 64 128; do
    echo "echo '{\"n_p\": 128, \"n_s\": $shared, \"plain_us\": 1000000000.00, \"cascade_us\": 1000000000.00}'"
  done
} > "$TEST_TMPDIR/flashinfer_bench"
mkdir "$pack/part1/bin"
mv "$TEST_TMPDIR/flashinfer_bench" "$pack/part1/bin"
chmod +x "$pack/part1/bin/flashinfer_bench"
echo 'flashinfer peer 30 bin/flashinfer_bench' >> "$pack/part1/steps"
sum=$(sha256sum < "$pack/part1/steps")
sed -i "s/^sha256_steps=.*/sha256_steps=${sum%% *}/" "$pack/part1/manifest"

# The pack stands alone: nothing beside it is found from here.
cd /
"$pack/part1/gpu_check" --emulated --out "$out" || fails "exit status $?"

python3 - "$out/gpu-check.json" <<'END' || fails "the report is not as it should be"
import json, sys
report = json.load(open(sys.argv[1]))
assert report["result"] == "passed", report
steps = {step["name"]: step for step in report["steps"]}
assert set(steps) == {"instructions", "sampling", "logprobs", "chunk_mover", "attention_bench",
                      "model_bench", "flashinfer"}, steps
assert all(step["result"] == "passed" for step in steps.values()), steps
assert steps["sampling"]["cases_passed"] > 50 and steps["sampling"]["cases_failed"] == 0
rows = report["benchmarks"]["attention_bench"]["tables"]["decode"]
assert [(row["n_p"], row["n_s"]) for row in rows] == [(128, 0), (128, 64), (128, 128)], rows
assert all(row["error"] < 0.01 and row["two_phase serial us"] > 0 for row in rows), rows
assert steps["flashinfer"]["detail"].startswith("within 0.7 of cascade's time in 2 shared rows"), steps
step = report["benchmarks"]["model_bench"]["tables"]["step"]
assert all(row["attention of all layers alone, ms"] > 0 for row in step), step
assert set(report["benchmarks"]["model_bench"]["tables"]) == {"step", "prefill", "load", "products"}, report
END

# A pack for the emulated device proves nothing about a GPU, and does not say that it does.
status=0
"$pack/part1/gpu_check" --out "$TEST_TMPDIR/refused" 2> "$TEST_TMPDIR/error" || status=$?
[[ $status == 2 ]] || fails "exit status $status without --emulated"
