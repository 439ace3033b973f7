"""tools/plot/load_plot: curves of load results."""

import json
import pathlib
import subprocess
import sys

import pytest

PLOT = pathlib.Path(__file__).resolve().parents[2] / "tools" / "plot" / "load_plot"


def summary(value: float | None) -> dict:
    """None: nothing was answered."""
    count = 0 if value is None else 5
    return {"count": count, "mean": value, "p50": value, "p90": value, "p99": value, "max": value}


def result(label: str, *runs: tuple[float | None, float | None, int], ended_early: str | None = None) -> dict:
    metrics = ("ttft", "tpot", "itl", "e2e", "normalized")
    return {"format": "refrain-loadgen", "version": 1, "label": label, "model": "m",
            "runs": [{"rate_per_s": rate, "failed": failed, "ended_early": ended_early,
                      "latency_ms": {name: summary(value) for name in metrics}}
                     for rate, value, failed in runs]}


def plot(folder: pathlib.Path, *results: object, options: tuple[str, ...] = (), name: str = "out"):
    paths = []
    for number, one in enumerate(results):
        paths.append(folder / f"{number}.json")
        paths[-1].write_text(one if isinstance(one, str) else json.dumps(one))
    return subprocess.run([sys.executable, PLOT, "--out", folder / name, *options, *paths],
                          capture_output=True, text=True)


def test_says_where_it_cannot_write(tmp_path):
    done = plot(tmp_path, result("ours", (1, 20, 0)), name="missing/out")
    assert done.returncode == 1
    assert done.stderr == f"load_plot: cannot write {tmp_path}/missing/out.svg: " \
                          "No such file or directory\n"


def test_draws_a_line_per_result_and_the_limit(tmp_path):
    done = plot(tmp_path, result("ours", (1, 20, 0), (2, 30, 0), (4, 90, 2)),
                result("peer", (1, 40, 0), (2, 200, 0)), options=("--limit", "100"))
    assert done.returncode == 0, done.stderr
    svg = (tmp_path / "out.svg").read_text()
    # matplotlib draws text as paths and keeps it as comments.
    for text in ("ours", "peer", "limit 100 ms", "mean normalized latency (ms per token)"):
        assert f"<!-- {text} -->" in svg
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_gives_the_same_file_twice(tmp_path):
    one = result("ours", (1, 20, 0), (2, 30, 0))
    for name in ("a", "b"):
        assert plot(tmp_path, one, name=name).returncode == 0
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize("bad, message", [
    ("{", "0.json"),
    ({"format": "other"}, "was not written by loadgen --json"),
    (result("ended early", (1, 5, 0), ended_early="interrupted"), "no result has a run at a rate"),
    (result("closed loop", (None, 5, 0)), "no result has a run at a rate"),
    (result("none answered", (1, None, 5)), "no result has a run at a rate"),
])
def test_refuses_what_has_no_curve(tmp_path, bad, message):
    done = plot(tmp_path, bad)
    assert done.returncode == 1
    assert message in done.stderr
    assert not (tmp_path / "out.svg").exists()
