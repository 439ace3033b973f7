"""tools/bench/rate_sweep: what it measures next, what counts, and when it says that a goal was missed."""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import types

import pytest
import rate_points

OURS = "refrain two_phase"
RATES = [1.0, 2.0, 4.0, 8.0]


def run_of(normalized_ms: float | None, failed: int = 0, rate: float = 1.0) -> dict:
    """loadgen's report of a run; None: nothing was answered."""
    count = 0 if normalized_ms is None else 10
    summary = {"count": count, **{name: normalized_ms for name in ("mean", "p50", "p90", "p99", "max")}}
    return {"rate_per_s": rate, "completed": count, "failed": failed,
            "latency_ms": {name: dict(summary) for name in ("ttft", "tpot", "itl", "e2e", "normalized")}}


class Bench:
    """Servers whose latency is known; points are made as a sweep asks for them."""

    def __init__(self, latency_ms, servers=(OURS, "vLLM"), shared=(2048,), rates=None, repeats=1):
        self.latency_ms = latency_ms
        self.plan = rate_points.Plan(list(servers), list(shared), rates or RATES, repeats, 200, 0.05)
        self.sweep = rate_points.Sweep(self.plan, [])
        self.order = []

    def go(self, most: int = 1000, foreign=lambda task, attempt: 0.0) -> "Bench":
        for _ in range(most):
            task = self.sweep.next()
            if task is None:
                break
            self.order.append((task.server, task.rate))
            attempt = len(self.sweep.tries(task.server, task.shared, task.rate))
            latency = self.latency_ms(task, attempt)
            run = latency if isinstance(latency, dict) else run_of(latency, rate=task.rate)
            self.sweep.points.append({
                "server": task.server, "shared": task.shared, "rate": task.rate, "commit": "c",
                "foreign_share": foreign(task, attempt), "run": run})
        return self

    def rates_measured(self, server: str) -> list[float]:
        return sorted({rate for name, rate in self.order if name == server})


def up_to(**highest):
    """Latency just within the SLO up to a server's highest rate, over it above."""
    by_name = {name.replace("ours", OURS): rate for name, rate in highest.items()}
    return lambda task, attempt: 100.0 if task.rate <= by_name[task.server] else 300.0


def verdict(bench: Bench, shared: int = 2048) -> rate_points.Verdict:
    peers = [name for name in bench.plan.servers if name != OURS]
    return rate_points.judge(bench.sweep, shared, OURS, peers)


def test_servers_take_turns_rate_by_rate_and_another_is_first_each_time():
    bench = Bench(up_to(ours=8, vLLM=8)).go()
    assert bench.order == [(OURS, 1), ("vLLM", 1), ("vLLM", 2), (OURS, 2), (OURS, 4), ("vLLM", 4),
                           ("vLLM", 8), (OURS, 8)]


def test_a_server_climbs_no_further_after_two_rates_over_the_slo_in_a_row():
    assert Bench(up_to(ours=8, vLLM=1)).go().rates_measured("vLLM") == [1, 2, 4]
    assert Bench(up_to(ours=8, vLLM=0)).go().rates_measured("vLLM") == [1, 2]


def test_one_rate_over_the_slo_does_not_end_a_climb():
    bench = Bench(lambda task, attempt: 300.0 if task.rate == 2 else 100.0).go()
    assert bench.rates_measured(OURS) == RATES
    assert bench.sweep.highest_held(OURS, 2048) == 8
    assert bench.sweep.highest_unbroken(OURS, 2048) == 1
    assert bench.sweep.lowest_broken(OURS, 2048) == 2


def test_tries_end_when_most_agree_and_the_median_decides():
    agreeing = Bench(up_to(ours=8, vLLM=8), repeats=3).go()
    assert all(agreeing.order.count((OURS, rate)) == 2 for rate in RATES)
    # Tries of 100, 300 and 150 ms: a third is made, the median is within.
    odd = Bench(lambda task, attempt: [100.0, 300.0, 150.0][attempt], repeats=3).go()
    assert all(odd.order.count((OURS, rate)) == 3 for rate in RATES)
    assert odd.sweep.held(OURS, 2048, 1.0) is True
    assert odd.sweep.median_run(OURS, 2048, 1.0)["latency_ms"]["normalized"]["mean"] == 150


def test_two_tries_that_disagree_do_not_hold_a_rate():
    bench = Bench(lambda task, attempt: [100.0, 300.0][attempt], repeats=2).go()
    assert bench.sweep.held(OURS, 2048, 1.0) is False


