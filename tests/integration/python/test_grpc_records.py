"""gRPC calls in the request log and in the metrics, beside those of HTTP."""

import json
import pathlib

import grpc
import httpx
import metrics_page
import pytest
from conftest import Daemon
from grpc_services import Services, address, text_of
from waiting import wait_until

pytestmark = pytest.mark.no_tsan


@pytest.fixture(name="served")
def fake_daemon_with_log(request, daemon_arguments, tmp_path):
    """With `log.prompts` as the test's parameter says."""
    prompts = getattr(request, "param", "on")
    outputs = pathlib.Path(daemon_arguments[0]).absolute().parents[1]
    log = tmp_path / "requests.jsonl"
    running = Daemon(str(outputs / "tests/server/refraind_fake"), "fake:2000", tmp_path,
                     "--grpc-listen", "127.0.0.1:0", "--set", f"log.requests_file={log}",
                     "--set", f"log.prompts={prompts}", "--set", "log.level=trace"
                     ).wait_until_ready()
    with grpc.insecure_channel(address(running)) as channel:
        yield running, Services(channel), log
    assert running.stop() == 0, running.log.read_text(errors="replace")


def lines_of(log: pathlib.Path, count: int) -> dict[str, dict]:
    """By request id."""
    wait_until(lambda: len(log.read_text().splitlines()) >= count)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(lines) == count
    return {line["request"]: line for line in lines}


def value_of(daemon: Daemon, name: str, **labels: str) -> float:
    page = metrics_page.samples(httpx.get(f"{daemon.url}/metrics").text)
    return metrics_page.total(page, name, *(f'{label}="{value}"' for label, value in labels.items()))


def metadata(name: str):
    return (("x-request-id", name),)


def make_calls(services: Services) -> None:
    """A whole answer, a refusal, a lookup, one that the client leaves."""
    answer = services("Inference/Generate", text={"text": "hello"}, metadata=metadata("whole"))
    assert text_of(answer) == "hello"
    with pytest.raises(grpc.RpcError):
        list(services("Inference/Generate", text={"text": "x"}, params={"n": 0},
                      metadata=metadata("wrong")))
    services("Inference/Tokenize", text="ab", metadata=metadata("lookup"))
    call = services("Inference/Chat", metadata=metadata("left"),
                    chat={"messages": [{"role": "user", "content": "[[delay_ms=20]]" + "x" * 500}]})
    next(call)
    call.cancel()


def make_late_calls(services: Services, log: pathlib.Path) -> list[dict]:
    """The lines of calls after those of make_calls whose deadline passes, up to the first that is
    recorded as such. A server that was slow to hear of a call takes its client for gone."""
    lines = []
    while len(lines) < 5 and (not lines or lines[-1]["status"] != 408):
        name = f"late-{len(lines)}"
        with pytest.raises(grpc.RpcError) as error:
            list(services("Inference/Generate", text={"text": "[[hold]]x"}, timeout=0.3,
                          metadata=metadata(name)))
        assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        lines.append(lines_of(log, 5 + len(lines))[name])
    return lines


def test_every_call_is_a_line_of_the_request_log(served):
    _, services, log = served
    make_calls(services)
    late = make_late_calls(services, log)[-1]
    assert (late["status"], late["grpc_status"]) == (408, "DEADLINE_EXCEEDED")
    lines = {line["request"]: line for line in map(json.loads, log.read_text().splitlines())}
    whole = lines["whole"]
    assert (whole["method"], whole["route"]) == ("POST", "/refrain.v1.Inference/Generate")
    assert (whole["status"], whole["grpc_status"], whole["complete"]) == (200, "OK", True)
    assert (whole["stream"], whole["choices"]) == (True, 1)
    assert (whole["prompt_tokens"], whole["completion_tokens"]) == (5, 5)
    assert 0 < whole["first_token_ms"] <= whole["duration_ms"]
    assert whole["request_bytes"] > 5 and whole["response_bytes"] > 5
    assert json.loads(whole["body"]) == {"text": {"text": "hello"}}
    assert (lines["wrong"]["status"], lines["wrong"]["grpc_status"]) == (400, "INVALID_ARGUMENT")
    assert lines["wrong"]["complete"] and "choices" not in lines["wrong"]
    assert lines["lookup"]["route"] == "/refrain.v1.Inference/Tokenize"
    assert lines["lookup"]["response_bytes"] > 0
    assert json.loads(lines["lookup"]["body"]) == {"text": "ab"}
    assert (lines["left"]["status"], lines["left"]["grpc_status"]) == (499, "CANCELLED")
    assert not lines["left"]["complete"] and lines["left"]["completion_tokens"] < 500


@pytest.mark.parametrize("served", ["off", "on"], indirect=True)
def test_prompts_are_in_the_request_log_only_when_asked(served, request):
    daemon, services, log = served
    secret = "xyzzy plugh"
    services("Inference/Tokenize", text=secret)
    list(services("Inference/Generate", text={"text": secret}))
    list(services("Inference/Chat", chat={"messages": [{"role": "user", "content": secret}]}))
    with pytest.raises(grpc.RpcError):
        list(services("Inference/Generate", text={"text": secret}, params={"n": 0}))
    assert len(lines_of(log, 4)) == 4
    assert (secret in log.read_text()) == (request.node.callspec.params["served"] == "on")
    assert secret not in daemon.log.read_text(errors="replace")


def test_every_call_is_counted(served):
    daemon, services, log = served
    make_calls(services)
    late_calls = len(make_late_calls(services, log))
    generate = {"grpc_service": "refrain.v1.Inference", "grpc_method": "Generate",
                "grpc_type": "server_stream"}
    for code, count in (("OK", 1), ("InvalidArgument", 1), ("DeadlineExceeded", 1)):
        assert value_of(daemon, "grpc_server_handled_total", grpc_code=code, **generate) == count
    assert value_of(daemon, "grpc_server_handled_total", grpc_method="Chat",
                    grpc_code="Canceled") == 1
    assert value_of(daemon, "grpc_server_handled_total", grpc_method="Tokenize",
                    grpc_type="unary", grpc_code="OK") == 1
    assert value_of(daemon, "grpc_server_handling_seconds_count", **generate) == 2 + late_calls
    assert value_of(daemon, "refrain_grpc_calls_total", code="OK", key="",
                    method="/refrain.v1.Inference/Generate") == 1


def test_streamed_tokens_are_timed_to_the_socket(start_daemon):
    """The real engine tells when it sampled."""
    name = "refrain_token_to_socket_seconds"
    daemon = start_daemon("--grpc-listen", "127.0.0.1:0").wait_until_ready()
    with grpc.insecure_channel(address(daemon)) as channel:
        services = Services(channel)
        messages = quick = 0
        # Others may have the processor now and then: one call whose messages are all quick shows it.
        for _ in range(5):
            said = list(services("Inference/Generate", text={"text": "Once upon"}, params={
                "stop": {"max_tokens": 8, "ignore_eos": True}}))
            messages += len(said)
            wait_until(lambda: value_of(daemon, f"{name}_count") >= messages)
            assert value_of(daemon, f"{name}_count") == messages
            before, quick = quick, value_of(daemon, f"{name}_bucket", le="0.05")
            if quick - before == len(said):
                return
    pytest.fail(f"of {messages} messages {messages - quick} took more than 50 ms")
