"""What the benchmarks know of the machine that they run on."""

import machine
import pytest


class Clock:
    """Time that passes in sleeps alone, and cores that are busy for a share of each."""

    def __init__(self, shares):
        self.now_s, self.busy_s, self.shares = 100.0, 7.0, iter(shares)

    def sleep(self, seconds):
        self.now_s += seconds
        self.busy_s += seconds * next(self.shares) * 4


@pytest.mark.parametrize("shares, quiet_after_s", [
    ([0.0], 0.5), ([0.5, 0.03, 0.9], 1.0), ([0.9, 0.05, 0.041, 0.01], 2.0), ([0.3] * 100, None)])
def test_waiting_ends_with_the_first_quiet_window(monkeypatch, shares, quiet_after_s):
    clock = Clock(shares)
    monkeypatch.setattr(machine.time, "monotonic", lambda: clock.now_s)
    monkeypatch.setattr(machine.time, "sleep", clock.sleep)
    monkeypatch.setattr(machine, "_busy_s", lambda: clock.busy_s)
    monkeypatch.setattr(machine.os, "cpu_count", lambda: 4)
    assert machine.wait_until_quiet() == (quiet_after_s is not None)
    assert clock.now_s - 100 == pytest.approx(quiet_after_s or 30)
