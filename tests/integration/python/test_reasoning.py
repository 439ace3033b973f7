"""What a model thinks, apart from its answer, end to end.

The chat template shows the model the same thought and answer a dozen times, which it then repeats.
"""

import re

import grpc
import pytest
from conftest import Daemon
from grpc_services import Services, address, text_of

TEMPLATE = r"""
{{- messages[0].content }}
{%- for i in range(12) %}
{{- '\nQ: Count.\nA: <think>\none two three\n</think>\n\nfour five six. END' }}
{%- endfor %}
{%- for message in messages if message.role == 'assistant' %}
{{- '\nQ: Count.\nA: <think>\n' + message.reasoning_content + '\n</think>\n\n' + message.content }}
{{- 'END' }}
{%- endfor %}
{{- '\nQ: Count.\nA:' }}
{%- if thought == 'opened' %}{{ ' <think>\n' }}{% endif %}
{%- if thought == 'closed' %}{{ ' <think>\none two three\n</think>' }}{% endif %}
"""
MESSAGES = [{"role": "user", "content": "Hi"}]
OPENED = {"chat_template_kwargs": {"thought": "opened"}}
CLOSED = {"chat_template_kwargs": {"thought": "closed"}}
THOUGHT, ANSWER = "one two three", "four five six. "
CLOSING_TOKENS = 3  # of "</think>"


def start(daemon_arguments, tmp_path_factory, *arguments):
    folder = tmp_path_factory.mktemp("reasoning")
    template = folder / "thinks.jinja"
    template.write_text(TEMPLATE)
    return Daemon(*daemon_arguments, folder, "--set", f"model.chat_template_file={template}",
                  *arguments).wait_until_ready()


@pytest.fixture(name="client", scope="module")
def client_of_thinker(daemon_arguments, tmp_path_factory):
    running = start(daemon_arguments, tmp_path_factory)
    with running.client() as opened:
        yield opened
    assert running.stop() == 0, running.log.read_text(errors="replace")


def ask(client, messages=None, **options):
    body = {"temperature": 0, "max_tokens": 60, "stop": ["END"]} | options
    return client.chat.completions.create(model="", messages=messages or MESSAGES, **body)


def streamed(client, **options):
    """Thought, answer and usage, as clients join the deltas."""
    thought, answer, usage = "", "", None
    for event in ask(client, stream=True, stream_options={"include_usage": True}, **options):
        for choice in event.choices:
            thought += getattr(choice.delta, "reasoning_content", None) or ""
            answer += choice.delta.content or ""
        usage = event.usage or usage
    return thought, answer, usage


@pytest.mark.parametrize("extra", [{}, OPENED], ids=["by the model", "by the prompt"])
def test_a_thought_is_told_apart_however_it_was_opened(client, extra):
    response = ask(client, extra_body=extra)
    message = response.choices[0].message
    assert (message.reasoning_content, message.content) == (THOUGHT, ANSWER)
    counted = response.usage.completion_tokens_details.reasoning_tokens
    assert 3 < counted < response.usage.completion_tokens
    thought, answer, usage = streamed(client, extra_body=extra)
    assert (thought, answer) == (THOUGHT, ANSWER)
    assert usage.completion_tokens_details.reasoning_tokens == counted


def test_a_prompt_that_closes_the_thought_leaves_none(client):
    response = ask(client, extra_body=CLOSED)
    message = response.choices[0].message
    assert message.content == f"\n\n{ANSWER}"
    assert not hasattr(message, "reasoning_content")
    assert response.usage.completion_tokens_details.reasoning_tokens == 0


@pytest.mark.parametrize(("extra", "opening_tokens"), [({}, 3), (OPENED, 0)],
                         ids=["by the model", "by the prompt"])
