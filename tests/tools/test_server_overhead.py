"""tools/bench/server_overhead: what it says of streams at once, and of probes beside a queue."""

import contextlib
import os
import signal
import subprocess
import types

import pytest


@pytest.fixture
def probe(load_tool, monkeypatch):
    """Probes a server that says so many requests wait, with a client that ended, or has not."""
    tool = load_tool("server_overhead")

    def run(waiting, status=None, answered=200):
        left = iter(waiting)
        client = types.SimpleNamespace(returncode=status, poll=lambda: status)
        monkeypatch.setattr(tool, "PROBES", len(waiting))
        monkeypatch.setattr(tool.time, "sleep", lambda _: None)
        monkeypatch.setattr(tool, "load_client", lambda *_: contextlib.nullcontext(client))
        monkeypatch.setattr(tool, "running", lambda *_: contextlib.nullcontext())
        monkeypatch.setattr(tool, "fetch", lambda server, path: (
            answered, f'vllm:num_requests_waiting{{engine="0"}} {next(left)}\n' if path == "/metrics"
            else ""))
        return [verdict.reached for verdict in tool.verdicts([], tool.probe_queued(None))]

    run.error = tool.servers.load.RequestError
    return run


def test_probes_count_beside_100_waiting_requests_and_not_beside_fewer(probe):
    assert probe([120, 100, 110]) == [True, True]
    assert probe([120, 99, 110]) == [True, False]


@pytest.mark.parametrize("status", [0, 1])
def test_a_load_that_ended_before_the_probes_is_told(probe, status):
    with pytest.raises(probe.error, match=f"with status {status}"):
        probe([120, 110], status)


@pytest.mark.parametrize("answered", [404, 503])
def test_a_probe_that_is_refused_is_none(probe, answered):
    with pytest.raises(probe.error, match=f"/health answered {answered}"):
        probe([120, 110], answered=answered)


@pytest.mark.parametrize("why", ["not up", "not ready"])
def test_a_server_that_does_not_come_up_is_stopped(load_tool, monkeypatch, tmp_path, why):
    def wait_until_up(server):
        if why == "not up":
            raise tool.servers.load.RequestError(why)

    tool, stopped = load_tool("server_overhead"), []
    monkeypatch.setattr(tool.servers.Server, "spawn", lambda *_: None)
    monkeypatch.setattr(tool.servers.Server, "wait_until_up", wait_until_up)
    monkeypatch.setattr(tool.servers.Server, "stop", lambda server: stopped.append(server.name))
    monkeypatch.setattr(tool, "fetch", lambda *_: (503, "not ready"))
    monkeypatch.setattr(tool, "READY_TIMEOUT_S", 0.01)
    with pytest.raises(tool.servers.load.RequestError, match=f"{why}|/ready answered 503"):
        with tool.running("refraind_fake", "free", tmp_path, []):
            pytest.fail("it is not ready")
    assert stopped == ["refraind_fake"]


@pytest.mark.parametrize("status", [0, 1])
def test_what_sends_take_alone_is_told_for_each_number_of_threads(load_tool, monkeypatch, status):
    tool, asked = load_tool("server_overhead"), []

    def run(command, **_):
        asked.append(command[1:])
        return types.SimpleNamespace(returncode=status, stdout=(
            '{"p50_us":160.4,"p99_us":557.2,"within_200_us":0.7084}'))

    monkeypatch.setattr(tool.subprocess, "run", run)
    monkeypatch.setattr(tool.os, "cpu_count", lambda: 2)
    options = types.SimpleNamespace(rate=10_000, users=64, seconds=4)
    if status != 0:
        with pytest.raises(tool.servers.load.RequestError, match="send_floor ended with 1"):
            tool.measure_floors(options)
        return
    assert [str(floor) for floor in tool.measure_floors(options)] == [
        f"Sends alone, {threads} thread{'s'[:threads - 1]}: p50 160 us, p99 557 us, 70.84% within "
        "200 us." for threads in (1, 2)]
    assert asked == [["--connections=64", f"--threads={threads}", "--steps-per-s=156",
                      "--steps=624"] for threads in (1, 2)]


# What of the load client's requests runs, the server knows.
@pytest.mark.parametrize("gauge, ends_at_look, most", [
    ([7, 64, 8], None, 64), ([64, 7, 8], None, 64), ([64, 99], 1, 64), ([64], 0, 0)])
def test_what_runs_at_once_is_told_by_the_server_while_the_load_lasts(load_tool, monkeypatch, gauge,
                                                                      ends_at_look, most):
    tool, waits, pages = load_tool("server_overhead"), [], iter(gauge)

    def wait(timeout):
        waits.append(timeout)
        if len(waits) - 1 != ends_at_look:
            raise subprocess.TimeoutExpired("stream_check", timeout)

    monkeypatch.setattr(tool, "fetch", lambda server, path: (
        200, f'vllm:num_requests_running{{engine="0"}} {next(pages)}\n'))
    assert tool.most_running(None, types.SimpleNamespace(wait=wait), 10) == most


# The server would drain its streams first.
def test_an_interruption_ends_the_load_before_the_server(load_tool, monkeypatch, tmp_path, signals):
    tool, ended = load_tool("server_overhead"), []

    @contextlib.contextmanager
    def noted(name, value):
        try:
            yield value
        finally:
            ended.append(name)

    client = types.SimpleNamespace(communicate=lambda: os.kill(os.getpid(), signal.SIGTERM))
    monkeypatch.setattr(tool, "running", lambda *_: noted("server", None))
    monkeypatch.setattr(tool, "load_client", lambda *_: noted("client", client))
    monkeypatch.setattr(tool.sys, "argv", ["server_overhead", "--no-build", "--rows=steps"])
    with pytest.raises(SystemExit) as end:
        tool.main()
    assert end.value.code == 128 + signal.SIGTERM and ended == ["client", "server"]
