"""Two daemons behind a balancer are replaced one after the other under load."""

import collections
import contextlib
import random
import re
import socket
import ssl
import threading
import time

import grpc
import httpx
import pytest

import metrics_page
from access_tools import make_certificate
from grpc_services import Services, address, text_of
from waiting import wait_until

FAST_TOKENS = 40
# Of a reader that takes its time: more bytes than the sockets between the two hold.
SLOW = {"max_tokens": 100, "n": 4, "logprobs": 20}
SLOW_BYTES = 160 << 10
SMALL_BUFFER = (socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
STALL_S = 2.5  # longer than a drain gives those whose time is over, from the last token on


NOT_CONNECTED = (httpx.ConnectError, httpx.ConnectTimeout)


class Balancer:
    """What a load balancer does: it sends requests to those whose /ready says 200, and asks
    another one when it is told 503 or nobody listens. A request that was sent and has no answer is
    an error: whoever does not know whether it was begun cannot send it again. With `keeps` each
    thread keeps its connections, and who was told 503 asks that daemon no more, so that somebody
    has to listen."""

    def __init__(self, certificate=None, keeps=False):
        self.certificate = certificate
        self.keeps = keeps
        self.kept = threading.local()
        self.told = collections.defaultdict(set)  # by daemon: the threads that it has told 503
        self.unanswered = []  # the errors of /ready where somebody listened
        self.daemons = []

    def url_of(self, daemon) -> str:
        if self.certificate is None:
            return daemon.url
        return daemon.url.replace("http://127.0.0.1", "https://localhost")

    def client(self, *socket_options) -> httpx.Client:
        verify = True
        if self.certificate is not None:
            verify = ssl.create_default_context(cafile=str(self.certificate))
        return httpx.Client(timeout=60, transport=httpx.HTTPTransport(
            verify=verify, socket_options=list(socket_options)))

    def _somewhere(self, ask) -> str:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for daemon in random.sample(self.daemons, len(self.daemons)):
                text = ask(daemon)
                if text is not None:
                    return text
            time.sleep(0.02)
        raise TimeoutError("no daemon took the request")

    def stream(self, body: dict) -> str:
        return self._somewhere(lambda daemon: self._ask(daemon, body))

    def _kept_client(self) -> httpx.Client:
        if not hasattr(self.kept, "client"):
            self.kept.client = self.client()
        return self.kept.client

    def _ask(self, daemon, body: dict) -> str | None:
        if self.keeps and threading.get_ident() in self.told[daemon]:
            return None
        with contextlib.ExitStack() as stack:
            client = self._kept_client() if self.keeps else stack.enter_context(self.client())
            try:
                if not self._is_ready(client, daemon):
                    return None
                answer = stack.enter_context(
                    client.stream("POST", f"{self.url_of(daemon)}/v1/completions", json=body))
            except NOT_CONNECTED:
                if self.keeps:
                    raise
                return None  # it listens no more: nothing was sent
            if answer.status_code == 503:
                assert "retry-after" in answer.headers
                self.told[daemon].add(threading.get_ident())
                return None
            assert answer.status_code == 200
            return "".join(answer.iter_text())

    def _is_ready(self, client: httpx.Client, daemon) -> bool:
        try:
            ready = client.get(f"{self.url_of(daemon)}/ready")
        except NOT_CONNECTED:
            raise
        except httpx.TransportError as error:
            if self.keeps:
                raise
            self.unanswered.append(repr(error))
            return False
        if ready.status_code == 200:
            return True
        assert ready.status_code == 503
        self.told[daemon].add(threading.get_ident())
        return False

    def stream_slowly(self, daemon, body: dict, begun: threading.Event,
                      go_on: threading.Event) -> str:
        """From this daemon; after the first piece nothing is read until `go_on`."""
        with self.client(SMALL_BUFFER) as client, client.stream(
                "POST", f"{self.url_of(daemon)}/v1/completions", json=body) as answer:
            pieces = answer.iter_text(1024)
            text = next(pieces)
            begun.set()
            assert go_on.wait(60)
            return text + "".join(pieces)

    def generates(self, daemon) -> bool:
        """Whether its engine still runs or queues requests."""
        with self.client() as client:
            page = metrics_page.samples(client.get(f"{self.url_of(daemon)}/metrics").text)
        return any(metrics_page.value(page, f"vllm:num_requests_{doing}") > 0
                   for doing in ("running", "waiting"))

    def call(self, prompt: str) -> str:
        return self._somewhere(lambda daemon: self._call(daemon, prompt))

    def _call(self, daemon, prompt: str) -> str | None:
        target = address(daemon)
        if self.certificate is None:
            channel = grpc.insecure_channel(target)
        else:
            channel = grpc.secure_channel(
                target.replace("127.0.0.1", "localhost"),
                grpc.ssl_channel_credentials(self.certificate.read_bytes()))
        messages = []
        with channel:
            try:
                for message in Services(channel)(
                        "Inference/Generate", text={"text": prompt},
                        params={"stop": {"max_tokens": FAST_TOKENS, "ignore_eos": True}}):
                    messages.append(message)
            except grpc.RpcError as error:
                if messages or error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise
                # It says so, or nobody listens; else the call was sent and has no answer.
                if not re.search("shutting down|[Ff]ailed to connect", error.details()):
                    raise
                return None
        assert messages[-1].usage.completion_tokens == FAST_TOKENS
        return text_of(messages)


def wait_unless_failed(condition, failures):
    wait_until(lambda: failures or condition())
    assert not failures, failures


@pytest.mark.no_tsan  # what runs has to end within the drain's limit
@pytest.mark.parametrize("tls, calls", [(False, False), (True, True)], ids=["http", "tls_and_grpc"])
def test_rolling_restart_breaks_no_stream(start_daemon, tmp_path, tls, calls):
    settings, certificate = ["--set=limits.drain_s=120"], None
    if calls:
        settings += ["--grpc-listen", "127.0.0.1:0"]
    if tls:
        certificate, key = make_certificate(tmp_path, "server")
        settings += [f"--set=tls.cert_file={certificate}", f"--set=tls.key_file={key}"]
    balancer = Balancer(certificate)
    balancer.daemons = [start_daemon(*settings).wait_until_ready() for _ in range(2)]
    stop = threading.Event()
    answers = {"http": [], "grpc": []}
    failures = []

    def report(work):
        try:
            work()
        except Exception as error:  # whatever it is, the test reports it
            failures.append(repr(error))

    def body(number: int, **fields) -> dict:
        return {"prompt": f"Tale {number}: once", "max_tokens": FAST_TOKENS, "ignore_eos": True,
                "stream": True, **fields}

    def load(kind: str, number: int):
        while not stop.is_set():
            answers[kind].append(balancer.call(f"Tale {number}: once") if kind == "grpc"
                                 else balancer.stream(body(number)))

    kinds = ["http"] * 4 + ["grpc"] * (2 if calls else 0)
    threads = [threading.Thread(target=report, args=(lambda kind=kind, i=i: load(kind, i),))
               for i, kind in enumerate(kinds)]
    for thread in threads:
        thread.start()
    for i, old in enumerate(list(balancer.daemons)):
        wanted = {kind: len(answers[kind]) + 2 for kind in kinds}
        wait_unless_failed(
            lambda: all(len(answers[kind]) >= count for kind, count in wanted.items()), failures)
        begun, go_on, slow = threading.Event(), threading.Event(), []
        reader = threading.Thread(target=report, args=(lambda: slow.append(
            balancer.stream_slowly(old, body(i, **SLOW), begun, go_on)),))
        reader.start()
        wait_unless_failed(begun.is_set, failures)
        old.process.terminate()
        old.wait_for_drain()
        wait_unless_failed(lambda: not balancer.generates(old), failures)
        time.sleep(STALL_S)
        assert old.process.poll() is None, "it did not wait for the reader"
        go_on.set()
        assert old.process.wait(130) == 0, old.log.read_text(errors="replace")
        reader.join()
        assert not failures
        assert len(slow[0]) > SLOW_BYTES
        # Whoever connects just as the daemon closes its port is cut off.
        assert len(balancer.unanswered) <= i + 1, balancer.unanswered
        answers["http"] += slow
        balancer.daemons[i] = start_daemon(*settings).wait_until_ready()
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    for text in answers["http"]:
        assert text.endswith("data: [DONE]\n\n")
        assert '"finish_reason":"length"' in text
    assert all(answers["grpc"])


def test_rolling_restart_resets_no_kept_connection(start_daemon):
    """Nothing runs when they are told to end, most of the time: they would be gone at once. The
    notice is as long as it takes until all threads know: whoever sends as a connection that idles is
    closed would be lost, whatever the daemon does."""
    settings = ["--set=limits.drain_notice_s=120"]
    balancer = Balancer(keeps=True)
    balancer.daemons = [start_daemon(*settings).wait_until_ready() for _ in range(2)]
    stop = threading.Event()
    answers, failures = [], []

    def load():
        try:
            while not stop.is_set():
                answers.append(balancer.stream({"prompt": "Once", "max_tokens": 1, "stream": True}))
                time.sleep(0.01)
        except Exception as error:  # whatever it is, the test reports it
            failures.append(repr(error))

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    for i in range(4):
        wanted = len(answers) + 8
        wait_unless_failed(lambda: len(answers) >= wanted, failures)
        old = balancer.daemons[i % 2]
        old.process.terminate()
        wait_unless_failed(lambda: len(balancer.told[old]) == len(threads), failures)
        assert old.process.poll() is None, "it gave no notice"
        old.process.terminate()  # the rest of which is not waited for
        assert old.process.wait(30) == 0
        balancer.daemons[i % 2] = start_daemon(*settings).wait_until_ready()
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert all(text.endswith("data: [DONE]\n\n") for text in answers)
