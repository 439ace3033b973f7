"""tools/gpu_check judges our rows beside those of a peer."""

import json

import pytest

from fake_gpu_pack import Pack, step


@pytest.fixture(name="pack")
def pack_of_cuda(tmp_path):
    return Pack(tmp_path)


def own_rows(rows):
    """attention_bench's table as GpuReport writes it, of (n_p, n_s): microseconds."""
    table = [{"n_p": float(n_p), "n_s": float(n_s), "MB": 1.5, "bound us": 2.0, "two_phase us": us,
              "paged us": 9e9} for (n_p, n_s), us in rows.items()]
    text = json.dumps({"card": "x", "tables": {"decode": table}}, indent=2)
    return (f"while (($#)); do case $1 in --json) cat > \"$2\" <<'END'\n{text}\nEND\n ;;"
            " --markdown) echo '| row |' > \"$2\" ;; esac; shift; done\n")


def peer_rows(rows):
    """flashinfer_bench's lines, of (n_p, n_s): its (plain, cascade) microseconds."""
    return "".join(f"""echo '{{"n_p": {n_p}, "n_s": {n_s}, "plain_us": {plain:.2f}, '"""
                   f"""'"cascade_us": {cascade:.2f}, "card": "x"}}'\n"""
                   for (n_p, n_s), (plain, cascade) in rows.items())


# Geometric means: 0.35 and 1.4 of cascade's time are 0.7 of it. Of plain decode's every row counts.
@pytest.mark.parametrize("ours, result, detail", [
    ({(1024, 0): 300.0, (1024, 512): 34.9, (1024, 1024): 139.9}, "passed",
     "within 0.7 of cascade's time in 2"),
    ({(1024, 0): 300.0, (1024, 512): 35.1, (1024, 1024): 140.1}, "failed", "0.7 of cascade's time"),
    ({(1024, 0): 306.1, (1024, 512): 34.9, (1024, 1024): 139.9}, "failed",
     "than plain decode's time at n_p 1024, n_s 0"),
    ({(1024, 0): 300.0, (1024, 512): 3.0, (1024, 1024): 306.1}, "failed",
     "than plain decode's time at n_p 1024, n_s 1024"),
    ({(1024, 0): 300.0, (1024, 512): 1e7, (1024, 1024): 0.001}, "failed", "0.7 of cascade's time"),
    ({(1024, 512): 34.9, (1024, 1024): 139.9}, "failed", 'not compared: {"n_p": 1024, "n_s": 0'),
    ({(1024, 0): 300.0, (2048, 512): 34.9}, "failed", 'not compared: {"n_p": 1024, "n_s": 1024'),
])
def test_a_peers_rows_are_joined_with_our_own_and_judged(pack, ours, result, detail):
    pack.step("attention_bench", "bench", own_rows(ours))
    pack.step("flashinfer", "peer", peer_rows({
        (1024, 0): (300, 0), (1024, 512): (300, 100), (1024, 1024): (300, 100)}))
    done, report = pack.run()
    judged = step(report, "flashinfer")
    assert (judged["result"], done.returncode) == (result, int(result == "failed")), judged
    assert detail in judged["detail"]
    assert len(report["benchmarks"]["flashinfer"]["rows"]) == 3


def test_a_peer_is_not_compared_with_what_an_earlier_run_left(pack):
    pack.step("attention_bench", "bench", own_rows({(1024, 0): 1.0, (1024, 512): 1.0}))
    pack.step("flashinfer", "peer", peer_rows({(1024, 0): (300, 0), (1024, 512): (300, 100)}))
    _, report = pack.run()
    assert step(report, "flashinfer")["result"] == "passed"
    _, report = pack.run("--only", "flashinfer")
    assert step(report, "flashinfer")["result"] == "skipped"
    assert set(report["benchmarks"]) == {"flashinfer"}


def test_a_peers_lines_go_into_the_report(pack):
    pack.step("flashinfer", "peer", "echo warming up; echo '{\"n_p\": 1}'; echo '{\"n_p\": 2}'\n")
    pack.step("broken", "peer", "echo no memory\n")
    pack.step("absent", "peer", "")
    del pack.files["bin/absent"]
    _, report = pack.run()
    assert report["benchmarks"] == {"flashinfer": {"rows": [{"n_p": 1}, {"n_p": 2}]}}
    assert "not compared" in step(report, "flashinfer")["detail"]
    assert step(report, "broken")["result"] == "failed"
    assert step(report, "absent")["result"] == "skipped"
