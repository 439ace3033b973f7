"""Every limit of the configuration holds in the daemon that it is set for, over HTTP and gRPC."""

import concurrent.futures
import contextlib
import json
import pathlib
import re
import select
import socket
import time

import grpc
import httpx
import metrics_page
import pytest

from access_tools import bearer, make_key
from conftest import Daemon
from grpc_services import Services, address
from waiting import wait_until

pytestmark = pytest.mark.no_tsan

GRPC = ("--grpc-listen", "127.0.0.1:0")
LONG = {"prompt": "Go", "max_tokens": 1900, "ignore_eos": True, "stream": True}


@pytest.fixture
def limited(start_daemon):
    """Starts a daemon with these settings of `limits.` and others by their whole name."""

    def start(*arguments: str, **limits):
        settings = [f"--set=limits.{name}={value}" for name, value in limits.items()]
        return start_daemon(*GRPC, *settings, *arguments).wait_until_ready()

    return start


@pytest.fixture
def limited_fake(daemon_arguments, tmp_path):
    """The same of the daemon with an engine that repeats its prompt; one for each test."""
    started = []

    def start(**limits):
        binary = pathlib.Path(daemon_arguments[0]).absolute().parents[1] / "tests/server/refraind_fake"
        settings = [f"--set=limits.{name}={value}" for name, value in limits.items()]
        started.append(Daemon(str(binary), "fake", tmp_path, *GRPC, *settings).wait_until_ready())
        return started[0]

    yield start
    for daemon in started:
        daemon.stop()


@contextlib.contextmanager
def large_answer(daemon, receive_buffer: int, **fields):
    """The socket on which 13 MB are to come, as a stream 28, of tokens that take 20 MB."""
    host, port = daemon.url.removeprefix("http://").split(":")
    body = json.dumps({"prompt": "a" * 1000, "echo": True, "logprobs": 20, "max_tokens": 2, "n": 64,
                       **fields})
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        client.settimeout(30)
        client.connect((host, int(port)))
        client.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                       f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        yield client


@contextlib.contextmanager
def services_of(daemon, key: str | None = None):
    """`key`: for reflection, where keys are asked for."""
    metadata = (("authorization", f"Bearer {key}"),) if key else ()
    with grpc.insecure_channel(address(daemon)) as channel:
        yield Services(channel, metadata)


@contextlib.contextmanager
def running(daemon, key: str | None = None):
    """A stream that goes on until the block ends."""
    with httpx.stream("POST", f"{daemon.url}/v1/completions", timeout=60, json=LONG,
                      headers=bearer(key) if key else None) as stream:
        lines = stream.iter_lines()  # kept: without it the stream is closed
        next(lines)
        yield


def complete(daemon, key: str | None = None, **fields) -> httpx.Response:
    return httpx.post(f"{daemon.url}/v1/completions", timeout=60,
                      headers=bearer(key) if key else None,
                      json={"prompt": "Hello", "max_tokens": 2, **fields})


def generate(services, key: str | None = None, timeout=60, text="Hello", max_tokens=2, **fields):
    """What a gRPC call ends with."""
    metadata = (("authorization", f"Bearer {key}"),) if key else ()
    try:
        list(services("Inference/Generate", timeout=timeout, metadata=metadata,
                      text={"text": text},
                      params={"stop": {"max_tokens": max_tokens, "ignore_eos": True}, **fields}))
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def expect_refused_for_now(answer: httpx.Response, code: str) -> None:
    assert answer.status_code == 429, answer.text
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", code)
    assert int(answer.headers["retry-after"]) >= 1


def test_sizes_of_requests(limited):
    daemon = limited(body_bytes="16KiB", header_bytes="4KiB", n=3)
    url = f"{daemon.url}/v1/completions"
    edge = b'{"prompt":"Hello","max_tokens":1}'
    assert httpx.post(url, content=edge.ljust(16384)).status_code == 200
    assert httpx.post(url, content=edge.ljust(16385)).status_code == 413
    assert httpx.get(f"{daemon.url}/version", headers={"x": "a" * 3000}).status_code == 200
    assert httpx.get(f"{daemon.url}/version", headers={"x": "a" * 4096}).status_code == 431
    assert complete(daemon, n=3).status_code == 200
    refused = complete(daemon, n=4)
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "n"
    with services_of(daemon) as services:
        assert generate(services, text="a " * 100) == grpc.StatusCode.OK
        assert generate(services, text="a " * 9000) == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert generate(services, n=3) == grpc.StatusCode.OK
        assert generate(services, n=4) == grpc.StatusCode.INVALID_ARGUMENT
    with grpc.insecure_channel(address(daemon)) as channel:
        with pytest.raises(grpc.RpcError):
            Services(channel)("Inference/Models", metadata=(("x", "a" * 9000),))


