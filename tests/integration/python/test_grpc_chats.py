"""Chats over gRPC beside the same chats over HTTP: what the model is shown, and what it answers."""

import json

import grpc
import httpx
import pytest
from conftest import Daemon
from grpc_services import Services, address, text_of

pytestmark = pytest.mark.no_tsan

# Shows all that a request can tell a template.
TEMPLATE = """{% if tools %}{% for tool in tools %}{{ tool | tojson }}
{% endfor %}Answer with <tool_call>{"name": ..., "arguments": ...}</tool_call>
{% endif %}{% if documents %}{% for document in documents %}Document: {{ document | tojson }}
{% endfor %}{% endif %}{% if reasoning_effort %}Effort: {{ reasoning_effort }}
{% endif %}{% if enable_thinking is false %}Answer at once.
{% endif %}{% for message in messages %}{{ message.role }}: {{ message.content }}
{% endfor %}assistant: """
MESSAGES = [{"role": "user", "content": "How do bees tell each other of flowers?"}]
DOCUMENTS = [{"title": "Bees", "text": "They dance."}, {"text": "Flowers are red.", "year": 1923}]
TOOLS = [{"type": "function", "function": {"name": "plan", "parameters": {
             "type": "object", "properties": {"day": {"enum": ["Monday", "Sunday"]}},
             "required": ["day"], "additionalProperties": False}}},
         {"type": "function", "function": {"name": "forget"}}]


@pytest.fixture(name="daemon", scope="module")
def daemon_with_template(daemon_arguments, tmp_path_factory):
    folder = tmp_path_factory.mktemp("chats")
    template = folder / "template.jinja"
    template.write_text(TEMPLATE)
    running = Daemon(*daemon_arguments, folder, "--grpc-listen", "127.0.0.1:0", "--set",
                     f"model.chat_template_file={template}").wait_until_ready()
    yield running
    assert running.stop() == 0, running.log.read_text(errors="replace")


@pytest.fixture(name="services", scope="module")
def services_of_daemon(daemon):
    with grpc.insecure_channel(address(daemon)) as channel:
        yield Services(channel)


def over_http(daemon, salt: str, **fields) -> dict:
    body = {"messages": MESSAGES, "max_tokens": 12, "temperature": 0, "return_token_ids": True,
            "cache_salt": salt, **fields}
    answer = httpx.post(f"{daemon.url}/v1/chat/completions", json=body, timeout=120)
    answer.raise_for_status()
    answer = answer.json()
    message = answer["choices"][0]["message"]
    details = answer["usage"]["prompt_tokens_details"]
    return {"prompt": answer["prompt_token_ids"], "text": message["content"] or "",
            "calls": [(call["function"]["name"], call["function"]["arguments"])
                      for call in message.get("tool_calls") or []],
            "usage": (answer["usage"]["prompt_tokens"], details["cached_tokens"],
                      details["cache_write_tokens"], answer["usage"]["completion_tokens"])}


def over_grpc(services, salt: str, max_tokens=12, **chat) -> dict:
    messages = list(services("Inference/Chat", chat={"messages": MESSAGES, **chat}, params={
        "sampling": {"temperature": 0}, "stop": {"max_tokens": max_tokens},
        "return_prompt_token_ids": True, "cache_salt": salt}))
    calls: dict[int, list[str]] = {}
    for call in (call for message in messages for delta in message.choices
                 for call in delta.tool_calls):
        one = calls.setdefault(call.index, ["", ""])
        one[0] += call.name
        one[1] += call.arguments
    usage = messages[-1].usage
    return {"prompt": [token for message in messages for token in message.prompt_token_ids],
            "text": text_of(messages), "calls": [tuple(call) for call in calls.values()],
            "usage": (usage.prompt_tokens, usage.cached_tokens, usage.cache_write_tokens,
                      usage.completion_tokens)}


@pytest.mark.parametrize("http, chat", [
    ({"documents": DOCUMENTS}, {"documents_json": json.dumps(DOCUMENTS)}),
    ({"reasoning_effort": "high"}, {"reasoning_effort": "high"}),
    ({"reasoning_effort": "none"}, {"reasoning_effort": "none"}),
    ({"reasoning_effort": "none", "documents": DOCUMENTS,
      "chat_template_kwargs": {"enable_thinking": True, "documents": DOCUMENTS[:1]}},
     {"reasoning_effort": "none", "documents_json": json.dumps(DOCUMENTS),
      "chat_template_kwargs_json": json.dumps(
          {"enable_thinking": True, "documents": DOCUMENTS[:1]})}),
], ids=["documents", "effort", "no-effort", "kwargs"])
def test_the_model_is_told_what_it_is_told_over_http(daemon, services, http, chat):
    wanted = over_http(daemon, "http", **http)
    assert over_grpc(services, "grpc", **chat) == wanted
    assert over_grpc(services, "plain")["prompt"] != wanted["prompt"]


def test_what_is_written_into_the_cache_is_told(daemon, services):
    for is_first in (True, False):
        usage = over_grpc(services, "usage of gRPC", max_tokens=1)["usage"]
        prompt, cached, written, generated = usage
        assert (cached, generated) == (0 if is_first else prompt - 1, 1)
        assert written == prompt - cached
        assert over_http(daemon, "usage of HTTP", max_tokens=1)["usage"] == usage


@pytest.mark.parametrize("name", ["plan", "forget"])
def test_calls_are_of_the_allowed_tools(daemon, services, name):
    wanted = over_http(
        daemon, "http", tools=TOOLS, parallel_tool_calls=False, max_tokens=100,
        tool_choice={"type": "allowed_tools", "allowed_tools": {
            "mode": "required", "tools": [{"type": "function", "function": {"name": name}}]}})
    assert [call[0] for call in wanted["calls"]] == [name]
    assert over_grpc(services, "grpc", max_tokens=100, tools_json=json.dumps(TOOLS),
                     tool_choice="required", allowed_tools=[name],
                     parallel_tool_calls=False) == wanted
