"""What tools/bench/compare makes of the times that it took: its claims are these ratios."""

import argparse
import collections
import io
import json
import os
import signal
import types

import pytest


@pytest.fixture
def compare(load_tool, monkeypatch):
    tool = load_tool("compare")
    monkeypatch.setattr(tool.machine, "wait_until_quiet", lambda: None)
    return tool


def reply(tool, sent_s, token_times_s, cached_tokens=0):
    return tool.load.Reply(sent_s, token_times_s, "x", 100, cached_tokens, len(token_times_s))


def quiet(monkeypatch, tool, shares):
    """Other programs take these shares of the CPU, one per look."""
    left = list(shares)
    monkeypatch.setattr(tool.machine, "ForeignCpu",
                        lambda pids: types.SimpleNamespace(share=lambda: left.pop(0)))


def peer_of(tool, name, **kind):
    return tool.Peer(name, types.SimpleNamespace(pid=1, port=2, model="m", name=name), **kind)


@pytest.mark.parametrize(("more_is_better", "expected"), [(True, "0.50"), (False, "0.33")])
def test_ratio_is_to_the_better_peer(compare, more_is_better, expected):
    values = {"refrain": [90, 30, 20], "llama-server": [60.0], "vllm": [5, 10, 15, 10, 10]}
    assert compare.ratio(values, more_is_better) == expected


def test_ratio_takes_no_setting_of_ours_for_a_peer(compare):
    assert compare.ratio({"refrain": [30], "refrain int8": [300], "vllm": [10]}, True) == "3.00"
    assert compare.ratio({"refrain": [30], "refrain off": [300]}, True) == "-"
    assert compare.ratio({"vllm": [10]}, True) == "-"


def test_table_has_every_value_under_its_heading(compare):
    results = compare.Results()
    results.add("prefill", "tok/s", True, "vllm", 1234.4)
    for value in (300, 100, 200):
        results.add("prefill", "tok/s", True, "refrain", value)
    results.add("wave", "s", False, "refrain", 0.5)
    lines = compare.table(results, ["refrain", "llama-server", "vllm"], ["a note"]).splitlines()
    assert "| workload | unit | refrain | llama-server | vllm | ours / better peer |" in lines
    assert "| prefill | tok/s | 200 [100 .. 300] | - | 1,234 | 0.16 |" in lines
    assert "| wave | s | 0.50 | - | - | - |" in lines
    assert lines[-1] == "- a note"


def test_pairs_compare_the_rounds_of_our_own_settings(compare):
    results = compare.Results()
    for own, other in ((1.0, 2.0), (2.0, 4.0), (4.0, 12.0)):
        results.add("wave", "s", False, "refrain", own)
        results.add("wave", "s", False, "refrain off", other)
        results.add("wave", "s", False, "vllm", 100.0)
    assert compare.pairs(results) == [
        "wave: refrain off takes 2.000 times as long (3 pairs, 95 % of medians in [2.000, 3.000])"]


def test_a_prefill_that_came_from_a_cache_is_none(compare):
    replies = [reply(compare, 0, [1.0], cached_tokens=64)]
    assert compare.uncached(replies) is replies
    with pytest.raises(compare.load.RequestError, match="65 of 100 prompt tokens"):
        compare.uncached([*replies, reply(compare, 0, [1.0], cached_tokens=65)])


def test_every_server_is_checked_before_anything_is_timed(compare, monkeypatch):
    class Up:
        process = object()

        def wait_until_up(self):
            pass

    def check(server):
        checked.append(server)
        if server is many:
            raise compare.load.RequestError("wrong")

    one, many, checked = Up(), Up(), []
    monkeypatch.setattr(compare.answers, "check", check)
    with pytest.raises(compare.load.RequestError, match="wrong"):
        compare.run([compare.Peer("vllm", one, many)],
                    argparse.Namespace(workloads=["single"], seed=1), None, compare.Results())
    assert checked == [one, many]


