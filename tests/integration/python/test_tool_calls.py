"""Tool calls as the official client sees them; the fake engine says what the user says."""

import json

import openai
import pytest

TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "Tells the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "%s"}}\n</tool_call>'


@pytest.fixture
def tool_client(fake_daemon):
    with fake_daemon.client() as opened:
        yield opened


def ask(client, said, **options):
    return client.chat.completions.create(model="fake-model", tools=TOOLS,
                                          messages=[{"role": "user", "content": said}], **options)


def test_calls_are_parsed(tool_client):
    choice = ask(tool_client, "Let me see. " + CALL % "Paris" + CALL % "Rome").choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me see."
    calls = choice.message.tool_calls
    assert [json.loads(call.function.arguments)["city"] for call in calls] == ["Paris", "Rome"]
    assert len({call.id for call in calls}) == 2


def test_ids_of_calls_differ_whatever_the_requests_are_called(tool_client):
    """A client that sends one x-request-id with all turns of a conversation."""
    same = {"extra_headers": {"x-request-id": "turn"}}
    calls = [ask(tool_client, CALL % "Paris", **same).choices[0].message.tool_calls[0]
             for _ in range(2)]
    calls += [event.choices[0].delta.tool_calls[0]
              for event in ask(tool_client, CALL % "Rome", stream=True, **same)
              if event.choices[0].delta.tool_calls and event.choices[0].delta.tool_calls[0].id]
    assert len({call.id for call in calls}) == len(calls) == 3


def test_streamed_calls_are_the_same(tool_client):
    said = "Let me see. " + CALL % "Paris" + CALL % "Rome"
    with tool_client.chat.completions.stream(
            model="fake-model", tools=TOOLS,
            messages=[{"role": "user", "content": said}]) as stream:
        choice = stream.get_final_completion().choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me see."
    assert [json.loads(call.function.arguments)["city"]
            for call in choice.message.tool_calls] == ["Paris", "Rome"]


def test_a_call_is_streamed_as_it_is_written(tool_client):
    """As OpenAI streams it: id, type and name first, then the arguments, piece by piece."""
    deltas = [delta for event in ask(tool_client, CALL % "Paris", stream=True)
              for delta in event.choices[0].delta.tool_calls or []]
    first, pieces = deltas[0], deltas[1:]
    assert (first.index, first.type, first.function.name, first.function.arguments) == (
        0, "function", "weather", "")
    assert first.id
    assert len(pieces) > 5
    assert all((piece.index, piece.id, piece.function.name) == (0, None, None) for piece in pieces)
    arguments = "".join(piece.function.arguments for piece in pieces)
    assert json.loads(arguments) == {"city": "Paris"}
    whole = ask(tool_client, CALL % "Paris").choices[0].message.tool_calls[0]
    assert arguments == whole.function.arguments


def test_the_events_of_the_stream_helper(tool_client):
    with tool_client.chat.completions.stream(
            model="fake-model", tools=TOOLS,
            messages=[{"role": "user", "content": CALL % "Rome"}]) as stream:
        events = [event for event in stream
                  if event.type.startswith("tool_calls.function.arguments")]
    assert events[-1].type == "tool_calls.function.arguments.done"
    assert json.loads(events[-1].arguments) == {"city": "Rome"}
    assert "".join(event.arguments_delta for event in events[:-1]) == events[-1].arguments


def test_parallel_calls_can_be_switched_off(tool_client):
    message = ask(tool_client, CALL % "Paris" + CALL % "Rome",
                  parallel_tool_calls=False).choices[0].message
    assert len(message.tool_calls) == 1
    assert message.content is None


def test_a_conversation_with_calls_goes_back_in(tool_client):
    call = ask(tool_client, CALL % "Paris").choices[0].message
    answer = tool_client.chat.completions.create(model="fake-model", tools=TOOLS, messages=[
        {"role": "user", "content": "Weather in Paris?"}, call.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.tool_calls[0].id, "content": "sunny"}])
    assert answer.choices[0].message.content == "sunny"
    assert answer.choices[0].finish_reason == "stop"


NAMED = {"type": "function", "function": {"name": "weather"}}


@pytest.mark.parametrize("choice", ["required", NAMED])
def test_forced_calls_are_told_as_others_are(tool_client, choice):
    whole = ask(tool_client, CALL % "Paris", tool_choice=choice).choices[0]
    assert whole.finish_reason == "tool_calls"
    assert [call.function.name for call in whole.message.tool_calls] == ["weather"]
    *_, last = ask(tool_client, CALL % "Paris", tool_choice=choice, stream=True)
    assert last.choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize("fields, param", [
    ({"tool_choice": {"type": "function", "function": {"name": "other"}}}, "tool_choice"),
    ({"tool_choice": "required", "extra_body": {"structured_outputs": {"json": {}}}},
     "tool_choice"),
    ({"tool_choice": NAMED, "extra_body": {"guided_regex": "a"}}, "tool_choice"),
    ({"tool_choice": "required", "extra_body": {"allowed_token_ids": [1]}}, "allowed_token_ids"),
    ({"response_format": {"type": "json_object"}, "extra_body": {"guided_regex": "a"}},
     "guided_regex"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": []}}},
     "response_format.json_schema.schema"),
])
def test_what_cannot_be_forced_is_refused(tool_client, fields, param):
    with pytest.raises(openai.BadRequestError) as error:
        ask(tool_client, "hi", **fields)
    assert error.value.param == param


def test_choice_none_leaves_the_text_alone(tool_client):
    choice = ask(tool_client, CALL % "Paris", tool_choice="none").choices[0]
    assert choice.message.content == CALL % "Paris"
    assert not choice.message.tool_calls