def test_second_tries_come_after_the_first_of_all_servers():
    bench = Bench(up_to(ours=8, vLLM=8), rates=[1.0], repeats=3).go()
    assert bench.order == [(OURS, 1), ("vLLM", 1), ("vLLM", 1), (OURS, 1)]


def test_answers_of_one_token_have_no_time_per_token_and_a_row_all_the_same():
    run = run_of(10.0)
    run["latency_ms"]["tpot"] = run_of(None)["latency_ms"]["tpot"]
    bench = Bench(lambda task, attempt: run, servers=[OURS], rates=[1.0]).go()
    assert "| 10 | 10 / 10 | - | 0 |" in rate_points.point_table(bench.sweep, 2048)[2]


@pytest.mark.parametrize("run", [run_of(10.0, failed=1), run_of(None)])
def test_a_run_with_failures_or_without_answers_keeps_no_slo(run):
    bench = Bench(lambda task, attempt: run, rates=[1.0]).go()
    assert bench.sweep.held(OURS, 2048, 1.0) is False
    assert bench.sweep.highest_held(OURS, 2048) is None
    assert rate_points.point_table(bench.sweep, 2048)[2].endswith("| no |")


@pytest.mark.parametrize("attempt_cut", [0, 1])
def test_answers_that_were_cut_keep_no_slo_and_are_shown(attempt_cut):
    cut = run_of(10.0) | {"short_answers": 2}
    whole = run_of(10.0) | {"short_answers": 0}
    bench = Bench(lambda task, attempt: cut if attempt == attempt_cut else whole,
                  servers=[OURS], rates=[1.0], repeats=3).go()
    assert bench.sweep.held(OURS, 2048, 1.0) is False
    head, _, row = rate_points.point_table(bench.sweep, 2048)
    column = head.split(" | ").index("cut")
    assert row.split(" | ")[column] == "2" and row.endswith("| no |")


@pytest.mark.parametrize("server, reached", [(OURS, False), ("vLLM", None)])
def test_cut_answers_count_against_us_and_never_for_us(server, reached):
    bench = Bench(lambda task, attempt: run_of(10.0 if task.rate <= 2 else 300.0)
                  | {"short_answers": int(task.server == server)}).go()
    judged = verdict(bench)
    assert judged.reached is reached
    assert ("answers of vLLM were cut" in judged.text) is (reached is None)


@pytest.mark.parametrize("members", [{}, {"short_answers": None}, {"short_answers": 0}])
def test_where_no_answer_is_known_to_be_cut_the_latency_counts(members):
    bench = Bench(lambda task, attempt: run_of(10.0) | members, servers=[OURS], rates=[1.0]).go()
    assert bench.sweep.held(OURS, 2048, 1.0) is True


def test_a_disturbed_try_is_made_again_and_its_numbers_count_nowhere():
    bench = Bench(lambda task, attempt: 900.0 if attempt == 0 else 100.0, rates=[1.0],
                  servers=[OURS]).go(foreign=lambda task, attempt: 0.5 if attempt == 0 else 0.0)
    assert len(bench.order) == 2
    assert bench.sweep.held(OURS, 2048, 1.0) is True
    row = rate_points.point_table(bench.sweep, 2048)[2]
    assert "| 1 (+1 disturbed) | 100 |" in row and "| 0 % |" in row


def test_where_all_tries_are_disturbed_later_ones_count_and_it_is_told():
    bench = Bench(up_to(ours=8), rates=[1.0], servers=[OURS]).go(
        foreign=lambda task, attempt: 0.1 * (attempt + 1))
    assert len(bench.order) == 1 + rate_points.MOST_THROWN_AWAY
    assert "| 1 (+2 disturbed) |" in rate_points.point_table(bench.sweep, 2048)[2]
    assert "| 30 % |" in rate_points.point_table(bench.sweep, 2048)[2]


def test_no_two_tries_have_the_same_prompts():
    bench = Bench(up_to(ours=8), servers=[OURS], shared=(1024, 2048), repeats=3)
    seeds = []
    while (task := bench.sweep.next()) is not None:
        seeds.append(task.seed)
        bench.go(most=1)
    assert len(seeds) == len(set(seeds)) == 16


@pytest.mark.parametrize("stopped_after", range(0, 30, 3))
def test_goes_on_just_where_it_was_interrupted(stopped_after):
    slow = up_to(ours=4, vLLM=1)
    whole = Bench(slow, repeats=3).go()
    first = Bench(slow, repeats=3).go(most=stopped_after)
    second = Bench(slow, repeats=3)
    second.sweep.points += json.loads(json.dumps(first.sweep.points))
    second.go()
    assert first.order + second.order == whole.order