def test_bytes_of_all_bodies(limited):
    daemon = limited(bodies_bytes="64KiB", body_bytes="64KiB")
    body = b'{"prompt":"Hello","max_tokens":1}'.ljust(40000)
    host, port = daemon.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as slow:
        slow.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                     b"Content-Length: 40000\r\n\r\n" + body[:30000])
        deadline = time.monotonic() + 10
        while (answer := httpx.post(f"{daemon.url}/v1/completions", content=body)).status_code == 200:
            assert time.monotonic() < deadline
        assert answer.status_code == 503
        slow.sendall(body[30000:])
        assert slow.recv(100).startswith(b"HTTP/1.1 200 ")
    wait_until(lambda: httpx.post(f"{daemon.url}/v1/completions", content=body).status_code == 200)


def test_seconds_of_a_request(limited):
    daemon = limited(request_timeout_s=0.3)
    begin = time.monotonic()
    assert complete(daemon, max_tokens=1900, ignore_eos=True).status_code == 408
    assert 0.3 <= time.monotonic() - begin < 5
    with services_of(daemon) as services:
        assert generate(services, max_tokens=1900) == grpc.StatusCode.DEADLINE_EXCEEDED


def test_requests_of_a_key(limited, daemon_arguments, tmp_path):
    one, other = (make_key(daemon_arguments[0], tmp_path / "keys", name) for name in ("a", "b"))
    daemon = limited(f"--set=auth.keys_file={tmp_path / 'keys'}", per_key_requests=1)
    with running(daemon, one), services_of(daemon, one) as services:
        expect_refused_for_now(complete(daemon, one), "rate_limit_exceeded")
        assert generate(services, one) == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert complete(daemon, other).status_code == 200
        assert generate(services, other) == grpc.StatusCode.OK
    wait_until(lambda: complete(daemon, one).status_code == 200)


def test_a_key_may_ask_again_when_it_has_its_answer(limited, daemon_arguments, tmp_path):
    key = make_key(daemon_arguments[0], tmp_path / "keys", "a")
    daemon = limited(f"--set=auth.keys_file={tmp_path / 'keys'}", per_key_requests=1)
    metadata = (("authorization", f"Bearer {key}"),)
    with (services_of(daemon, key) as services,
          httpx.Client(base_url=daemon.url, timeout=60, headers=bearer(key)) as http):
        # A second of computing: in a few of the rounds.
        scored = ("/v1/completions", {"prompt": [1000] * 500, "max_tokens": 0, "echo": True,
                                      "logprobs": 5})
        for round_number in range(30):
            for path, body in (("/v1/completions", {"prompt": "Hello", "max_tokens": 1}),
                               ("/v1/completions",
                                {"prompt": "Hello", "max_tokens": 1, "stream": True}),
                               ("/tokenize", {"prompt": "Hello"}),
                               ("/detokenize", {"tokens": [1000]}),
                               ("/tokenize", {"prompt": "word " * 20000}),
                               ("/detokenize", {"tokens": [1000] * 100000}),
                               *([scored] if round_number % 5 == 0 else [])):
                answer = http.post(path, json=body)
                assert answer.status_code == 200, f"{path}: {answer.text}"
            timed_out = http.post("/v1/completions",
                                  json={"prompt": "Hello", "max_tokens": 1900, "timeout": 0.001})
            assert timed_out.status_code == 408, timed_out.text
            assert generate(services, key) == grpc.StatusCode.OK
            assert services("Inference/Tokenize", text="Hello",
                            metadata=metadata).token_ids
            assert services("Inference/Detokenize", token_ids=[1000],
                            metadata=metadata).text


def test_tokens_of_a_key(limited, daemon_arguments, tmp_path):
    one, other = (make_key(daemon_arguments[0], tmp_path / "keys", name) for name in ("a", "b"))
    daemon = limited(f"--set=auth.keys_file={tmp_path / 'keys'}", per_key_tokens_per_s=5)
    assert complete(daemon, one, max_tokens=40, ignore_eos=True).status_code == 200
    expect_refused_for_now(complete(daemon, one), "rate_limit_exceeded")
    with services_of(daemon, one) as services:
        assert generate(services, one) == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert complete(daemon, other).status_code == 200


