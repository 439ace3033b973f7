"""/v1/responses as the official client sees it: with a real model, and with the fake engine, which
says what the last message says."""

import asyncio
import json
import math

import httpx
import openai
import pytest

QUESTION = "What colour is the sky on a clear day?"
CAPITAL = "What is the capital of France?"  # answered in one sentence
TOOL = {"type": "function", "name": "weather", "description": "Tells the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                       "required": ["city"], "additionalProperties": False}, "strict": True}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "%s"}}\n</tool_call>'
LOGPROBS = {"include": ["message.output_text.logprobs"], "top_logprobs": 3}


@pytest.fixture
def fake(fake_daemon):
    with fake_daemon.client() as opened:
        yield opened


def told(response) -> dict:
    """What of a response does not change from one request to the next."""
    shown = response.model_dump(warnings="none")
    for name in ("id", "created_at", "usage"):
        shown.pop(name)
    for item in shown["output"]:
        assert item.pop("id").startswith("fc_" if item["type"] == "function_call" else "msg_")
        if item["type"] == "function_call":
            assert item.pop("call_id").startswith("call_")
            item.pop("parsed_arguments", None)
        for part in item.get("content", []):
            part.pop("parsed", None)
    return shown


def streamed(client, **options):
    """The events, and what the client's own helper puts together from them."""
    with client.responses.stream(**options) as stream:
        events = list(stream)
        return events, stream.get_final_response()


def test_answers_with_what_the_client_needs(client, model_id):
    answer = client.responses.create(model=model_id, input=CAPITAL, temperature=0,
                                     instructions="Be brief.", max_output_tokens=64,
                                     metadata={"run": "7"}, store=True, user="me")
    assert "Paris" in answer.output_text
    assert (answer.object, answer.status, answer.model) == ("response", "completed", model_id)
    assert answer.id.startswith("resp_")
    assert answer.error is None and answer.incomplete_details is None
    assert (answer.instructions, answer.metadata, answer.user) == ("Be brief.", {"run": "7"}, "me")
    assert (answer.temperature, answer.max_output_tokens, answer.store) == (0, 64, False)
    assert (answer.tools, answer.tool_choice, answer.parallel_tool_calls) == ([], "auto", True)
    assert answer.text.format.type == "text"
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens
    assert answer.usage.output_tokens_details.reasoning_tokens == 0
    # Nothing is missing that the client's own model of a response requires.
    type(answer).model_validate(answer.model_dump(warnings="none"))


def test_is_the_same_as_the_chat(client, model_id):
    chat = client.chat.completions.create(
        model=model_id, temperature=0, max_completion_tokens=24,
        messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}])
    for said in (QUESTION, [{"role": "user", "content": QUESTION}],
                 [{"type": "message", "role": "user",
                   "content": [{"type": "input_text", "text": QUESTION}]}]):
        answer = client.responses.create(model=model_id, input=said, temperature=0,
                                         instructions="Be brief.", max_output_tokens=24)
        assert answer.output_text == chat.choices[0].message.content
        assert answer.usage.input_tokens == chat.usage.prompt_tokens


# Whether an answer that is sampled ends by itself depends on the processor's rounding.
@pytest.mark.parametrize("more, status", [
    ({"temperature": 0}, "completed"), ({"temperature": 0, **LOGPROBS}, "completed"),
    ({"temperature": 1, "max_output_tokens": 3}, "incomplete")])
def test_a_stream_tells_the_same_as_the_whole_answer(reproducible, more, status):
    options = {"model": "", "input": CAPITAL, "extra_body": {"seed": 5}, **more}
    with reproducible.client() as client:
        whole = client.responses.create(**options)
        if status == "completed":
            events, final = streamed(client, **options)
        else:  # which the helper has no final response of
            events = list(client.responses.create(stream=True, **options))
            final = events[-1].response
    assert told(final) == told(whole)
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:4]] == [
        "response.created", "response.in_progress", "response.output_item.added",
        "response.content_part.added"]
    assert events[-1].type == f"response.{status}" == f"response.{whole.status}"
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    assert "".join(event.delta for event in deltas) == whole.output_text
    # One event per token, but for what ends inside of a character, and the end token.
    assert whole.usage.output_tokens * 0.8 <= len(deltas) + 1 <= whole.usage.output_tokens + 1


def test_the_helper_puts_an_answer_together(client, model_id):
    events, final = streamed(client, model=model_id, input=CAPITAL, temperature=0,
                             max_output_tokens=64)
    assert (final.status, final.output_text) == ("completed", "The capital of France is Paris.")
    snapshots = [event.snapshot for event in events if event.type == "response.output_text.delta"]
    assert snapshots[-1] == final.output_text


def test_the_limit_leaves_an_answer_incomplete(client, model_id):
    answer = client.responses.create(model=model_id, input=QUESTION, max_output_tokens=2)
    assert answer.status == "incomplete"
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert answer.output[0].status == "incomplete"
    assert answer.usage.output_tokens == 2


def test_logprobs_are_those_of_the_text(client, model_id):
    answer = client.responses.create(model=model_id, input=QUESTION, temperature=0,
                                     max_output_tokens=8, **LOGPROBS)
    tokens = answer.output[0].content[0].logprobs
    assert "".join(token.token for token in tokens) == answer.output_text
    for token in tokens:
        assert len(token.top_logprobs) == 3
        assert token.top_logprobs[0].logprob >= token.logprob
        assert math.isfinite(token.logprob) and bytes(token.bytes).decode() == token.token
    without = client.responses.create(model=model_id, input=QUESTION, max_output_tokens=2)
    assert without.output[0].content[0].logprobs == []


