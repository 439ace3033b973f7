"""A tool that says that a goal was missed says so by its exit status as well."""

import sys

import pytest


@pytest.fixture
def overhead(monkeypatch, load_tool):
    """server_overhead with measured numbers put in its place: what is not named is as wanted."""
    tool = load_tool("server_overhead")

    def run(*arguments, tokens_per_s=30_000.0, spread_us=100.0, steps_us=100.0,
            grpc_spread_us=100.0, grpc_steps_us=100.0, probe_ms=1.0, running=1000) -> int:
        def measure(options, folder, kind, path):
            p99_us = {(tool.SPREAD, False): spread_us, (tool.STEPS, False): steps_us,
                      (tool.SPREAD, True): grpc_spread_us, (tool.STEPS, True): grpc_steps_us
                      }.get((kind, path in tool.GRPC_PATHS), 5_000.0)
            # One bucket that holds all values up to where the p99 is to be.
            return tool.Row(kind, path, 64, 640, tokens_per_s, [(p99_us / 0.99e6, 1000.0)], 1.0, 1.0,
                            1.0, 1.0, running if kind == tool.MANY_USERS else None)

        monkeypatch.setattr(tool, "measure", measure)
        monkeypatch.setattr(tool, "measure_grpc", measure)
        monkeypatch.setattr(tool, "measure_floors", lambda options: [])
        monkeypatch.setattr(tool, "share_within", lambda counted, limit: 0.99)
        monkeypatch.setattr(tool, "probe_queued",
                            lambda folder: [tool.Probe("/health", 120, [probe_ms])])
        monkeypatch.setattr(sys, "argv", ["server_overhead", "--no-build", *arguments])
        return tool.main()

    return run


def test_server_overhead_passes_where_all_is_reached(overhead, capsys):
    assert overhead() == 0
    assert "MISSED" not in capsys.readouterr().out


def test_server_overhead_judges_what_was_measured_alone(overhead, capsys):
    assert overhead("--rows=spread,1000 users", steps_us=1e6, probe_ms=1e6) == 0
    lines = capsys.readouterr().out
    assert lines.count("reached") == 2 and "tokens spread" in lines


@pytest.mark.parametrize("missed", [{"tokens_per_s": 19_999.0}, {"spread_us": 201.0},
                                    {"steps_us": 201.0}, {"grpc_spread_us": 201.0},
                                    {"grpc_steps_us": 201.0}, {"probe_ms": 20.0}, {"running": 999}])
def test_server_overhead_fails_where_one_goal_is_missed(overhead, capsys, missed):
    assert overhead(**missed) == 1
    assert capsys.readouterr().out.count("MISSED") == 1
