"""Waiting for what comes by itself."""

import time
from typing import Any, Callable


def wait_until(reached: Callable[[], Any], within_s: float = 60,
               told: Callable[[], Any] = lambda: "not in time") -> None:
    """Looks again and again; fails with what is `told` when it is not reached in time."""
    deadline = time.monotonic() + within_s
    while not reached():
        assert time.monotonic() < deadline, told()
        time.sleep(0.01)
