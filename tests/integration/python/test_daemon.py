"""The daemon as a process, over plain HTTP."""

import contextlib
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import threading
import time

import httpx
import metrics_page
import pytest

from waiting import wait_until


def sse_events(text: str) -> list[str]:
    assert text.endswith("\n\n")
    events = text[:-2].split("\n\n")
    assert all(event.startswith("data: ") for event in events)
    return [event[len("data: "):] for event in events]


def test_health_version_and_request_id(http):
    assert http.get("/health").status_code == 200
    assert http.get("/ready").status_code == 200
    assert http.head("/health").status_code == 200
    assert http.get("/version").json()["version"]
    answer = http.get("/health", headers={"x-request-id": "my-id-1"})
    assert answer.headers["x-request-id"] == "my-id-1"


def test_stream_is_framed_as_clients_expect(http):
    answer = http.post("/v1/completions", json={
        "prompt": "Hello", "max_tokens": 5, "stream": True, "ignore_eos": True, "best_of": 1,
        "top_k": -1, "repetition_penalty": 1.0, "stop": None, "logprobs": None, "user": "me"})
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = sse_events(answer.text)
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    assert all(len(chunk["choices"]) == 1 and "usage" not in chunk for chunk in chunks)
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("body, mention", [
    (b"", "JSON"),
    (b"{", "JSON"),
    (b"[1]", "object"),
    (b'{"prompt":"\xff"}', "JSON"),
    (b'{"prompt":' + b"[" * 100000, "deeper"),
    (b'{"prompt":"a","prompt":"b"}', "twice"),
    (b"{}", "prompt"),
])
def test_broken_bodies_get_one_clear_error(http, body, mention):
    answer = http.post("/v1/completions", content=body)
    assert answer.status_code == 400
    assert mention in answer.json()["error"]["message"]


def test_wrong_paths_and_methods(http):
    assert http.get("/v1/nothing").status_code == 404
    refused = http.get("/v1/completions")
    assert refused.status_code == 405
    assert refused.headers["allow"] == "POST"


def test_oversize_bodies_are_refused(http):
    try:
        answer = http.post("/v1/completions", content=b"x" * (17 << 20))
        assert answer.status_code == 413
    except (httpx.WriteError, httpx.RemoteProtocolError):
        pass  # this client may see the connection end while it still sends
    assert http.get("/health").status_code == 200


@pytest.mark.no_tsan
def test_sigterm_finishes_what_runs(start_daemon):
    daemon = start_daemon("--set=limits.drain_s=600").wait_until_ready()
    texts = []

    def ask():
        with httpx.Client(base_url=daemon.url, timeout=60) as client:
            texts.append(client.post("/v1/completions", json={
                "prompt": "Hello", "max_tokens": 600, "ignore_eos": True, "stream": True}).text)

    asking = threading.Thread(target=ask)
    asking.start()
    daemon.wait_for_running(1)
    assert daemon.stop(610) == 0
    asking.join()
    events = sse_events(texts[0])
    assert events[-1] == "[DONE]"
    assert json.loads(events[-2])["choices"][0]["finish_reason"] == "length"


def test_second_signal_stops_at_once(start_daemon):
    daemon = start_daemon().wait_until_ready()
    # More than can be finished between the two signals.
    body = {"prompt": ["Hello"] * 32, "max_tokens": 1500, "ignore_eos": True}
    failures = []

    def ask():
        try:
            httpx.post(f"{daemon.url}/v1/completions", timeout=60, json=body).raise_for_status()
        except httpx.HTTPError as failure:
            failures.append(failure)

    running = threading.Thread(target=ask)
    running.start()
    daemon.wait_for_running(32)
    daemon.process.send_signal(signal.SIGTERM)
    daemon.wait_for_drain()
    start = time.monotonic()
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(20) == 3
    assert time.monotonic() - start < 10
    running.join()
    assert len(failures) == 1


def test_second_signal_waits_for_no_long_step(start_daemon):
    def prefill(daemon, first_id: int) -> None:
        ids = [first_id + i % 1000 for i in range(4096)]
        with contextlib.suppress(httpx.HTTPError):
            httpx.post(f"{daemon.url}/v1/completions", timeout=60,
                       json={"prompt": ids, "max_tokens": 1})

    def ended_children_s() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def share_computed() -> float:
        """Of a step: by a daemon that is told to stop, twice, after a tenth of it."""
        daemon = start_daemon("--set=engine.step_token_budget=4096").wait_until_ready()
        with httpx.Client(base_url=daemon.url, timeout=60) as http:
            def processor_s() -> float:
                page = metrics_page.samples(http.get("/metrics").text)
                return metrics_page.value(page, "process_cpu_seconds_total")

            before_s = processor_s()
            prefill(daemon, 1000)
            between_s = processor_s()
            step_s = between_s - before_s
            running = threading.Thread(target=prefill, args=(daemon, 3000))
            running.start()
            # What runs is told at the end of a step: that it works shows that it has begun.
            wait_until(lambda: processor_s() - between_s >= step_s / 10)
        daemon.process.send_signal(signal.SIGTERM)
        daemon.wait_for_drain()
        daemon.process.send_signal(signal.SIGTERM)
        ended_s = ended_children_s()
        assert daemon.process.wait(60) == 3
        running.join()
        return (ended_children_s() - ended_s - between_s) / step_s

    # Where others have the processors, the signals may come when the step is over.
    assert any(share_computed() < 0.5 for _ in range(5))


