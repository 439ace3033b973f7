"""Loads a daemon with random requests for minutes: whole, streamed, abandoned and wrong ones.

Passes when every request got the answer of its kind, every kind was answered in the first third of the
time and in the rest, memory stopped growing after the first third, and the daemon ended cleanly on
SIGTERM. Standard library only.

    soak.py --refraind PATH --model PATH [--seconds 600] [--seed N]
"""

import argparse
import collections
import http.client
import json
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench"))
import free_ports
import interruption
import metrics_page

HOST = "127.0.0.1"
THREADS = 8
TIMEOUT_S = 120
# Growth between the first third and the end that counts as a leak.
MOST_GROWTH_MIB = 64
# What finished requests leave in the KV cache grows until the pool is full: it must be so early, or
# a leak could not be told from it. 8,000 tokens of SmolLM2.
KV_MEMORY = "192MiB"
EVICTED = "refrain_kv_evicted_chunks_total"
# The kinds of requests: methods of Client, and how often each is asked for beside the others.
SHARES = {"whole": 4, "streamed": 4, "abandoned": 2, "wrong": 2}
WORDS = "the river runs past an old mill where nobody has lived since the war ended".split()


class Failure(Exception):
    """An answer that should not have come, in one sentence."""


def resident_mib(pid: int) -> float:
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