def test_a_budget_closes_the_thought(client, extra, opening_tokens):
    """Whole, streamed, as a response and over several choices; then the model goes on."""
    thoughts = []
    for budget in (0, 2, 3):
        limited = extra | {"thinking_token_budget": budget}
        response = ask(client, extra_body=limited)
        message = response.choices[0].message
        thought, answer = getattr(message, "reasoning_content", ""), message.content
        assert THOUGHT.startswith(thought) and answer and not answer.startswith("</think>")
        thoughts.append(thought)
        counted = response.usage.completion_tokens_details.reasoning_tokens
        assert counted == opening_tokens + budget + CLOSING_TOKENS
        *told, usage = streamed(client, extra_body=limited)
        assert told == [thought, answer]
        assert usage.completion_tokens_details.reasoning_tokens == counted
        three = ask(client, n=3, temperature=0, extra_body=limited)
        assert {choice.message.content for choice in three.choices} == {answer}
        assert three.usage.completion_tokens_details.reasoning_tokens == 3 * counted
        items = client.responses.create(model="", input="Hi", temperature=0, max_output_tokens=60,
                                        extra_body=limited | {"stop": ["END"]}).output
        assert [item.content[0].text for item in items] == [thought, answer][-len(items):]
        assert len(items) == (2 if thought else 1)
    assert thoughts[0] == "" < thoughts[1] < thoughts[2]


def test_a_budget_ends_a_thought_that_would_never_end(client):
    never = OPENED | {"bad_words": ["<", "</"]}
    message = ask(client, extra_body=never).choices[0].message
    assert (len(message.reasoning_content) > 50, message.content) == (True, "")
    response = ask(client, logprobs=True, extra_body=never | {"thinking_token_budget": 12})
    message = response.choices[0].message
    assert message.content and "</think>" not in message.content
    counted = response.usage.completion_tokens_details.reasoning_tokens
    assert counted == 12 + CLOSING_TOKENS
    said = [entry.token for entry in response.choices[0].logprobs.content]
    assert "".join(said[12:12 + CLOSING_TOKENS]) == "</think>"


def test_a_form_is_that_of_the_answer_behind_the_budget(client):
    form = {"structured_outputs": {"regex": "(four|five) [0-9]{2}"}}
    message = ask(client, extra_body=OPENED | form | {"thinking_token_budget": 2}).choices[0].message
    assert message.reasoning_content == "one two"
    assert re.fullmatch("(four|five) [0-9]{2}", message.content)


def test_a_budget_changes_nothing_where_nothing_is_thought(client):
    plain = ask(client, extra_body=CLOSED).choices[0].message
    assert ask(client, extra_body=CLOSED | {"thinking_token_budget": 0}).choices[0].message == plain


def test_a_limit_inside_of_the_thought_leaves_no_answer(client):
    choice = ask(client, max_tokens=2, extra_body=OPENED).choices[0]
    assert choice.finish_reason == "length"
    assert THOUGHT.startswith(choice.message.reasoning_content)
    assert choice.message.content == ""


def test_a_thought_may_be_left_out(client):
    left_out = OPENED | {"include_reasoning": False}
    message = ask(client, extra_body=left_out).choices[0].message
    assert message.content == ANSWER
    assert not hasattr(message, "reasoning_content")
    thought, answer, usage = streamed(client, extra_body=left_out)
    assert (thought, answer) == ("", ANSWER)
    assert usage.completion_tokens_details.reasoning_tokens > 3


@pytest.mark.parametrize("extra", [{}, OPENED], ids=["by the model", "by the prompt"])
def test_a_thought_that_comes_back_is_met_in_the_cache(client, extra):
    """The answer goes back as it came, and the template shows its thought again."""
    first = ask(client, extra_body=extra | {"cache_salt": str(extra)})
    message = first.choices[0].message
    second = ask(client, [*MESSAGES, message.model_dump(exclude_none=True)],
                 extra_body=extra | {"cache_salt": str(extra)})
    found = second.usage.prompt_tokens_details.cached_tokens
    # Of the stop string's tokens nothing is known.
    assert found >= first.usage.prompt_tokens + first.usage.completion_tokens - 2
    assert second.choices[0].message.reasoning_content == THOUGHT