def test_turns_are_found_in_the_cache(client, model_id):
    """A client that keeps the conversation itself and passes the output items back as they are."""
    items, cached, known = [], [], 0
    for question in ("Name a river.", "And a longer one?", "Why is that?", "Thanks."):
        items.append({"role": "user", "content": question})
        answer = client.responses.create(model=model_id, input=items, instructions="Be kind.",
                                         max_output_tokens=32)
        found = answer.usage.input_tokens_details.cached_tokens
        assert not cached or found >= 0.9 * known
        cached.append(found)
        known = answer.usage.input_tokens + answer.usage.output_tokens
        items += answer.output
    assert cached[1:] == sorted(cached[1:]) and cached[-1] > cached[1]


def test_a_warm_request_computes_the_prompt_alone(client, model_id):
    said = "A prompt that is computed first and then asked for."
    warm = client.responses.create(model=model_id, input=said, max_output_tokens=0)
    assert (warm.usage.output_tokens, warm.output_text) == (0, "")
    answer = client.responses.create(model=model_id, input=said, max_output_tokens=1)
    assert answer.usage.input_tokens_details.cached_tokens == answer.usage.input_tokens - 1


def test_the_asynchronous_client_works(daemon, model_id):
    async def ask():
        async with openai.AsyncOpenAI(base_url=f"{daemon.url}/v1", api_key="none") as client:
            options = {"model": model_id, "input": CAPITAL, "temperature": 0,
                       "max_output_tokens": 64}
            whole = await client.responses.create(**options)
            async with client.responses.stream(**options) as stream:
                events = [event async for event in stream]
                final = await stream.get_final_response()
        assert told(final) == told(whole)
        assert events[-1].type == "response.completed"

    asyncio.run(ask())


def test_calls_make_a_round_trip(fake):
    said = "Let me see. " + CALL % "Paris" + CALL % "Rome"
    first = fake.responses.create(model="fake-model", tools=[TOOL], input=said)
    message, *calls = first.output
    assert first.output_text == "Let me see."
    assert [json.loads(call.arguments)["city"] for call in calls] == ["Paris", "Rome"]
    assert len({call.call_id for call in calls} | {call.id for call in calls}) == 4
    assert {call.status for call in calls} == {"completed"} and message.status == "completed"
    assert first.tools[0].name == "weather" and first.tools[0].strict
    results = [{"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
               for call in calls]
    second = fake.responses.create(model="fake-model", tools=[TOOL], input=[
        {"role": "user", "content": said}, *first.output, *results])
    assert second.output_text == "sunny"


def test_streamed_calls_are_the_same(fake):
    options = {"model": "fake-model", "tools": [TOOL],
               "input": "Let me see. " + CALL % "Paris" + CALL % "Rome"}
    whole = fake.responses.create(**options)
    events, final = streamed(fake, **options)
    assert told(final) == told(whole)
    assert final.output[1].parsed_arguments == {"city": "Paris"}
    pieces = [event for event in events if event.type == "response.function_call_arguments.delta"]
    assert len(pieces) > 10 and pieces[-1].snapshot == whole.output[2].arguments
    done = [event for event in events if event.type == "response.function_call_arguments.done"]
    assert [(event.name, event.output_index) for event in done] == [("weather", 1), ("weather", 2)]


def test_parallel_calls_can_be_switched_off(fake):
    answer = fake.responses.create(model="fake-model", tools=[TOOL], parallel_tool_calls=False,
                                   input=CALL % "Paris" + CALL % "Rome")
    assert [item.type for item in answer.output] == ["function_call"]
    assert answer.parallel_tool_calls is False
    none = fake.responses.create(model="fake-model", tools=[TOOL], tool_choice="none",
                                 input=CALL % "Paris")
    assert none.output_text == CALL % "Paris"


def test_what_fails_in_a_stream_raises(fake):
    with pytest.raises(openai.APIError) as error:
        list(fake.responses.create(model="fake-model", stream=True,
                                   input="[[delay_ms=50]][[fail_after=2]]abc"))
    assert error.value.code == "internal_error"
    with pytest.raises(openai.APIError):
        streamed(fake, model="fake-model", input="[[delay_ms=50]][[fail_after=2]]abc")
    for stream in (False, True):
        with pytest.raises(openai.RateLimitError):
            fake.responses.create(model="fake-model", stream=stream, input="[[reject=8]]x")


@pytest.mark.parametrize("fields, param", [
    ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"conversation": "conv_1"}, "conversation"),
    ({"prompt": {"id": "p"}}, "prompt"),
    ({"background": True}, "background"),
    ({"tools": [{"type": "web_search"}]}, "tools[0]"),
    ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "other"}}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": {"type": "web_search_preview"}}, "tool_choice"),
    ({"text": {"format": {"type": "grammar"}}}, "text.format"),
    ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x",
                                              "detail": "auto"}]}]}, "input[0].content[0]"),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]"),
    ({"truncation": "middle"}, "truncation"),
    ({"extra_body": {"n": 2}}, "n"),
    ({"metadata": {str(i): "" for i in range(17)}}, "metadata"),
])
def test_what_is_not_supported_is_refused(fake, fields, param):
    with pytest.raises(openai.BadRequestError) as error:
        fake.responses.create(**{"model": "fake-model", "input": "hi", **fields})
    assert error.value.param == param


def test_an_unknown_model_is_not_found(fake):
    with pytest.raises(openai.NotFoundError) as error:
        fake.responses.create(model="other", input="hi")
    assert error.value.code == "model_not_found"


def test_nothing_is_stored(fake, fake_daemon):
    answer = fake.responses.create(model="fake-model", input="hi", store=True)
    for call in (fake.responses.retrieve, fake.responses.delete, fake.responses.cancel):
        with pytest.raises(openai.NotFoundError):
            call(answer.id)
    assert httpx.get(f"{fake_daemon.url}/v1/responses").status_code == 405
