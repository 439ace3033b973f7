"""The fields of gRPC requests: what they do is what HTTP's do, what is wrong is refused alike."""

import json
import pathlib
import re

import grpc
import httpx
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from conftest import Daemon
from grpc_services import Services, address, text_of

pytestmark = pytest.mark.no_tsan

GRPC = ("--grpc-listen", "127.0.0.1:0")
DATA = pathlib.Path(__file__).parents[2] / "data" / "grpc-requests"
SAME = json.loads((DATA / "same.json").read_text())
WRONG = json.loads((DATA / "wrong.json").read_text())
PROMPT = "The capital of France is"
MESSAGES = [{"role": "user", "content": "hi"}]
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]
# Of these every value of their type is one.
ANY_VALUE = {"text.text", "text.add_special_tokens",
             "chat.messages.content", "chat.messages.name", "chat.messages.tool_call_id",
             "chat.messages.reasoning", "chat.include_reasoning", "chat.reasoning_effort",
             "chat.add_generation_prompt", "chat.parallel_tool_calls",
             "params.sampling.seed", "params.stop.ignore_eos", "params.stop.include_stop_in_output",
             "params.beam.early_stopping", "params.priority", "params.cache_report",
             "params.return_prompt_token_ids", "params.skip_special_tokens",
             "params.continuous_usage", "params.structured_output.json_object"}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'


def serve(daemon):
    channel = grpc.insecure_channel(address(daemon))
    return channel, Services(channel)


@pytest.fixture(name="daemon", scope="module")
def daemon_with_grpc(daemon_arguments, tmp_path_factory):
    running = Daemon(*daemon_arguments, tmp_path_factory.mktemp("fields"), *GRPC).wait_until_ready()
    yield running
    assert running.stop() == 0, running.log.read_text(errors="replace")


@pytest.fixture(name="services", scope="module")
def real_services(daemon):
    channel, services = serve(daemon)
    with channel:
        yield services


@pytest.fixture(name="fake", scope="module")
def fake_services(daemon_arguments, tmp_path_factory):
    """An engine that repeats its prompt, with a chat template with tools."""
    outputs = pathlib.Path(daemon_arguments[0]).absolute().parents[1]
    running = Daemon(str(outputs / "tests/server/refraind_fake"), "tools",
                     tmp_path_factory.mktemp("fields-fake"), *GRPC).wait_until_ready()
    channel, services = serve(running)
    with channel:
        yield services
    assert running.stop() == 0, running.log.read_text(errors="replace")


def merged(one: dict, other: dict) -> dict:
    """`other` over `one`, members of members too."""
    out = dict(one)
    for name, value in other.items():
        both = isinstance(value, dict) and isinstance(out.get(name), dict)
        out[name] = merged(out[name], value) if both else value
    return out


def proto(value, name=""):
    """Maps with number keys, which JSON cannot have."""
    if isinstance(value, dict):
        return {(int(key) if name == "logit_bias" else key): proto(inner, key)
                for key, inner in value.items()}
    return value


def over_http(daemon, fields: dict) -> dict:
    body = {"prompt": PROMPT, "max_tokens": 12, "temperature": 0, "return_token_ids": True, **fields}
    answer = httpx.post(f"{daemon.url}/v1/completions", json=body, timeout=120)
    answer.raise_for_status()
    choice = answer.json()["choices"][0]
    return {"text": choice["text"], "ids": choice["token_ids"], "prompt": choice["prompt_token_ids"],
            "finish": choice["finish_reason"]}


def over_grpc(services, params: dict) -> dict:
    plain = {"sampling": {"temperature": 0}, "stop": {"max_tokens": 12},
             "return_prompt_token_ids": True}
    messages = list(services("Inference/Generate", text={"text": PROMPT},
                             params=proto(merged(plain, params))))
    deltas = [delta for message in messages for delta in message.choices]
    ids = [token for delta in deltas for token in delta.token_ids[delta.prompt_tokens:]]
    ids += [delta.stop_token_id for delta in deltas if delta.HasField("stop_token_id")]
    finish = {1: "stop", 2: "length"}[deltas[-1].finish_reason]
    return {"text": text_of(messages), "ids": ids, "finish": finish,
            "prompt": [token for message in messages for token in message.prompt_token_ids]}


