"""For programs that start servers: however they end, no server is left behind."""

import contextlib
import ctypes
import signal
import sys

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def stop_with_parent() -> None:
    """In the child, as preexec_fn: SIGTERM when the thread that started it is gone, however it went."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


def exit_on_signals() -> None:
    """The first of SIGNALS raises SystemExit (128 and its number) in the main thread, which calls this.

    Those behind it are ignored: they would end what stops the servers. SIGHUP stays ignored under nohup.
    """
    for number in SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _exit)


def _exit(number, _frame) -> None:
    for later in SIGNALS:
        signal.signal(later, signal.SIG_IGN)
    sys.exit(128 + number)


@contextlib.contextmanager
def signals_ignored():
    """For what must come to its end; in the main thread."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
