"""gRPC beside HTTP, over sockets, with the descriptions that the server itself gives."""

import threading
import time

import grpc
import httpx
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status
from conftest import Daemon
from grpc_services import Services, address, text_of
from waiting import wait_until

# Google's libraries are not built for the thread sanitizer.
pytestmark = pytest.mark.no_tsan

GRPC = ("--grpc-listen", "127.0.0.1:0")
PROMPT = "Once upon a time there was a small river that"
MESSAGES = [{"role": "system", "content": "Answer briefly."},
            {"role": "user", "content": "What is gravity?"}]


@pytest.fixture(scope="module")
def grpc_daemon(daemon_arguments, tmp_path_factory):
    running = Daemon(*daemon_arguments, tmp_path_factory.mktemp("grpc"), *GRPC).wait_until_ready()
    yield running
    assert running.stop() == 0, running.log.read_text(errors="replace")


@pytest.fixture(scope="module")
def services(grpc_daemon):
    with grpc.insecure_channel(address(grpc_daemon)) as channel:
        yield Services(channel)


def post(daemon: Daemon, path: str, **body) -> dict:
    answer = httpx.post(f"{daemon.url}{path}", json=body, timeout=600)
    answer.raise_for_status()
    return answer.json()


def greedy(max_tokens: int, **more) -> dict:
    return {"sampling": {"temperature": 0}, "stop": {"max_tokens": max_tokens, **more}}


def test_reflection_lists_every_service(services):
    listed = set(services.reflection.get_services())
    assert {"refrain.v1.Inference", "refrain.v1.Admin", "grpc.health.v1.Health"} <= listed
    methods = services.pool.FindServiceByName("refrain.v1.Inference").methods_by_name
    assert set(methods) == {"Generate", "Chat", "Tokenize", "Detokenize", "Models"}


def test_health(grpc_daemon):
    with grpc.insecure_channel(address(grpc_daemon)) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "refrain.v1.Inference"):
            answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_text_equals_that_of_http(services, grpc_daemon):
    messages = list(services("Inference/Generate", text={"text": PROMPT}, params=greedy(24)))
    http = post(grpc_daemon, "/v1/completions", prompt=PROMPT, max_tokens=24, temperature=0)
    assert text_of(messages) == http["choices"][0]["text"]
    usage = messages[-1].usage
    assert usage.prompt_tokens == http["usage"]["prompt_tokens"]
    assert usage.completion_tokens == http["usage"]["completion_tokens"]
    assert not any(message.HasField("usage") for message in messages[:-1])


def test_chat_equals_that_of_http(services, grpc_daemon):
    http = post(grpc_daemon, "/v1/chat/completions", messages=MESSAGES, max_tokens=24, temperature=0)
    expected = http["choices"][0]["message"]["content"]
    chat = {"messages": MESSAGES}
    assert text_of(services("Inference/Chat", chat=chat, params=greedy(24))) == expected
    assert text_of(services("Inference/Generate", chat=chat, params=greedy(24))) == expected


def test_token_ids_and_logprobs_equal_those_of_http(services, grpc_daemon):
    ids = post(grpc_daemon, "/tokenize", prompt=PROMPT)["tokens"]
    params = {**greedy(5), "logprobs": {"top": 3}, "n": 2}
    messages = list(services("Inference/Generate", tokens={"ids": ids}, params=params))
    http = post(grpc_daemon, "/v1/completions", prompt=ids, max_tokens=5, temperature=0, logprobs=3)
    expected = http["choices"][0]["logprobs"]["token_logprobs"]
    for choice in (0, 1):
        tokens = [token for message in messages for delta in message.choices
                  if delta.index == choice for token in delta.logprobs]
        assert [token.logprob for token in tokens] == pytest.approx(expected, abs=1e-3)
        assert all(token.rank == 1 and len(token.top) == 3 for token in tokens)


def test_tokenize_detokenize_and_models(services, grpc_daemon):
    text = "The café is open: 東京 🙂"
    ids = list(services("Inference/Tokenize", text=text).token_ids)
    assert ids == post(grpc_daemon, "/tokenize", prompt=text)["tokens"]
    assert text in services("Inference/Detokenize", token_ids=ids).text
    model = services("Inference/Models").models[0]
    assert model.id == httpx.get(f"{grpc_daemon.url}/v1/models").json()["data"][0]["id"]