class Client:
    """One request of each kind on a connection of its own."""

    def __init__(self, port: int, seed: int):
        self._port = port
        self._random = random.Random(seed)

    def _send(self, method: str, path: str, body: bytes | None = None):
        connection = http.client.HTTPConnection(HOST, self._port, timeout=TIMEOUT_S)
        connection.request(method, path, body, {"Content-Type": "application/json"})
        return connection, connection.getresponse()

    def _body(self, **changes) -> bytes:
        words = self._random.choices(WORDS, k=self._random.choice([1, 5, 63, 64, 65, 400]))
        body = {"model": "m", "max_tokens": self._random.choice([1, 2, 16, 48]),
                "temperature": self._random.choice([0, 0.7, 1.3]), "prompt": " ".join(words)}
        return json.dumps({**body, **changes}).encode()

    def whole(self) -> None:
        connection, response = self._send("POST", "/v1/completions", self._body())
        answer = response.read()
        connection.close()
        if response.status != 200 or json.loads(answer)["usage"]["completion_tokens"] < 1:
            raise Failure(f"a completion got {response.status}: {answer[:200]!r}")

    def streamed(self) -> None:
        connection, response = self._send("POST", "/v1/completions", self._body(stream=True))
        answer = response.read()
        connection.close()
        if response.status != 200 or not answer.rstrip().endswith(b"data: [DONE]"):
            raise Failure(f"a stream got {response.status} and ended {answer[-200:]!r}")

    def abandoned(self) -> None:
        """Goes away before, or some bytes into, the answer."""
        body = self._body(stream=True, max_tokens=400, ignore_eos=True)
        with socket.create_connection((HOST, self._port), timeout=TIMEOUT_S) as connection:
            head = (f"POST /v1/completions HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: "
                    f"application/json\r\nContent-Length: {len(body)}\r\n\r\n").encode()
            cut = self._random.choice([len(head) // 2, len(head) + len(body) // 2, None])
            connection.sendall((head + body)[:cut])
            if cut is None:
                connection.recv(self._random.choice([1, 100, 2000]))

    def wrong(self) -> None:
        body = self._random.choice([
            b"{", b"[]", b"\xff\xfe", b"null", self._body(max_tokens=-1), self._body(prompt=17),
            self._body(model="no-such-model"), self._body(temperature="warm"),
            self._body(prompt="word " * 20000)])
        connection, response = self._send("POST", "/v1/completions", body)
        answer = response.read()
        connection.close()
        if not 400 <= response.status < 500 or "error" not in json.loads(answer):
            raise Failure(f"the body {body[:80]!r} got {response.status}: {answer[:200]!r}")

    def any(self) -> str:
        kind = self._random.choices(list(SHARES), SHARES.values())[0]
        getattr(self, kind)()
        return kind


def metric(port: int, name: str) -> float:
    connection = http.client.HTTPConnection(HOST, port, timeout=TIMEOUT_S)
    connection.request("GET", "/metrics")
    page = connection.getresponse().read().decode()
    connection.close()
    return metrics_page.value(metrics_page.samples(page), name)


def wait_until_up(daemon: subprocess.Popen, port: int) -> None:
    for _ in range(1200):
        if daemon.poll() is not None:
            raise Failure(f"the daemon ended with status {daemon.returncode}")
        try:
            connection = http.client.HTTPConnection(HOST, port, timeout=5)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise Failure("the daemon was not up after 120 s")


class Soak:
    """Clients on threads until a deadline; the first failure stops them all."""

    def __init__(self, daemon: subprocess.Popen, port: int, arguments: argparse.Namespace):
        self._daemon, self._port, self._arguments = daemon, port, arguments
        self._lock = threading.Lock()
        self._failures: list[str] = []
        self._done: collections.Counter = collections.Counter()

    def _work(self, number: int, deadline: float) -> None:
        client = Client(self._port, self._arguments.seed * THREADS + number)
        while time.monotonic() < deadline and not self._failures:
            try:
                kind = client.any()
                with self._lock:
                    self._done[kind] += 1
            # Whatever it is: a thread that dies of what nobody thought of would ask no more.
            except Exception as error:
                with self._lock:
                    self._failures.append(f"{type(error).__name__}: {error}")

    def _run_for(self, seconds: float) -> None:
        before = self._done.copy()
        deadline = time.monotonic() + seconds
        threads = [threading.Thread(target=self._work, args=(number, deadline))
                   for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._daemon.poll() is not None:
            raise Failure(f"the daemon ended with status {self._daemon.returncode}")
        if self._failures:
            raise Failure(self._failures[0])
        for kind in SHARES:
            if self._done[kind] == before[kind]:
                raise Failure(f"no request of the kind '{kind}' ended in {seconds:.0f} s: that proves "
                              "nothing; give it more --seconds")

    def run(self) -> str:
        wait_until_up(self._daemon, self._port)
        self._run_for(self._arguments.seconds / 3)
        if not metric(self._port, EVICTED):
            raise Failure(f"the KV cache of {KV_MEMORY} was not full after a third of the time: "
                          "growth would say nothing; give it more --seconds")
        before_mib = resident_mib(self._daemon.pid)
        self._run_for(self._arguments.seconds * 2 / 3)
        after_mib = resident_mib(self._daemon.pid)
        if after_mib > before_mib + MOST_GROWTH_MIB:
            raise Failure(f"resident memory grew from {before_mib:.0f} to {after_mib:.0f} MiB")
        Client(self._port, 0).whole()
        self._daemon.terminate()
        if self._daemon.wait(60) != 0:
            raise Failure(f"SIGTERM ended the daemon with status {self._daemon.returncode}")
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self._done.items()))
        return f"{kinds}; resident {before_mib:.0f} -> {after_mib:.0f} MiB"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--refraind", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    interruption.exit_on_signals()
    port = free_ports.free_port()
    with tempfile.NamedTemporaryFile(prefix="refrain-soak-", suffix=".log", delete=False) as log:
        daemon = subprocess.Popen(
            [arguments.refraind, "--model", arguments.model, "--listen", f"{HOST}:{port}",
             "--grpc-listen", "", "--set", "model.served_name=m",
             "--set", f"kv_cache.memory_bytes={KV_MEMORY}"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            preexec_fn=interruption.stop_with_parent)
    try:
        print(f"soak: {Soak(daemon, port, arguments).run()} (seed {arguments.seed})")
        return 0
    except (Failure, subprocess.TimeoutExpired) as failure:
        print(f"soak: {failure} (seed {arguments.seed}, log {log.name})", file=sys.stderr)
        return 1
    finally:
        if daemon.poll() is None:
            daemon.kill()
            daemon.wait()


if __name__ == "__main__":
    sys.exit(main())