@pytest.mark.parametrize("shared, ours, peer, reached", [
    (2048, 4, 1, True), (2048, 4, 2, False), (1024, 4, 2, True), (1024, 2, 2, False)])
def test_the_goal_is_judged_by_the_better_peer(shared, ours, peer, reached):
    highest = {OURS: ours, "vLLM": 1, "llama.cpp 1 slot": peer}
    bench = Bench(lambda task, attempt: 100.0 if task.rate <= highest[task.server] else 300.0,
                  servers=highest, shared=[shared]).go()
    judged = verdict(bench, shared)
    assert judged.reached is reached
    assert f"Goal {rate_points.GOALS[shared]:g}: {'reached' if reached else 'MISSED'}" in judged.text
    assert f"{ours / peer:.2f}" in judged.text


def test_the_verdict_tells_what_holds_whatever_the_peer_does_between_its_rates():
    assert "4.00 (vLLM); at least 2.00" in verdict(Bench(up_to(ours=4, vLLM=1)).go()).text


def test_a_curve_that_comes_back_counts_against_us_and_for_the_peer():
    def latency(task, attempt):
        broken = {OURS: [2.0], "vLLM": [1.0, 8.0]}[task.server]
        return 300.0 if task.rate in broken else 100.0
    judged = verdict(Bench(latency).go())
    assert judged.reached is False and "0.25 (vLLM)" in judged.text


def test_peers_that_hold_no_rate_are_taken_to_hold_nearly_the_lowest():
    assert verdict(Bench(up_to(ours=2, vLLM=0)).go()).reached is False
    judged = verdict(Bench(up_to(ours=4, vLLM=0)).go())
    assert judged.reached is True and "over 4.00" in judged.text


def test_a_peer_whose_limit_was_not_found_is_not_judged():
    judged = verdict(Bench(up_to(ours=8, vLLM=8)).go())
    assert judged.reached is None and "higher" in judged.text
    assert verdict(Bench(up_to(ours=8), servers=[OURS]).go()).reached is None


def test_ours_that_holds_nothing_misses_the_goal():
    assert verdict(Bench(up_to(ours=0, vLLM=2)).go()).reached is False


@pytest.fixture
def tool(monkeypatch, tmp_path, load_tool, signals):
    """rate_sweep with servers that are not started and latencies by (server, rate)."""
    program = load_tool("rate_sweep")
    checked, stopped = [], []
    (tmp_path / "refraind").write_text("built")

    class NoServer:
        pid = 1
        name = "none"

        def stop(self):
            os.kill(os.getpid(), signal.SIGINT)
            stopped.append(self)

        def __getattr__(self, _):
            return lambda *_: None

    class NoForeign:
        def __init__(self, pids):
            pass

        def share(self):
            return 0.0

    def run(*arguments, latency, most=1000):
        made = []

        def measure(options, server, task, folder):
            if len(made) == most:
                os.kill(os.getpid(), signal.SIGHUP)
            assert len(checked) >= 2
            made.append((task.server, task.rate))
            return {"model": "m", "runs": [run_of(latency(task, 0), rate=task.rate)]}

        monkeypatch.setattr(program, "measure", measure)
        monkeypatch.setattr(program, "make_servers",
                            lambda options: {OURS: NoServer(), "vLLM": NoServer()})
        monkeypatch.setattr(program.machine, "ForeignCpu", NoForeign)
        monkeypatch.setattr(program.machine, "wait_until_quiet", lambda: True)
        monkeypatch.setattr(sys, "argv", [
            "rate_sweep", "--model=m.gguf", f"--refraind={tmp_path / 'refraind'}", "--shared=2048",
            "--rates=1,2,4,8", "--repeats=1", f"--out={tmp_path / 'sweep'}", *arguments])
        return program.main(), made

    monkeypatch.setattr(program.answers, "check", checked.append)
    run.program, run.stopped = program, stopped
    return run


def test_exit_status_tells_whether_the_goal_was_reached(tool, capsys, tmp_path):
    assert tool(latency=up_to(ours=4, vLLM=1))[0] == 0
    assert "reached" in capsys.readouterr().out
    assert tool(f"--out={tmp_path / 'other'}", latency=up_to(ours=4, vLLM=2))[0] == 1
    printed = capsys.readouterr().out
    assert "MISSED" in printed and tool.program.current_commit() in printed