@pytest.fixture(name="plain", scope="module")
def plain_answer(daemon):
    return over_http(daemon, {})


def test_a_plain_request_answers_as_http_does(services, plain):
    assert over_grpc(services, {}) == plain


@pytest.mark.parametrize("row", SAME, ids=[row["name"] for row in SAME])
def test_a_field_does_what_it_does_over_http(daemon, services, plain, row):
    wanted = over_http(daemon, row["http"])
    assert (wanted == plain) == row.get("as_plain", False)
    assert over_grpc(services, row["params"]) == wanted


@pytest.mark.parametrize("row", WRONG, ids=[f"{i}-{row['field']}" for i, row in enumerate(WRONG)])
def test_what_is_wrong_is_refused_by_name(fake, row):
    if "chat" in row:
        call = fake("Inference/Chat", chat={"messages": MESSAGES, **row["chat"]})
    else:
        request = {"text": {"text": PROMPT}, **row.get("request", {})}
        call = fake("Inference/Generate", params=proto(row.get("params", {})), **request)
    with pytest.raises(grpc.RpcError) as error:
        list(call)
    assert error.value.code().name == row.get("code", "INVALID_ARGUMENT")
    assert row["message"] in error.value.details()
    violations = error_details_pb2.BadRequest()
    assert any(detail.Unpack(violations) for detail in rpc_status.from_call(error.value).details)
    assert violations.field_violations[0].field == row["field"]


def fields_of(message, prefix="") -> set[str]:
    """The paths of all values, lists and alternatives."""
    paths = {prefix + one.name for one in message.oneofs if not one.name.startswith("_")}
    for field in message.fields:
        inner = field.message_type
        if inner is None or field.is_repeated:
            paths.add(prefix + field.name)
        if inner is not None and not inner.GetOptions().map_entry:
            paths |= fields_of(inner, f"{prefix}{field.name}.")
    return paths


@pytest.mark.parametrize("message", ["GenerateRequest", "ChatRequest"])
def test_the_table_has_a_wrong_value_of_every_field_that_may_be_wrong(fake, message):
    """A field that is added to the messages is missed here until the table has it."""
    fields = fields_of(fake.message(message).DESCRIPTOR)
    refused = {re.sub(r"\[[0-9]+\]", "", row["field"]) for row in WRONG}
    assert fields - refused == fields & ANY_VALUE
    assert refused | ANY_VALUE <= fields_of(fake.message("GenerateRequest").DESCRIPTOR)


@pytest.mark.parametrize("beams", [False, True])
def test_prompt_logprobs_are_those_of_http(daemon, services, beams):
    body = {"prompt": PROMPT, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 2}
    rows = httpx.post(f"{daemon.url}/v1/completions", json=body,
                      timeout=120).json()["choices"][0]["prompt_logprobs"]
    messages = list(services("Inference/Generate", text={"text": PROMPT}, params={
        "sampling": {"temperature": 0}, "stop": {"max_tokens": 1}, "logprobs": {"prompt_top": 2},
        **({"beam": {}} if beams else {})}))
    told = [logprob for message in messages for logprob in message.prompt_logprobs]
    assert len(told) == len(rows)
    assert not told[0].HasField("logprob")
    for token, row in zip(told[1:], rows[1:]):
        own = row[str(token.token_id)]
        assert token.logprob == pytest.approx(own["logprob"], abs=1e-3)
        assert token.rank == own["rank"]
        assert {str(best.token_id) for best in token.top} <= set(row)
    assert len([delta for message in messages for delta in message.choices]) == 1