def test_tokens_of_the_queue(limited):
    daemon = limited("--set=engine.max_sequences=1", queued_tokens=100)
    ids = list(range(1000, 1060))
    host, port = daemon.url.removeprefix("http://").split(":")

    def ask() -> socket.socket:
        client = socket.create_connection((host, int(port)))
        body = f'{{"prompt":{ids},"max_tokens":1}}'
        client.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                       f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        return client

    with running(daemon), httpx.Client(base_url=daemon.url) as http:
        deadline = time.monotonic() + 10
        with contextlib.ExitStack() as sockets:
            waiting = sockets.enter_context(ask())
            daemon.wait_for_queued(1)
            while (answer := complete(daemon, prompt=ids, timeout=0.1)).status_code == 408:
                assert time.monotonic() < deadline
                if select.select([waiting], [], [], 0)[0]:  # it was second, and refused
                    waiting = sockets.enter_context(ask())
            expect_refused_for_now(answer, "overloaded")
            assert complete(daemon, prompt=ids[:30], timeout=0.1).status_code == 408  # fits
        assert http.get("/health").status_code == 200


def test_calls_of_a_grpc_connection(limited):
    daemon = limited(grpc_calls_per_connection=1)
    with services_of(daemon) as services, services_of(daemon) as others:
        assert generate(services) == grpc.StatusCode.OK
        endless = services("Inference/Generate", text={"text": "Go"},
                           params={"stop": {"max_tokens": 1900, "ignore_eos": True}})
        next(endless)
        assert generate(services, timeout=0.5) == grpc.StatusCode.DEADLINE_EXCEEDED
        endless.cancel()
        assert generate(services) == grpc.StatusCode.OK


def test_age_of_a_grpc_connection(limited):
    daemon = limited(grpc_age_s=0.5)
    states = []
    with grpc.insecure_channel(address(daemon)) as channel:
        channel.subscribe(states.append)
        services = Services(channel)
        assert generate(services) == grpc.StatusCode.OK
        # States are told some time later.
        wait_until(lambda: grpc.ChannelConnectivity.READY in states
                   and states[-1] == grpc.ChannelConnectivity.IDLE, told=lambda: states)
        assert generate(services) == grpc.StatusCode.OK  # over a new connection


def test_bytes_of_answers_that_nobody_reads(limited_fake):
    daemon = limited_fake(unread_bytes="1MiB")
    with large_answer(daemon, 4096, stream=True) as client:
        wait_until(lambda: metrics_page.total(metrics_page.samples(httpx.get(
            f"{daemon.url}/metrics").text), "refrain_unread_answers_cut_total") == 1)
        got = b"".join(iter(lambda: client.recv(65536), b""))
        assert b'"code":"answer_not_read"' in got and b"[DONE]" not in got


@pytest.mark.soak
def test_bytes_per_second_of_an_answer(limited_fake):
    """Read at some 40 KB/s, far above the default; the limit counts from 120 s on."""
    daemon = limited_fake(answer_bytes_per_s="1GiB")
    with large_answer(daemon, 1 << 18) as client:
        begin, got = time.monotonic(), client.recv(4096)
        length = int(re.search(rb"(?i)content-length: ([0-9]+)", got).group(1))
        left = length - len(got)
        with contextlib.suppress(ConnectionError):
            while (part := client.recv(4096)) and time.monotonic() - begin < 180:
                left -= len(part)
                time.sleep(0.1)
        assert 100 < time.monotonic() - begin < 180
        assert left > length // 3


def test_memory_of_grpc(limited_fake):
    """Eight messages of 12 MiB at once, each on a connection of its own."""
    daemon = limited_fake(grpc_memory_bytes="16MiB")
    own = [("grpc.use_local_subchannel_pool", 1)]

    def send(_number) -> grpc.StatusCode:
        with grpc.insecure_channel(address(daemon), options=own) as channel:
            return generate(Services(channel), text="x" * (12 << 20))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert grpc.StatusCode.RESOURCE_EXHAUSTED in pool.map(send, range(8))
    with services_of(daemon) as services:
        wait_until(lambda: generate(services) == grpc.StatusCode.OK)