def test_a_wrong_answer_ends_it_before_anything_is_measured(tool, monkeypatch):
    def check(server):
        raise tool.program.load.RequestError("wrong")

    monkeypatch.setattr(tool.program.answers, "check", check)
    with pytest.raises(tool.program.load.RequestError, match="wrong"):
        tool(latency=lambda *_: pytest.fail("measured"))


def test_continues_an_interrupted_sweep_with_what_was_measured(tool, tmp_path):
    slow = up_to(ours=4, vLLM=1)
    status, first = tool(latency=slow, most=3)
    assert status == 130 and len(first) == 3 and len(tool.stopped) == 2
    assert len(json.loads((tmp_path / "sweep.json").read_text())["points"]) == 3
    status, second = tool("--continue", latency=slow)
    assert status == 0
    assert not set(first) & set(second)
    curve = json.loads((tmp_path / "sweep-2048-vLLM.json").read_text())
    assert [run["rate_per_s"] for run in curve["runs"]] == [1, 2, 4]


def test_never_overwrites_and_never_mixes_what_was_measured_otherwise(tool, tmp_path):
    slow = up_to(ours=4, vLLM=1)
    tool(latency=slow, most=1)
    with pytest.raises(tool.program.load.RequestError, match="--continue"):
        tool(latency=slow)
    with pytest.raises(tool.program.load.RequestError, match="output 64, not 32"):
        tool("--continue", "--output=32", latency=slow)
    (tmp_path / "refraind").write_text("built anew")
    with pytest.raises(tool.program.load.RequestError, match="refraind_sha256"):
        tool("--continue", latency=slow)


def test_every_server_asked_for_is_made(load_tool, monkeypatch):
    program = load_tool("rate_sweep")
    monkeypatch.setattr(sys, "argv", [
        "rate_sweep", "--model=m.gguf", "--variants=two_phase,int8,paged,off", "--llama-server=llama",
        "--llama-slots=1,4", "--vllm-python=python", "--vllm-model=folder", "--shared=1024,2048",
        "--set=kv_cache.memory_bytes=1"])
    made = program.make_servers(program.parse_arguments())
    assert list(made) == [OURS, "refrain int8", "refrain paged", "refrain off", "vLLM",
                          "llama.cpp 1 slot", "llama.cpp 4 slots"]
    slots = made["llama.cpp 4 slots"].command
    # Each slot has room for a whole request.
    assert slots[slots.index("-np") + 1] == "4"
    assert int(slots[slots.index("-c") + 1]) >= 4 * (2048 + 64 + 64)
    assert "kv_cache.prefix_cache=off" in made["refrain off"].command
    assert "backend.compute_dtype=int8" in made["refrain int8"].command
    assert all("kv_cache.memory_bytes=1" in made[name].command for name in list(made)[:4])


def test_a_program_that_is_not_there_is_no_missed_goal(tmp_path):
    done = subprocess.run(
        [sys.executable, pathlib.Path(rate_points.__file__).with_name("rate_sweep"), "--model=m.gguf",
         f"--refraind={tmp_path / 'none'}", f"--out={tmp_path / 'sweep'}"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == f"rate_sweep: [Errno 2] No such file or directory: '{tmp_path / 'none'}'\n"


@pytest.mark.parametrize("status, report", [(2, ""), (2, None), (2, '{"runs": []}'), (143, ""), (1, '{"runs": []}')])
def test_what_loadgen_could_not_measure_is_told_in_its_words(load_tool, tmp_path, status, report):
    program = load_tool("rate_sweep")
    loadgen = tmp_path / "loadgen"
    write = "" if report is None else f"printf '%s' '{report}' > {tmp_path / 'run.json'}\n"
    loadgen.write_text(f"#!/bin/sh\n{write}echo 'loadgen: a warm-up request failed' >&2\nexit {status}\n")
    loadgen.chmod(0o755)
    arguments = argparse.Namespace(loadgen=str(loadgen), duration_s=1, unique=1, output=1, drain_s=1,
                                   slo_ms=1)
    server = types.SimpleNamespace(name="vLLM", port=1, check_alive=lambda: None)
    task = types.SimpleNamespace(rate=1.0, seed=1, shared=1)
    if status == 1:
        assert program.measure(arguments, server, task, tmp_path) == {"runs": []}
        return
    with pytest.raises(program.load.RequestError, match="loadgen, vLLM: loadgen: a warm-up request failed"):
        program.measure(arguments, server, task, tmp_path)


def test_the_slo_is_half_where_there_are_matrix_tiles(load_tool):
    program = load_tool("rate_sweep")
    assert program.slo_ms(["avx512f", "amx_bf16"]) == 100
    assert program.slo_ms(["avx512f"]) == 200
