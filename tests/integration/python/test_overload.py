"""Deadlines, clients that go away, a full queue."""

import contextlib
import socket
import threading
import time

import httpx
import pytest


@pytest.fixture
def busy(start_daemon):
    """A daemon with one slot, which a stream takes until the block ends."""

    @contextlib.contextmanager
    def start(*settings: str):
        daemon = start_daemon("--set=engine.max_sequences=1",
                              *[f"--set={one}" for one in settings]).wait_until_ready()
        with httpx.stream("POST", f"{daemon.url}/v1/completions", timeout=60,
                          json={"prompt": "Go", "max_tokens": 1900, "ignore_eos": True,
                                "stream": True}) as running:
            lines = running.iter_lines()  # kept: without it the stream is closed
            next(lines)
            yield daemon

    return start


def complete(daemon, headers=None, **fields):
    return httpx.post(f"{daemon.url}/v1/completions", timeout=60, headers=headers,
                      json={"prompt": "Hello", "max_tokens": 2, **fields})


def send(daemon, body: str) -> socket.socket:
    port = int(daemon.url.rsplit(":", 1)[1])
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                   f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
    return client


def test_a_deadline_holds_while_the_request_is_queued(busy):
    with busy() as daemon:
        for answer_of in (lambda: complete(daemon, timeout=0.1),
                          lambda: complete(daemon, headers={"X-Request-Timeout": "0.1"}),
                          lambda: complete(daemon, timeout=50,
                                           headers={"X-Request-Timeout": "0.1"})):
            begin = time.monotonic()
            answer = answer_of()
            assert answer.status_code == 408
            assert answer.json()["error"]["code"] == "timeout"
            assert 0.1 <= time.monotonic() - begin < 5


@pytest.mark.parametrize("fields, headers", [
    ({"timeout": 0}, {}), ({"timeout": -1}, {}), ({"timeout": "soon"}, {}),
    ({}, {"X-Request-Timeout": "soon"}), ({}, {"X-Request-Timeout": "0"}),
    ({}, {"X-Request-Timeout": "1e99"}), ({}, {"X-Request-Timeout": ""}),
])
def test_wrong_deadlines_are_refused(daemon, fields, headers):
    answer = complete(daemon, headers=headers, **fields)
    assert answer.status_code == 400
    assert "timeout" in answer.json()["error"]["message"].lower()


def test_a_full_queue_says_when_to_come_back(busy):
    with busy("limits.queued_requests=1") as daemon:
        waiting = send(daemon, '{"prompt":"a","max_tokens":1}')
        daemon.wait_for_queued(1)
        deadline = time.monotonic() + 10
        while (answer := complete(daemon, timeout=0.1)).status_code != 429:
            assert time.monotonic() < deadline
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert answer.json()["error"]["type"] == "rate_limit_error"
        assert answer.json()["error"]["code"] == "overloaded"
        waiting.close()  # gives its place in the queue back
        while complete(daemon, timeout=0.1).status_code == 429:
            assert time.monotonic() < deadline


def test_the_best_priority_is_served_first(busy):
    ends = []

    def ask(daemon, priority: int):
        assert complete(daemon, priority=priority, max_tokens=30).status_code == 200
        ends.append(priority)

    with busy("engine.policy=priority") as daemon:
        threads = [threading.Thread(target=ask, args=(daemon, priority)) for priority in (5, 0, 3)]
        for number, thread in enumerate(threads, 1):
            thread.start()
            daemon.wait_for_queued(number)
    for thread in threads:
        thread.join(60)
    assert ends == [0, 3, 5]  # lower comes first


@pytest.mark.parametrize("stage, body", [
    ("computed_prompt_tokens",
     '{"prompt":"' + "many words make a long prompt " * 310 + '","max_tokens":100}'),
    ("generated_tokens", '{"prompt":"Go","max_tokens":1900,"ignore_eos":true}'),
    ("generated_tokens", '{"prompt":"Go","max_tokens":1900,"ignore_eos":true,"stream":true}'),
], ids=["prefill", "decode", "stream"])
def test_who_goes_away_frees_the_only_slot(start_daemon, stage, body):
    # Small steps, so that a prompt takes many.
    daemon = start_daemon("--set=engine.max_sequences=1", "--set=engine.step_token_budget=8",
                          "--set=server.debug=on").wait_until_ready()
    with httpx.Client(base_url=daemon.url, timeout=60) as http:
        def engine():
            return http.get("/debug/cache?limit=1").json()["engine"]

        assert engine()[stage] == 0
        gone = send(daemon, body)
        deadline = time.monotonic() + 60
        while engine()[stage] == 0:
            assert time.monotonic() < deadline
        gone.close()
        assert complete(daemon).status_code == 200
        done = engine()
    # Of 1,900 tokens most were never computed.
    assert done["computed_prompt_tokens"] + done["generated_tokens"] < 1000


@pytest.mark.no_tsan  # what runs has to end within the drain's limit
def test_requests_during_a_drain_are_sent_elsewhere(start_daemon):
    daemon = start_daemon("--set=limits.drain_s=120").wait_until_ready()
    texts = []

    def run():
        with httpx.stream("POST", f"{daemon.url}/v1/completions", timeout=60,
                          json={"prompt": "Go", "max_tokens": 600, "ignore_eos": True,
                                "stream": True}) as running:
            started.set()
            texts.append("".join(running.iter_text()))

    started = threading.Event()
    with httpx.Client(base_url=daemon.url) as http:
        assert http.get("/ready").status_code == 200
        thread = threading.Thread(target=run)
        thread.start()
        assert started.wait(30)
        daemon.process.terminate()
        deadline = time.monotonic() + 10
        while http.get("/ready").status_code != 503:
            assert time.monotonic() < deadline
        assert http.get("/health").status_code == 200
        # What comes in the moment between the two is answered.
        request = {"prompt": "a", "max_tokens": 1}
        while (refused := http.post("/v1/completions", json=request)).status_code != 503:
            assert refused.status_code == 200
            assert time.monotonic() < deadline
        assert 1 <= int(refused.headers["retry-after"]) <= 60
    thread.join()
    assert texts[0].endswith("data: [DONE]\n\n")
    # Not stop(): a second SIGTERM, while it ends, would stop it at once.
    assert daemon.process.wait(130) == 0, daemon.log.read_text(errors="replace")