@pytest.mark.parametrize("extra", [{}, OPENED], ids=["by the model", "by the prompt"])
def test_responses_have_an_item_for_it(client, extra):
    """Whole, streamed through the client's own helper, and passed back as it came."""
    options = {"model": "", "temperature": 0, "max_output_tokens": 60,
               "extra_body": extra | {"stop": ["END"], "cache_salt": f"responses {extra}"}}
    whole = client.responses.create(input="Hi", **options)
    reasoning, message = whole.output
    assert (reasoning.type, reasoning.status, reasoning.summary) == ("reasoning", "completed", [])
    assert [(part.type, part.text) for part in reasoning.content] == [("reasoning_text", THOUGHT)]
    assert (message.type, whole.output_text) == ("message", ANSWER)
    counted = whole.usage.output_tokens_details.reasoning_tokens
    assert 3 < counted < whole.usage.output_tokens
    type(whole).model_validate(whole.model_dump(warnings="none"))  # as the client's types have it

    with client.responses.stream(input="Hi", **options) as stream:
        events = list(stream)
        final = stream.get_final_response()
    for event in events:
        type(event).model_validate(event.model_dump(warnings="none"))
    thought = [event.delta for event in events if event.type == "response.reasoning_text.delta"]
    assert len(thought) > 2 and "".join(thought) == THOUGHT
    assert (final.output[0].content[0].text, final.output_text) == (THOUGHT, ANSWER)
    assert final.usage.output_tokens_details.reasoning_tokens == counted

    second = client.responses.create(input=[{"role": "user", "content": "Hi"}, *final.output],
                                     **options)
    found = second.usage.input_tokens_details.cached_tokens
    assert found >= whole.usage.input_tokens + whole.usage.output_tokens - 2
    assert second.output[0].content[0].text == THOUGHT


def test_a_response_may_be_cut_in_its_thought(client):
    cut = client.responses.create(model="", input="Hi", temperature=0, max_output_tokens=2,
                                  extra_body=OPENED)
    assert (cut.status, [item.type for item in cut.output]) == ("incomplete", ["reasoning"])
    assert cut.output[0].status == "incomplete" and cut.output_text == ""
    assert THOUGHT.startswith(cut.output[0].content[0].text)


def test_completions_are_left_alone(client):
    prompt = "A: <think>\none two three\n</think>\n\nfour END\n" * 12 + "A: <think>\n"
    response = client.completions.create(model="", prompt=prompt, temperature=0, max_tokens=60,
                                         stop=["END"])
    assert response.choices[0].text == f"{THOUGHT}\n</think>\n\nfour "
    limited = client.completions.create(model="", prompt=prompt, temperature=0, max_tokens=60,
                                        stop=["END"], extra_body={"thinking_token_budget": 2})
    assert limited.choices[0].text == "one two</think>\n\nfour "


def test_the_configuration_can_leave_thoughts_in_the_answer(daemon_arguments, tmp_path_factory):
    running = start(daemon_arguments, tmp_path_factory, "--set", "model.reasoning=off")
    with running.client() as off:
        response = ask(off, extra_body=OPENED)
    message = response.choices[0].message
    assert message.content == f"{THOUGHT}\n</think>\n\n{ANSWER}"
    assert not hasattr(message, "reasoning_content")
    assert response.usage.completion_tokens_details is None
    with running.client() as off:
        limited = ask(off, extra_body=OPENED | {"thinking_token_budget": 2})
        assert limited.choices[0].message.content == f"one two</think>\n\n{ANSWER}"
        response = off.responses.create(model="", input="Hi", temperature=0, max_output_tokens=60,
                                        extra_body=OPENED | {"stop": ["END"]})
    assert response.output_text == f"{THOUGHT}\n</think>\n\n{ANSWER}"
    assert [item.type for item in response.output] == ["message"]
    assert response.usage.output_tokens_details.reasoning_tokens == 0
    assert running.stop() == 0


@pytest.mark.no_tsan
def test_grpc_tells_the_same(daemon_arguments, tmp_path_factory):
    running = start(daemon_arguments, tmp_path_factory, "--grpc-listen", "127.0.0.1:0")
    with grpc.insecure_channel(address(running)) as channel:
        services = Services(channel)
        for include in (None, True, False):
            chat = {"messages": MESSAGES, "chat_template_kwargs_json": '{"thought": "opened"}'}
            if include is not None:
                chat["include_reasoning"] = include
            messages = list(services("Inference/Chat", chat=chat, params={
                "sampling": {"temperature": 0}, "stop": {"max_tokens": 60, "stop": ["END"]}}))
            thought = "".join(delta.reasoning for one in messages for delta in one.choices)
            assert text_of(messages) == ANSWER
            assert thought == ("" if include is False else THOUGHT)
            assert 3 < messages[-1].usage.reasoning_tokens < messages[-1].usage.completion_tokens
        limited = list(services("Inference/Chat", chat=chat, params={
            "sampling": {"temperature": 0, "thinking_token_budget": 2},
            "stop": {"max_tokens": 60, "stop": ["END"]}}))
        assert text_of(limited) == ANSWER
        assert limited[-1].usage.reasoning_tokens == 2 + CLOSING_TOKENS
    assert running.stop() == 0
