"""Ports for programs that take a port that they are told."""

import random
import socket

# Below those that the system gives to whoever asks for any, and to connections: between the choice
# here and the program's start nobody gets one by accident.
FIRST, LAST = 10_000, 32_000


def free_pair() -> int:
    """The first of two ports in a row that nobody has (tools/run takes the second for gRPC)."""
    return _free(2)


def free_port() -> int:
    return _free(1)


def _free(in_a_row: int) -> int:
    chooser = random.SystemRandom()
    while True:
        port = chooser.randrange(FIRST, LAST, 2)
        try:
            for one in range(port, port + in_a_row):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", one))
        except OSError:
            continue
        return port