def test_what_is_not_shared_is_measured_when_nobody_disturbs_and_comes_from_no_cache(
        compare, monkeypatch):
    arguments = argparse.Namespace(max_foreign=0.1, disturbed=0)
    quiet(monkeypatch, compare, [0.5, 0])
    replies = iter([[reply(compare, 0.0, [9.0])], [reply(compare, 10.0, [10.5, 12.0])]])
    monkeypatch.setattr(compare.load, "complete", lambda *_: next(replies))
    results = compare.Results()
    compare.measure_unshared(peer_of(compare, "refrain"), arguments, compare.load.Prompts(1), results)
    assert [dict(values) for values in results.values.values()] == [{"refrain": [2.0]}]
    quiet(monkeypatch, compare, [0])
    monkeypatch.setattr(compare.load, "complete",
                        lambda *_: [reply(compare, 0.0, [1.0], cached_tokens=65)])
    with pytest.raises(compare.load.RequestError, match="no prefill"):
        compare.measure_unshared(peer_of(compare, "refrain"), arguments, compare.load.Prompts(1),
                                 results)


def test_a_disturbed_try_is_repeated_and_one_that_stays_so_is_told(compare, monkeypatch, capsys):
    arguments = argparse.Namespace(max_foreign=0.1, disturbed=0)
    tries = iter("abcdefgh")
    quiet(monkeypatch, compare, [0.5, 0.05])
    peer = peer_of(compare, "vllm")
    assert compare.undisturbed(peer, peer.one, arguments, lambda: next(tries)) == "b"
    assert arguments.disturbed == 0
    quiet(monkeypatch, compare, [0.5] * 4)
    assert compare.undisturbed(peer, peer.one, arguments, lambda: next(tries)) == "f"
    assert arguments.disturbed == 1
    assert capsys.readouterr().err.count("50 % of the CPU") == 5


def test_a_wave_lasts_from_the_first_request_to_the_last_token(compare, monkeypatch):
    arguments = argparse.Namespace(max_foreign=0.1, disturbed=0)
    quiet(monkeypatch, compare, [0, 0])
    waves = iter([[(10.0, [11.0, 14.0]), (10.5, [12.5, 13.0])], [(20.0, [20.5]), (20.0, [21.5])]])
    monkeypatch.setattr(compare.load, "complete",
                        lambda *_: [reply(compare, *times) for times in next(waves)])
    results = compare.Results()
    compare.measure_waves(peer_of(compare, "vllm"), arguments, "users", ["a", "b"], results)
    assert {row: dict(values) for (row, *_), values in results.values.items()} == {
        "users": {"vllm": [4.0]}, "users, mean time to first token": {"vllm": [1.5]},
        "users, again": {"vllm": [1.5]}, "users, again, mean time to first token": {"vllm": [1.0]}}


def test_throughput_of_streams_counts_the_slowest(compare, monkeypatch):
    arguments = argparse.Namespace(max_foreign=0.1, disturbed=0)
    quiet(monkeypatch, compare, [0, 0])
    monkeypatch.setattr(compare.load, "complete", lambda port, model, prompts, *_: [
        reply(compare, 5.0, [6.0, 7.0 + 8.0 * (i == 3)]) for i in range(len(prompts))])
    results = compare.Results()
    compare.measure_streams(peer_of(compare, "refrain"), arguments, compare.load.Prompts(1), results)
    rates = [values["refrain"] for (_, unit, _), values in results.values.items() if unit == "tok/s"]
    assert rates == [[16 * 64 / 10.0], [32 * 64 / 10.0]]


def test_a_server_of_one_slot_is_not_asked_for_many_users(compare, monkeypatch):
    arguments = argparse.Namespace(max_foreign=0.1, disturbed=0)
    quiet(monkeypatch, compare, [0, 0])
    asked = collections.Counter()

    def complete(port, model, prompts, tokens):
        asked[len(prompts)] += 1
        return [reply(compare, 0.0, [1.0])]

    monkeypatch.setattr(compare.load, "complete", complete)
    peer = peer_of(compare, "llama-server", serial=True)
    for users in (8, 9):
        compare.measure_waves(peer, arguments, "users", ["x"] * users, compare.Results())
    assert asked == {8: 2}