def test_the_logprob_of_an_end_token_is_that_of_http(daemon, services):
    """HTTP lists it behind those of the text's tokens."""
    ends = [30, 28, 260]
    body = {"prompt": PROMPT, "max_tokens": 12, "temperature": 0, "logprobs": 2,
            "stop_token_ids": ends}
    rows = httpx.post(f"{daemon.url}/v1/completions", json=body,
                      timeout=120).json()["choices"][0]["logprobs"]
    messages = list(services("Inference/Generate", text={"text": PROMPT}, params={
        "sampling": {"temperature": 0}, "stop": {"max_tokens": 12, "stop_token_ids": ends},
        "logprobs": {"top": 2}}))
    deltas = [delta for message in messages for delta in message.choices]
    told = [logprob for delta in deltas for logprob in delta.logprobs]
    end = deltas[-1].stop_logprob
    assert end.token_id == deltas[-1].stop_token_id in ends
    assert [one.logprob for one in [*told, end]] == pytest.approx(rows["token_logprobs"], abs=1e-3)
    assert [best.logprob for best in end.top] == pytest.approx(
        sorted(rows["top_logprobs"][-1].values(), reverse=True)[:2], abs=1e-3)
    assert end.rank == 1


def test_control_tokens_are_shown_on_request(services):
    def ask(**more):
        return text_of(services("Inference/Chat", chat={"messages": MESSAGES}, params={
            "sampling": {"temperature": 0}, "stop": {"max_tokens": 40, "ignore_eos": True}, **more}))
    assert "<|im_end|>" in ask(skip_special_tokens=False)
    assert "<|im_end|>" not in ask()


def test_the_cache_report_and_usage_in_every_message(services):
    def last_usage(text):
        messages = list(services("Inference/Generate", text={"text": text}, params={
            "stop": {"max_tokens": 3, "ignore_eos": True}, "cache_report": True,
            "continuous_usage": True}))
        assert len(messages) > 1
        assert all(message.HasField("usage") for message in messages)
        counts = [message.usage.completion_tokens for message in messages]
        assert counts == sorted(counts) and counts[-1] == 3
        return messages[-1].usage

    text = "A prompt of this test alone, about the bees of Normandy."
    assert last_usage(text).cache_miss.reason in (1, 2)  # never seen, diverged
    again = last_usage(text)
    assert not again.HasField("cache_miss")
    assert again.cached_tokens == again.prompt_tokens - 1


def test_tool_calls_are_parsed(fake):
    def ask(**more):
        return list(fake("Inference/Chat", metadata=[("x-request-id", "every turn's")], chat={
            "messages": [{"role": "user", "content": "Hm. " + CALL + CALL}],
            "tools_json": json.dumps(TOOLS), **more}))

    messages = ask()
    deltas = [delta for message in messages for delta in message.choices]
    calls = [call for delta in deltas for call in delta.tool_calls]
    assert text_of(messages) == "Hm."
    assert deltas[-1].finish_reason == 3
    assert [call.name for call in calls if call.HasField("name")] == ["weather", "weather"]
    again = [call for message in ask() for delta in message.choices for call in delta.tool_calls]
    assert len({call.id for call in calls + again if call.HasField("id")}) == 4
    for index in (0, 1):
        arguments = "".join(call.arguments for call in calls if call.index == index)
        assert json.loads(arguments) == {"city": "Paris"}
    first_only = ask(parallel_tool_calls=False)
    assert {call.index for message in first_only for delta in message.choices
            for call in delta.tool_calls} == {0}
    assert CALL in text_of(ask(tool_choice="none"))


@pytest.mark.parametrize("method, message", [
    ("Inference/Generate", "GenerateRequest"), ("Inference/Chat", "ChatRequest"),
    ("Inference/Tokenize", "TokenizeRequest"), ("Inference/Detokenize", "DetokenizeRequest"),
    ("Inference/Models", "ModelsRequest"), ("Admin/Warm", "WarmRequest"),
    ("Admin/Drop", "DropRequest")])
@pytest.mark.parametrize("wrong", [b"\xff", b"\x0a\x7fshort"])
def test_bytes_that_are_no_message_are_refused(fake, method, message, wrong):
    send = fake.channel.unary_stream(f"/refrain.v1.{method}")
    with pytest.raises(grpc.RpcError) as refused:
        list(send(wrong, timeout=10))
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert f"not a valid refrain.v1.{message}" in refused.value.details()


def test_text_that_is_not_utf8_is_refused(fake):
    send = fake.channel.unary_stream("/refrain.v1.Inference/Tokenize")
    text = fake.message("TokenizeRequest", text="ab").SerializeToString()
    assert list(send(text, timeout=10))
    with pytest.raises(grpc.RpcError) as refused:
        list(send(text.replace(b"ab", b"a\xff"), timeout=10))
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
