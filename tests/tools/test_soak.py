"""tools/testing/soak.py passes only where every kind of request was answered until the end."""

import argparse
import itertools
import time
import types

import pytest
import soak

KINDS = ("whole", "streamed", "abandoned", "wrong")


@pytest.fixture(name="run")
def run_with_clients_that_cost_nothing(monkeypatch):
    """Soaks for 0.3 s; `kind_of(kind, third)` answers a client's request, `third` being 1 or 2."""
    def run(kind_of):
        looked = []

        class Client:
            def __init__(self, port, seed):
                self._kinds = itertools.cycle(KINDS)

            def any(self):
                time.sleep(0.001)
                return kind_of(next(self._kinds), 1 + len(looked))

            def whole(self):
                pass

        monkeypatch.setattr(soak, "Client", Client)
        monkeypatch.setattr(soak, "wait_until_up", lambda *_: None)
        monkeypatch.setattr(soak, "metric", lambda *_: 1.0)
        monkeypatch.setattr(soak, "resident_mib", lambda pid: looked.append(pid) or 100.0)
        daemon = types.SimpleNamespace(pid=1, poll=lambda: None, terminate=lambda: None,
                                       wait=lambda timeout_s: 0)
        return soak.Soak(daemon, 1, argparse.Namespace(seconds=0.3, seed=1)).run()

    return run


def test_counts_what_was_asked(run):
    told = run(lambda kind, third: kind)
    assert all(f" {kind}" in told for kind in KINDS) and "resident 100 -> 100 MiB" in told


# As where an answer is of another JSON type: no exception that anybody thought of.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("third", [1, 2])
def test_a_client_that_dies_is_a_failure(run, third):
    def kind_of(kind, now):
        return kind if now < third else len(None)

    with pytest.raises(soak.Failure, match="TypeError: object of type 'NoneType' has no len"):
        run(kind_of)


@pytest.mark.parametrize("third", [1, 2])
def test_a_kind_that_was_never_answered_is_a_failure(run, third):
    with pytest.raises(soak.Failure, match="no request of the kind 'wrong'"):
        run(lambda kind, now: "whole" if (kind, now) == ("wrong", third) else kind)