def test_errors_carry_the_field_and_http_agrees(services, grpc_daemon):
    with pytest.raises(grpc.RpcError) as refused:
        list(services("Inference/Generate", text={"text": "a"},
                      params={"sampling": {"temperature": 3}}))
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    details = rpc_status.from_call(refused.value).details
    bad = error_details_pb2.BadRequest()
    assert any(detail.Unpack(bad) for detail in details)
    assert bad.field_violations[0].field == "params.sampling.temperature"
    http = httpx.post(f"{grpc_daemon.url}/v1/completions", json={"prompt": "a", "temperature": 3})
    assert http.json()["error"]["message"] == refused.value.details()

    too_long = {"tokens": {"ids": [1] * 100_000}}
    with pytest.raises(grpc.RpcError) as refused:
        list(services("Inference/Generate", **too_long))
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "100000 tokens" in refused.value.details()


def running_sequences(services) -> int:
    return services("Admin/CacheStatistics", max_nodes=0).engine.running_sequences


def wait_until_idle(services) -> None:
    wait_until(lambda: running_sequences(services) == 0)


def test_cancelling_and_deadlines_end_the_work(services):
    endless = {"text": {"text": PROMPT}, "params": greedy(1500, ignore_eos=True)}
    call = services("Inference/Generate", **endless)
    next(call)
    call.cancel()
    wait_until_idle(services)
    with pytest.raises(grpc.RpcError) as late:
        list(services("Inference/Generate", timeout=0.3, **endless))
    assert late.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    wait_until_idle(services)


@pytest.fixture(scope="module")
def one_slot(daemon_arguments, tmp_path_factory):
    """Services of a daemon that runs one sequence at a time, in small steps."""
    running = Daemon(*daemon_arguments, tmp_path_factory.mktemp("one_slot"), *GRPC,
                     "--set=engine.max_sequences=1",
                     "--set=engine.step_token_budget=8").wait_until_ready()
    with grpc.insecure_channel(address(running)) as channel:
        yield Services(channel)
    assert running.stop() == 0, running.log.read_text(errors="replace")


@pytest.mark.parametrize("ends", ["cancelled", "late"])
@pytest.mark.parametrize("stage", ["queue", "prefill", "decode"])
def test_a_call_ends_at_every_stage(one_slot, stage, ends):
    services = one_slot

    def totals():
        return services("Admin/CacheStatistics", max_nodes=0).engine

    long_prompt = f"{ends} in the middle of many words, " * 600
    params = greedy(1900, ignore_eos=True)
    before = totals()
    first = None
    if stage == "queue":
        first = services("Inference/Generate", text={"text": PROMPT}, params=params)
        next(first)
    started_at = time.monotonic()
    call = services("Inference/Generate", timeout=1.5 if ends == "late" else 60,
                    text={"text": long_prompt if stage == "prefill" else PROMPT}, params=params)
    if stage == "queue":
        wait_until(lambda: totals().queued_requests == 1)
    elif stage == "prefill":
        wait_until(lambda: totals().computed_prompt_tokens_total >
                   before.computed_prompt_tokens_total)
    else:
        next(call)
    if ends == "cancelled":
        call.cancel()
    with pytest.raises(grpc.RpcError) as ended:
        list(call)
    assert ended.value.code() == (grpc.StatusCode.CANCELLED if ends == "cancelled"
                                  else grpc.StatusCode.DEADLINE_EXCEEDED)
    if ends == "late":
        assert time.monotonic() - started_at < 10
    if first is not None:
        wait_until(lambda: totals().queued_requests == 0)
        next(first)  # goes on all the time
        first.cancel()
    wait_until_idle(services)
    done = totals()
    if stage == "prefill":  # most of it was never computed
        assert done.computed_prompt_tokens_total - before.computed_prompt_tokens_total < 3000
        assert done.generated_tokens_total == before.generated_tokens_total
    else:
        assert done.generated_tokens_total - before.generated_tokens_total < 1500


def test_http_and_grpc_share_one_cache(services, grpc_daemon):
    prompt = "A prompt that nobody else has asked for. " * 30
    post(grpc_daemon, "/v1/completions", prompt=prompt, max_tokens=1)
    *_, last = services("Inference/Generate", text={"text": prompt}, params=greedy(1))
    assert last.usage.cached_tokens == last.usage.prompt_tokens - 1