def test_bad_configuration_is_refused(daemon_arguments):
    binary, model = daemon_arguments
    done = subprocess.run([binary, "--model", model, "--set", "engine.max_sequencs=1"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert 'did you mean "engine.max_sequences"' in done.stderr
    for key in ("--config=/", "--set=auth.keys_file=/"):  # a directory opens and cannot be read
        done = subprocess.run([binary, "--model", model, key], capture_output=True, text=True,
                              timeout=60)
        assert done.returncode in (1, 2), done.stderr
        assert "cannot read" in done.stderr and "Is a directory" in done.stderr
    shipped = pathlib.Path(__file__).parents[3] / "configs" / "refraind.json"
    good = subprocess.run([binary, "--model", model, "--config", str(shipped), "--check-config"],
                          capture_output=True, text=True, timeout=60)
    assert good.returncode == 0, good.stderr


def test_missing_model_is_an_error(daemon_arguments):
    done = subprocess.run([daemon_arguments[0], "--model", "/does/not/exist", "--listen",
                           "127.0.0.1:0", "--grpc-listen", ""], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "/does/not/exist" in done.stderr


def resident_mib(process: subprocess.Popen) -> float:
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"^VmRSS:\s+([0-9]+) kB", status, re.MULTILINE)[1]) / 1024


def scheduled_s(pid: int) -> tuple[float, float]:
    """What a process's threads have computed, and what they have waited for a processor."""
    times = [[int(ns) / 1e9 for ns in file.read_text().split()[:2]]
             for file in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(computed for computed, _ in times), sum(waited for _, waited in times)


@pytest.mark.optimised
def test_is_ready_soon_and_stays_small(start_daemon):
    """The aims for SmolLM2 are a second and 250 MiB with what its KV cache has touched. The first
    start reads the file; of those that find it in the page cache the best of three counts, less what
    it, and this test, waited while others had the processors."""
    daemon = start_daemon().wait_until_ready()
    starts_s, loads_s, computed_s = [], [], []
    for _ in range(3):
        daemon.stop()
        start, (_, waited_before) = time.monotonic(), scheduled_s(os.getpid())
        daemon = start_daemon().wait_until_ready()
        start_s = time.monotonic() - start
        computed, waited = scheduled_s(daemon.process.pid)
        starts_s.append(start_s - waited - (scheduled_s(os.getpid())[1] - waited_before))
        ready = next(line for line in daemon.log.read_text().splitlines() if " ready " in line)
        loads_s.append(int(re.search(r"load_ms=([0-9]+)", ready)[1]) / 1000 - waited)
        computed_s.append(computed)
    assert min(starts_s) < 1, starts_s
    assert min(loads_s) < 1, loads_s
    assert min(computed_s) < 1, computed_s
    # Memory is reserved for this many tokens, and touched by those that come.
    assert int(re.search(r"kv_capacity_tokens=([0-9]+)", ready)[1]) >= 2048
    httpx.post(f"{daemon.url}/v1/completions", timeout=60, json={
        "prompt": "Hello", "max_tokens": 32, "ignore_eos": True}).raise_for_status()
    assert resident_mib(daemon.process) < 250


def test_paged_attention_gives_the_same_answers(start_daemon):
    """Eight requests at once behind one prefix, with all log-probabilities, bit by bit."""
    prefix = "The history of the lighthouse begins with fires on hilltops. " * 20
    body = {"prompt": [prefix + end for end in
                       ("First", "Then", "Later", "Why", "Who", "A ship", "Its keeper", "In 1759")],
            "max_tokens": 16, "temperature": 0, "ignore_eos": True, "logprobs": 3}

    def ask(mode: str) -> list[dict]:
        daemon = start_daemon("--set", f"attention.mode={mode}", "--set",
                              "engine.reproducible=on").wait_until_ready()
        answer = httpx.post(f"{daemon.url}/v1/completions", timeout=120, json=body)
        assert answer.status_code == 200, answer.text
        assert daemon.stop() == 0
        return answer.json()["choices"]

    paged = ask("paged")
    assert len(paged) == 8
    assert paged == ask("two_phase")


def test_tokenizer_info_is_enough_for_a_remote_tokenizer(start_daemon):
    """What lm-eval does with `tokenizer_backend=remote`."""
    daemon = start_daemon("--set", "server.tokenizer_info=on").wait_until_ready()
    with httpx.Client(base_url=daemon.url) as http:
        info = http.get("/tokenizer_info").json()
        assert info["eos_token"] == "<|im_end|>"
        assert "add_generation_prompt" in info["chat_template"]
        assert info["model_max_length"] > 0
        for role in ("eos_token", "bos_token"):
            ids = http.post("/tokenize", json={
                "prompt": info[role], "add_special_tokens": False}).json()["tokens"]
            assert len(ids) == 1
            text = http.post("/detokenize", json={"tokens": ids}).json()["prompt"]
            assert text == info[role]


def test_a_mode_of_attention_that_is_not_there_is_refused(daemon_arguments):
    binary, model = daemon_arguments
    done = subprocess.run([binary, "--model", model, "--set", "attention.mode=pages"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "attention.mode" in done.stderr and "two_phase" in done.stderr
