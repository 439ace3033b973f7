"""The end of a drain beside a gRPC client that no longer reads from its socket. Client libraries read
always, so HTTP/2 is spoken by hand."""

import pathlib
import socket
import struct
import time

import grpc
import pytest
from conftest import Daemon
from grpc_services import Services, address
from waiting import wait_until

DATA, HEADERS, SETTINGS, WINDOW_UPDATE = 0, 1, 4, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW_SIZE, MOST = 4, 0x7FFFFFFF
CALLS, TOKENS = 800, 3000
MANY = 1_000_000  # bytes that wait in the daemon's socket, which takes some 2 MB


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def unsent_bytes(port: int) -> int:
    """What the daemon's sockets of this port hold that their clients have not taken."""
    rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(int(row[4].split(":")[0], 16) for row in rows
               if int(row[1].split(":")[1], 16) == port and row[3] == "01")


def is_full(port: int) -> bool:
    before = unsent_bytes(port)
    time.sleep(0.5)
    return before > MANY and unsent_bytes(port) == before


@pytest.mark.no_tsan
def test_who_does_not_read_does_not_hold_the_end_up(daemon_arguments, tmp_path):
    outputs = pathlib.Path(daemon_arguments[0]).absolute().parents[1]
    daemon = Daemon(str(outputs / "tests/server/refraind_fake"), "fake", tmp_path,
                    "--grpc-listen", "127.0.0.1:0", "--set", "limits.drain_s=0.5").wait_until_ready()
    host, port = address(daemon).rsplit(":", 1)
    with grpc.insecure_channel(address(daemon)) as channel:
        call = Services(channel).message(
            "GenerateRequest", text={"text": "[[delay_ms=20]]" + "a" * 1000},
            params={"stop": {"max_tokens": TOKENS, "ignore_eos": True}}).SerializeToString()
    head = b"".join(literal(name, value) for name, value in [
        (b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"x"), (b"te", b"trailers"),
        (b":path", b"/refrain.v1.Inference/Generate"), (b"content-type", b"application/grpc")])
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((host, int(port)))
        client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                       + frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, MOST))
                       + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", MOST - 65535)))
        client.recv(9)  # the daemon's settings begin; nothing is read from here on
        client.sendall(frame(SETTINGS, ACK, 0, b""))
        for stream in range(1, 2 * CALLS, 2):
            client.sendall(frame(HEADERS, END_HEADERS, stream, head) + frame(
                DATA, END_STREAM, stream, b"\0" + struct.pack(">I", len(call)) + call))
        wait_until(lambda: is_full(int(port)))
        begin = time.monotonic()
        daemon.process.terminate()
        assert daemon.process.wait(60) == 3  # requests were left
        took = time.monotonic() - begin
    log = daemon.log.read_text(errors="replace")
    assert "takes too long" not in log, f"{took:.1f} s\n{log}"