def test_scheduling_is_what_the_workload_added(compare, monkeypatch):
    looks = iter([(100.0, 50.0, 20.0), (104.0, 50.02, 20.01)])
    monkeypatch.setattr(compare, "step_seconds", lambda server: next(looks))
    results = compare.Results()
    calls = []
    for name in ("vLLM", "refrain"):
        compare.with_scheduling(lambda *arguments: calls.append(arguments[0].name), "shared",
                                peer_of(compare, name), None, None, results)
    assert calls == ["vLLM", "refrain"]
    (key, values), (planning, of_planning) = results.values.items()
    assert key == ("shared: scheduling, of the time of steps", "%", False)
    assert dict(values) == {"refrain": [pytest.approx(0.5)]}
    assert planning[0] == "shared: planning (plan, tree, attention plan), of the time of steps"
    assert dict(of_planning) == {"refrain": [pytest.approx(0.25)]}


def test_step_seconds_are_read_from_the_metrics(compare, monkeypatch):
    text = (b"# TYPE refrain_step_seconds_total counter\nrefrain_step_seconds_total 12.5\n"
            b'refrain_step_scheduling_seconds_total{model_name="m"} 0.25\n'
            b'refrain_step_planning_seconds_total{model_name="m"} 0.125\n')
    monkeypatch.setattr(compare.urllib.request, "urlopen", lambda *_, **__: io.BytesIO(text))
    server = types.SimpleNamespace(port=1, name="refrain")
    assert compare.step_seconds(server) == (12.5, 0.25, 0.125)
    text = b"refrain_step_seconds_total 12.5\n"
    with pytest.raises(compare.load.RequestError, match="refrain_step_scheduling_seconds_total"):
        compare.step_seconds(server)


@pytest.mark.parametrize("error, told, status", [
    (lambda tool: tool.load.RequestError("66 tokens came instead of 64"), "66 tokens came", 1),
    (lambda tool: ConnectionResetError(104, "Connection reset by peer"), "Connection reset", 1),
    (lambda tool: SystemExit(143), "interrupted", 143)])
def test_what_was_measured_before_an_error_is_printed_and_written(
        compare, monkeypatch, tmp_path, capsys, error, told, status):
    def run(peers, arguments, log_folder, results):
        for value in measured:
            results.add("wave", "s", False, "refrain", value)
        raise error(compare)

    peer = peer_of(compare, "refrain")
    peer.one.stop = lambda: stopped.append(peer)
    monkeypatch.setattr(compare, "run", run)
    monkeypatch.setattr(compare, "make_peers", lambda *_: [peer])
    monkeypatch.setattr(compare.interruption, "exit_on_signals", lambda: None)
    monkeypatch.setattr(compare.tempfile, "mkdtemp", lambda prefix: str(tmp_path / "logs"))
    out = tmp_path / "out.json"
    monkeypatch.setattr(compare.sys, "argv", ["compare", "--model=m", f"--json={out}"])

    measured, stopped = [], []
    assert compare.main() == status
    printed = capsys.readouterr()
    assert told in printed.err and str(tmp_path / "logs") in printed.err
    assert printed.out == "" and not out.exists() and stopped == [peer]

    measured = [2.0, 3.0]
    assert compare.main() == status
    printed = capsys.readouterr().out
    assert "| wave | s | 2.50 [2.00 .. 3.00] |" in printed
    assert "- it ended early, " in printed and told in printed.splitlines()[-1]
    assert json.loads(out.read_text()) == [
        {"workload": "wave", "unit": "s", "values": {"refrain": [2.0, 3.0]}}]


@pytest.mark.parametrize("first", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_second_signal_leaves_no_server_and_the_table_is_printed(
        compare, monkeypatch, tmp_path, capsys, signals, first):
    def interrupted(peers, arguments, log_folder, results):
        results.add("wave", "s", False, "refrain", 2.0)
        os.kill(os.getpid(), getattr(signal, first))

    def stop(server):
        os.kill(os.getpid(), signal.SIGINT)
        stopped.append(server)

    peers, stopped = [peer_of(compare, name) for name in ("refrain", "vllm", "llama.cpp")], []
    for peer in peers:
        peer.one.stop = lambda server=peer.one: stop(server)
    monkeypatch.setattr(compare, "run", interrupted)
    monkeypatch.setattr(compare, "make_peers", lambda *_: peers)
    monkeypatch.setattr(compare.tempfile, "mkdtemp", lambda prefix: str(tmp_path))
    monkeypatch.setattr(compare.sys, "argv", ["compare", "--model=m"])
    assert compare.main() == 128 + getattr(signal, first)
    assert stopped == [peer.one for peer in peers]
    assert "| wave | s | 2.00 |" in capsys.readouterr().out
