"""Two daemons behind a balancer are replaced one after the other under load."""

import contextlib
import threading
import time

import httpx


class Balancer:
    """What a load balancer does: it sends requests to those whose /ready says 200, and asks
    another one when it is told 503 or is not let in."""

    def __init__(self):
        self.urls: list[str] = []
        self.refusals = 0

    def stream(self, body: dict) -> str:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for url in list(self.urls):
                text = self._ask(url, body)
                if text is not None:
                    return text
            time.sleep(0.02)
        raise TimeoutError("no daemon took the request")

    def _ask(self, url: str, body: dict) -> str | None:
        with contextlib.ExitStack() as stack:
            try:
                if httpx.get(f"{url}/ready", timeout=5).status_code != 200:
                    return None
                answer = stack.enter_context(
                    httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=60))
            except httpx.TransportError:
                return None  # it listens no more: no answer has begun
            if answer.status_code == 503:
                assert "retry-after" in answer.headers
                self.refusals += 1
                return None
            assert answer.status_code == 200
            return "".join(answer.iter_text())


def test_rolling_restart_breaks_no_stream(start_daemon):
    balancer = Balancer()
    running = [start_daemon("--set=limits.drain_s=120").wait_until_ready() for _ in range(2)]
    balancer.urls = [daemon.url for daemon in running]
    stop = threading.Event()
    texts, failures = [], []

    def load(number: int):
        while not stop.is_set():
            try:
                texts.append(balancer.stream({"prompt": f"Tale {number}: once", "max_tokens": 40,
                                              "ignore_eos": True, "stream": True}))
            except Exception as error:  # whatever it is, the test reports it
                failures.append(repr(error))
                return

    threads = [threading.Thread(target=load, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for i in range(2):
        deadline = time.monotonic() + 60
        count = len(texts)
        while len(texts) < count + 6 and not failures:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert running[i].stop(130) == 0, running[i].log.read_text(errors="replace")
        running[i] = start_daemon("--set=limits.drain_s=120").wait_until_ready()
        balancer.urls = [daemon.url for daemon in running]
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(texts) >= 12
    assert all(text.endswith("data: [DONE]\n\n") for text in texts)
    assert all('"finish_reason":"length"' in text for text in texts)
