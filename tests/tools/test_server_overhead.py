"""tools/bench/server_overhead: when it says that probes were answered beside a queue."""

import types

import pytest


@pytest.fixture
def probe(load_tool, monkeypatch):
    """Probes a server that says so many requests wait, with a client that ended, or has not."""
    tool = load_tool("server_overhead")

    def run(waiting, status=None, answered=200):
        left = iter(waiting)
        client = types.SimpleNamespace(returncode=status, poll=lambda: status, kill=lambda: None,
                                       communicate=lambda: None)
        monkeypatch.setattr(tool, "PROBES", len(waiting))
        monkeypatch.setattr(tool.time, "sleep", lambda _: None)
        monkeypatch.setattr(tool, "load_client", lambda *_: client)
        monkeypatch.setattr(tool, "start",
                            lambda *_: types.SimpleNamespace(stop=lambda: None))
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