def test_warm_pin_unpin_drop(services):
    prompt = {"text": {"text": "Words of an operator, kept for later. " * 30}, "cache_salt": "ours"}
    params = {**greedy(1), "cache_salt": "ours"}

    def cached() -> int:
        *_, last = services("Inference/Generate", text=prompt["text"], params=params)
        return last.usage.cached_tokens

    warmed = services("Admin/Warm", prompt=prompt, pin=True)
    assert warmed.cached_tokens == 0
    assert 0 < warmed.pin.pinned_tokens <= warmed.prompt_tokens
    services("Admin/Drop", everything=True)
    assert cached() == warmed.pin.pinned_tokens
    assert [pin.id for pin in services("Admin/ListPins").pins] == [warmed.pin.id]
    statistics = services("Admin/CacheStatistics")
    assert sum(node.pinned for node in statistics.nodes) == services("Admin/ListPins").pinned_chunks
    services("Admin/Unpin", id=warmed.pin.id)
    assert services("Admin/Drop", prompt=prompt).dropped_chunks > 0
    assert cached() == 0
    with pytest.raises(grpc.RpcError) as gone:
        services("Admin/Unpin", id=warmed.pin.id)
    assert gone.value.code() == grpc.StatusCode.NOT_FOUND


def test_sessions_are_the_conversations_that_may_come_back(services):
    before = services("Admin/ListSessions", max_sessions=0)
    assert not before.sessions
    *_, first = services("Inference/Generate", params=greedy(20, ignore_eos=True),
                         text={"text": "Of a river that nobody else has asked for."})
    answered = services("Admin/ListSessions")
    assert answered.total_sessions == before.total_sessions + 1
    session = answered.sessions[0]
    # The last token of an answer is not computed.
    assert session.tokens == first.usage.prompt_tokens + first.usage.completion_tokens - 1
    assert (session.hits, session.age_requests, session.sharers) == (0, 0, 0)
    services("Admin/Drop", everything=True)
    assert services("Admin/ListSessions", max_sessions=0).total_sessions == 0


def test_sigterm_breaks_no_stream_of_either_kind(start_daemon):
    # Reproducible, so that a text does not depend on who else runs.
    daemon = start_daemon(*GRPC, "--set=limits.drain_s=600",
                          "--set=engine.reproducible=on").wait_until_ready()
    answers, texts = [], []
    together = threading.Barrier(4)  # that all are running at some time

    def ask_http():
        together.wait(60)
        answers.append(post(daemon, "/v1/completions", prompt=PROMPT, max_tokens=600,
                            ignore_eos=True, temperature=0))

    def ask_grpc(started: threading.Event):
        with grpc.insecure_channel(address(daemon)) as channel:
            services = Services(channel)
            services("Inference/Models")  # what describes the calls is read before them
            together.wait(60)
            call = services("Inference/Generate", timeout=600, text={"text": PROMPT},
                            params=greedy(600, ignore_eos=True))
            messages = [next(call)]
            started.set()
            texts.append(text_of(messages + list(call)))

    started = [threading.Event() for _ in range(3)]
    threads = [threading.Thread(target=ask_grpc, args=(one,)) for one in started]
    threads.append(threading.Thread(target=ask_http))
    for thread in threads:
        thread.start()
    for one in started:
        assert one.wait(60)
    daemon.wait_for_running(len(threads))
    assert daemon.stop(610) == 0
    for thread in threads:
        thread.join(120)
    assert texts == [answers[0]["choices"][0]["text"]] * 3


def test_a_call_that_the_end_of_a_drain_cuts_short_is_told(start_daemon):
    daemon = start_daemon(*GRPC, "--set=limits.drain_s=0.2").wait_until_ready()
    with grpc.insecure_channel(address(daemon)) as channel:
        services = Services(channel)
        call = services("Inference/Generate", timeout=60, text={"text": PROMPT},
                        params=greedy(1900, ignore_eos=True))
        next(call)
        daemon.process.terminate()
        with pytest.raises(grpc.RpcError) as ended:
            list(call)
    assert ended.value.code() == grpc.StatusCode.UNAVAILABLE
    assert "stopped" in ended.value.details()
    assert daemon.process.wait(60) == 3


def test_grpc_is_off_without_an_address(start_daemon):
    daemon = start_daemon("--grpc-listen", "").wait_until_ready()
    assert " grpc=off" in daemon.log.read_text()


def test_a_taken_port_is_an_error_that_names_the_key(grpc_daemon, daemon_arguments, tmp_path):
    taken = address(grpc_daemon)
    with pytest.raises(RuntimeError, match=f"server.grpc_listen: cannot listen on {taken}"):
        Daemon(*daemon_arguments, tmp_path, "--grpc-listen", taken).wait_until_ready()
