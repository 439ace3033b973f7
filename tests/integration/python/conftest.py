"""Starts the real daemon for the end-to-end tests.

    .venv/bin/pytest tests/integration/python --refraind PATH --model PATH
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import time

import httpx
import openai
import pytest

from waiting import wait_until

# The tools are scripts, no package.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools" / "bench"))
import metrics_page

START_S = 120  # a model may have to be read from a cold disk


def pytest_addoption(parser):
    parser.addoption("--refraind", help="the daemon's binary")
    parser.addoption("--model", help="GGUF file or Hugging Face folder")


def pytest_configure(config):
    config.addinivalue_line("markers", "soak: runs for a long time, only on request")
    config.addinivalue_line("markers", "no_tsan: not with a daemon under the thread sanitizer: "
                            "gRPC is not built for it, a model takes minutes")
    config.addinivalue_line("markers", "optimised: measures the daemon: not under any sanitizer")


class Daemon:
    """A running refraind on a free port; its log is kept in `log`."""

    def __init__(self, binary: str, model: str, folder: pathlib.Path, *arguments: str):
        self.log = folder / "refraind.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [os.path.abspath(binary), "--model", model, "--listen", "127.0.0.1:0",
                 "--grpc-listen", "", *arguments],
                stdout=log, stderr=subprocess.STDOUT)
        self.url = f"http://127.0.0.1:{self._wait_for(r'listening http=127.0.0.1:([0-9]+)')}"

    def _wait_for(self, pattern: str) -> str:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            found = re.search(pattern, self.log.read_text(errors="replace"))
            if found:
                return found.group(1)
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise RuntimeError(f"refraind did not start:\n{self.log.read_text(errors='replace')}")

    def wait_until_ready(self) -> "Daemon":
        self._wait_for(r" (ready) ")
        return self

    def wait_for_running(self, sequences: int) -> "Daemon":
        """Until so many sequences run at once."""
        return self._wait_for_gauge("vllm:num_requests_running", sequences)

    def wait_for_queued(self, requests: int, headers: dict[str, str] | None = None) -> "Daemon":
        """Until so many requests wait for those that run."""
        return self._wait_for_gauge("vllm:num_requests_waiting", requests, headers)

    def _wait_for_gauge(self, name: str, least: int,
                        headers: dict[str, str] | None = None) -> "Daemon":
        with httpx.Client(base_url=self.url, timeout=60, headers=headers) as http:
            wait_until(lambda: metrics_page.total(
                metrics_page.samples(http.get("/metrics").text), name) >= least,
                told=lambda: f"{name} was never {least}")
        return self

    def wait_for_log(self, text: str) -> None:
        wait_until(lambda: text in self.log.read_text(errors="replace"),
                   told=lambda: self.log.read_text(errors="replace"))

    def wait_for_drain(self) -> "Daemon":
        self._wait_for(r" (draining) ")
        return self

    def client(self, **options) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=120,
                             **options)

    def stop(self, timeout_s: float = 60) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(timeout_s)


@pytest.fixture(scope="session")
def daemon_arguments(request):
    binary = request.config.getoption("--refraind")
    model = request.config.getoption("--model")
    if not binary or not model:
        pytest.fail("--refraind and --model are needed")
    return binary, model


@pytest.fixture(scope="session")
def fake_daemon(daemon_arguments, tmp_path_factory):
    """The daemon with an engine that repeats its prompt, and a chat template with tools."""
    outputs = pathlib.Path(daemon_arguments[0]).absolute().parents[1]
    running = Daemon(str(outputs / "tests/server/refraind_fake"), "tools",
                     tmp_path_factory.mktemp("refraind-fake")).wait_until_ready()
    yield running
    assert running.stop() == 0, running.log.read_text(errors="replace")


@pytest.fixture(scope="session")
def daemon(daemon_arguments, tmp_path_factory):
    running = Daemon(*daemon_arguments, tmp_path_factory.mktemp("refraind")).wait_until_ready()
    yield running
    assert running.stop() == 0, running.log.read_text(errors="replace")


@pytest.fixture(scope="session")
def reproducible(daemon_arguments, tmp_path_factory):
    """A daemon whose answers hang on nothing that is asked beside them."""
    running = Daemon(*daemon_arguments, tmp_path_factory.mktemp("refraind-reproducible"),
                     "--set", "engine.reproducible=on").wait_until_ready()
    yield running
    assert running.stop() == 0, running.log.read_text(errors="replace")


@pytest.fixture
def start_daemon(daemon_arguments, tmp_path):
    """Starts a daemon of the test's own; it is killed with the test."""
    started = []

    def start(*arguments: str) -> Daemon:
        folder = tmp_path / str(len(started))
        folder.mkdir()
        started.append(Daemon(*daemon_arguments, folder, *arguments))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


@pytest.fixture
def client(daemon):
    with daemon.client() as opened:
        yield opened


@pytest.fixture
def http(daemon):
    with httpx.Client(base_url=daemon.url, timeout=120) as opened:
        yield opened


@pytest.fixture(scope="session")
def model_id(daemon):
    return httpx.get(f"{daemon.url}/v1/models").json()["data"][0]["id"]


@pytest.fixture(scope="session")
def ask_grammars(request):
    """Asks for samples of grammars, and whether they take texts; see grammar_samples."""
    binary = request.config.getoption("--refraind")
    if not binary:
        pytest.fail("--refraind is needed: grammar_samples is found beside it")
    tool = pathlib.Path(binary).absolute().parents[1] / "tests/engine/grammar/grammar_samples"

    def answers(questions: list[dict]) -> list[dict]:
        lines = "".join(json.dumps(question) + "\n" for question in questions)
        done = subprocess.run([tool], input=lines.encode(), stdout=subprocess.PIPE, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    return answers
