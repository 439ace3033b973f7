"""Answers that are held to a form, as the official client asks for them: whatever the model would
rather say, what it says is valid."""

import json
import re
from typing import Annotated, Literal, Optional

import jsonschema_rs
import openai
import pytest
from pydantic import BaseModel, Field

from conftest import Daemon

# Strings and lists are bounded: a small model ends them late, and an answer that max_tokens cuts is
# valid up to there only.
Word = Annotated[str, Field(max_length=12)]


class Address(BaseModel):
    street: Word
    number: Annotated[int, Field(ge=1, le=999)]


class Person(BaseModel):
    name: Word
    age: Annotated[int, Field(ge=0, le=130)]
    mood: Literal["happy", "sad", "hungry"]
    home: Address
    tags: Annotated[list[Word], Field(max_length=2)]
    nickname: Optional[Word]


MESSAGES = [{"role": "user", "content": "Describe a person as JSON."}]
SCHEMA = {"type": "object", "required": ["city", "days"], "additionalProperties": False,
          "properties": {"city": {"type": "string", "minLength": 1, "maxLength": 12},
                         "days": {"type": "array", "minItems": 1, "maxItems": 3,
                                  "items": {"enum": ["Monday", "Sunday"]}}}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "trip", "schema": SCHEMA, "strict": True}}
PHONE = r"(\+[0-9]{1,2} )?[0-9]{3}-[0-9]{4}"
# Brackets in pairs as deep as the model likes, which no pattern describes; the rest is bounded.
LISTS = r"""
root ::= list            # [a, [bc, []]]
list ::= "[" items? "]"
items ::= item (", " item){,2}
item ::=
    [a-c\xe9]{1,3} |
    list
"""
SUMS = 'root ::= sum "=" [0-9]{1,3}\nsum ::= sum [-+] n | n\nn ::= [1-9] [0-9]?'
MOST = 400  # tokens: more than any of these forms can take


def validated(text: str, schema: dict) -> dict:
    value = json.loads(text)
    jsonschema_rs.validate(schema, value)
    return value


def chat(client, model_id, **options):
    return client.chat.completions.create(**{"model": model_id, "messages": MESSAGES,
                                             "max_completion_tokens": MOST, **options})


# --- chats ---

@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_choice_is_valid(client, model_id, seed):
    answer = chat(client, model_id, response_format=FORMAT, n=3, temperature=1, seed=seed)
    assert [choice.finish_reason for choice in answer.choices] == ["stop"] * 3
    values = [validated(choice.message.content, SCHEMA) for choice in answer.choices]
    assert all(list(value) == ["city", "days"] for value in values)  # in the schema's order


@pytest.mark.parametrize("temperature", [0, 1])
def test_the_client_parses_its_own_classes(client, model_id, temperature):
    answer = client.chat.completions.parse(
        model=model_id, messages=MESSAGES, response_format=Person, temperature=temperature, n=2,
        seed=4, max_completion_tokens=MOST)
    for choice in answer.choices:
        assert choice.finish_reason == "stop"
        assert isinstance(choice.message.parsed, Person)


def test_a_stream_says_the_same(client, model_id):
    whole = chat(client, model_id, response_format=FORMAT, temperature=0)
    pieces = [event.choices[0].delta.content or "" for event in
              chat(client, model_id, response_format=FORMAT, temperature=0, stream=True)]
    assert len(pieces) > 5
    assert "".join(pieces) == whole.choices[0].message.content
    with client.chat.completions.stream(model=model_id, messages=MESSAGES, response_format=Person,
                                        temperature=0, max_completion_tokens=MOST) as stream:
        final = stream.get_final_completion().choices[0]
    assert isinstance(final.message.parsed, Person)


def test_any_object(client, model_id):
    form = {"type": "json_object"}
    choice = chat(client, model_id, response_format=form, temperature=0).choices[0]
    assert choice.message.content.lstrip().startswith("{")
    if choice.finish_reason == "stop":
        assert isinstance(json.loads(choice.message.content), dict)
    for kind in ("json_object", "json_schema"):  # llama-server's
        beside = chat(client, model_id, response_format={"type": kind, "schema": SCHEMA})
        validated(beside.choices[0].message.content, SCHEMA)


def test_a_schema_has_to_be_where_it_is_looked_for(client, model_id):
    for form in ({"type": "json_schema", "json_schema": {"name": "x"}},
                 {"type": "json_schema", "json_schema": SCHEMA}):
        with pytest.raises(openai.BadRequestError) as error:
            chat(client, model_id, response_format=form)
        assert error.value.param == "response_format.json_schema.schema"


def test_an_answer_that_is_cut_is_valid_up_to_there(client, model_id):
    whole = chat(client, model_id, response_format=FORMAT, temperature=0).choices[0]
    cut = chat(client, model_id, response_format=FORMAT, temperature=0,
               max_completion_tokens=4).choices[0]
    assert cut.finish_reason == "length"
    assert whole.message.content.startswith(cut.message.content)


def test_other_fields_go_with_it(client, model_id):
    choice = chat(client, model_id, response_format=FORMAT, temperature=1, seed=5, logprobs=True,
                  top_logprobs=2, presence_penalty=1, logit_bias={"5": -1},
                  extra_body={"best_of": 2, "min_tokens": 3, "bad_words": ["Berlin"],
                              "top_k": 40}).choices[0]
    validated(choice.message.content, SCHEMA)
    told = b"".join(bytes(token.bytes) for token in choice.logprobs.content)
    assert told == choice.message.content.encode()
    stopped = chat(client, model_id, response_format=FORMAT, temperature=0, stop=['"days"'])
    assert '"days"' not in stopped.choices[0].message.content


# --- vLLM's fields ---

def test_patterns_and_choices(client, model_id):
    def said(**fields) -> str:
        answer = chat(client, model_id, temperature=1, extra_body=fields).choices[0]
        assert answer.finish_reason == "stop"
        return answer.message.content

    for fields in ({"structured_outputs": {"regex": PHONE}}, {"guided_regex": PHONE}):
        assert re.fullmatch(PHONE, said(**fields))
    cities = ["Paris", "Paris, Texas", "Rom\u00e9"]
    for fields in ({"structured_outputs": {"choice": cities}}, {"guided_choice": cities}):
        assert said(**fields) in cities
    for schema in (SCHEMA, json.dumps(SCHEMA)):
        validated(said(structured_outputs={"json": schema}), SCHEMA)
        validated(said(guided_json=schema), SCHEMA)


def is_list(text: str) -> bool:
    """Whether it is of LISTS: what is inside goes first."""
    once = r"\[((?:[a-c\xe9]{1,3}|@)(?:, (?:[a-c\xe9]{1,3}|@)){0,2})?\]"
    while re.search(once, text):
        text = re.sub(once, "@", text)
    return text == "@"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_grammars_of_ones_own(client, model_id, seed):
    ended = 0
    for fields in ({"structured_outputs": {"grammar": LISTS}}, {"guided_grammar": LISTS},
                   {"grammar": LISTS}):
        for choice in chat(client, model_id, temperature=1, seed=seed, n=4,
                           extra_body=fields).choices:
            text = choice.message.content
            if choice.finish_reason == "stop":
                ended += 1
                assert is_list(text), text
            else:
                assert re.fullmatch(r"[][, abc\xe9]*", text), text
    assert ended > 0
    for fields in ({"grammar": SUMS}, {"structured_outputs": {"grammar": SUMS}}):
        choice = chat(client, model_id, temperature=1, seed=seed, extra_body=fields).choices[0]
        if choice.finish_reason == "stop":
            assert re.fullmatch("[1-9][0-9]?([-+][1-9][0-9]?)*=[0-9]{1,3}", choice.message.content)


def test_a_grammar_may_have_the_empty_text(client, model_id):
    for choice in chat(client, model_id, temperature=1, n=3,
                       extra_body={"grammar": 'root ::= "a"?'}).choices:
        assert choice.finish_reason == "stop"
        assert choice.message.content in ("", "a")


def test_a_streamed_grammar_says_the_same(client, model_id):
    options = {"temperature": 0, "extra_body": {"grammar": SUMS}, "max_completion_tokens": 20}
    whole = chat(client, model_id, **options).choices[0].message.content
    pieces = [event.choices[0].delta.content or "" for event in
              chat(client, model_id, stream=True, **options)]
    assert "".join(pieces) == whole


def test_llama_servers_schema(client, model_id):
    for schema in (SCHEMA, json.dumps(SCHEMA)):
        answer = chat(client, model_id, temperature=1, extra_body={"json_schema": schema})
        validated(answer.choices[0].message.content, SCHEMA)


def test_completions_have_it_too(client, model_id):
    def complete(prompt, **fields):
        return client.completions.create(model=model_id, prompt=prompt, max_tokens=MOST,
                                         temperature=1, extra_body=fields).choices

    for choice in complete(["A phone number: ", "Another one: "], n=2, guided_regex=PHONE):
        assert choice.finish_reason == "stop"
        assert re.fullmatch(PHONE, choice.text)
    echoed = complete("Call me: ", echo=True, guided_regex=PHONE)[0].text
    assert re.fullmatch("Call me: " + PHONE, echoed)
    validated(complete("A trip: ", response_format=FORMAT)[0].text, SCHEMA)
    for choice in complete("A word: ", n=2, grammar='root ::= [a-z]{3} | "-" [a-z]{2}'):
        assert re.fullmatch("[a-z]{3}|-[a-z]{2}", choice.text)


# --- responses ---

def test_responses_are_parsed(client, model_id):
    answer = client.responses.parse(model=model_id, input="Describe a person.", text_format=Person,
                                    temperature=1, max_output_tokens=MOST)
    assert answer.status == "completed"
    assert isinstance(answer.output_parsed, Person)
    assert (answer.text.format.type, answer.text.format.name) == ("json_schema", "Person")
    with client.responses.stream(model=model_id, input="Describe a person.", text_format=Person,
                                 temperature=0, max_output_tokens=MOST) as stream:
        assert isinstance(stream.get_final_response().output_parsed, Person)


def test_responses_take_the_flat_form(client, model_id):
    shown = {"type": "json_schema", "name": "trip", "schema": SCHEMA, "strict": True}
    answer = client.responses.create(model=model_id, input="A trip.", text={"format": shown},
                                     max_output_tokens=MOST)
    validated(answer.output_text, SCHEMA)
    assert answer.model_dump(by_alias=True, exclude_unset=True)["text"]["format"] == shown
    word = client.responses.create(model=model_id, input="Yes or no?", max_output_tokens=MOST,
                                   extra_body={"structured_outputs": {"choice": ["yes", "no"]}})
    assert word.output_text in ("yes", "no")
    word = client.responses.create(model=model_id, input="Yes or no?", max_output_tokens=MOST,
                                   extra_body={"grammar": 'root ::= "yes" | "no" "!"{2}'})
    assert word.output_text in ("yes", "no!!")


# --- forced calls ---

TOOLS = [{"type": "function", "function": {"name": "plan", "parameters": SCHEMA}},
         {"type": "function", "function": {"name": "forget"}}]
# Templates in the style of the two kinds that are understood, with what tells the kind.
HERMES = """{% for tool in tools %}{{ tool | tojson }}
{% endfor %}{% if tools %}Answer with <tool_call>{"name": ..., "arguments": ...}</tool_call>
{% endif %}{% for message in messages %}{{ message.role }}: {{ message.content }}
{% endfor %}assistant: """
LLAMA = """{% for tool in tools %}{{ tool | tojson }}
{% endfor %}{% if tools %}Answer with {"name": function name, "parameters": dictionary of argument \
name and its value}.
{% endif %}{% for message in messages %}{{ message.role }}: {{ message.content }}
{% endfor %}assistant: """


@pytest.fixture(scope="module", params=[HERMES, LLAMA], ids=["hermes", "llama"])
def caller(request, daemon_arguments, tmp_path_factory):
    """The client of a daemon with a template that teaches calls."""
    folder = tmp_path_factory.mktemp("caller")
    template = folder / "template.jinja"
    template.write_text(request.param)
    running = Daemon(*daemon_arguments, folder, "--set",
                     f"model.chat_template_file={template}").wait_until_ready()
    with running.client() as opened:
        yield opened
    assert running.stop() == 0, running.log.read_text(errors="replace")


@pytest.fixture(scope="module")
def caller_id(caller):
    return caller.models.list().data[0].id


def check_call(call) -> None:
    assert call.name in ("plan", "forget")
    validated(call.arguments, SCHEMA if call.name == "plan" else
              {"type": "object", "additionalProperties": False})


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_required_gives_a_call(caller, caller_id, seed):
    answer = chat(caller, caller_id, tools=TOOLS, tool_choice="required", temperature=1, n=2,
                  parallel_tool_calls=False, seed=seed)
    for choice in answer.choices:
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content is None
        assert len(choice.message.tool_calls) == 1
        check_call(choice.message.tool_calls[0].function)


def test_several_calls_may_come(caller, caller_id):
    choice = chat(caller, caller_id, tools=TOOLS, tool_choice="required", temperature=1,
                  seed=7).choices[0]
    calls = choice.message.tool_calls
    assert calls and choice.finish_reason in ("tool_calls", "length")
    for call in calls if choice.finish_reason == "tool_calls" else calls[:-1]:
        check_call(call.function)


@pytest.mark.parametrize("name", ["plan", "forget"])
def test_a_named_function_is_called(caller, caller_id, name):
    choice = chat(caller, caller_id, tools=TOOLS, temperature=1, seed=3,
                  tool_choice={"type": "function", "function": {"name": name}}).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert [call.function.name for call in choice.message.tool_calls] == [name]
    check_call(choice.message.tool_calls[0].function)


def test_only_allowed_tools_are_called(caller, caller_id):
    choice = chat(caller, caller_id, tools=TOOLS, temperature=1, parallel_tool_calls=False,
                  tool_choice={"type": "allowed_tools", "allowed_tools": {
                      "mode": "required",
                      "tools": [{"type": "function", "function": {"name": "forget"}}]}}).choices[0]
    assert [call.function.name for call in choice.message.tool_calls] == ["forget"]


def test_streamed_calls_are_the_same(caller, caller_id):
    options = {"tools": TOOLS, "tool_choice": "required", "temperature": 0,
               "parallel_tool_calls": False}
    whole = chat(caller, caller_id, **options).choices[0].message.tool_calls[0].function
    with caller.chat.completions.stream(model=caller_id, messages=MESSAGES,
                                        max_completion_tokens=MOST, **options) as stream:
        choice = stream.get_final_completion().choices[0]
    assert choice.finish_reason == "tool_calls"
    streamed = choice.message.tool_calls[0].function
    assert (streamed.name, streamed.arguments) == (whole.name, whole.arguments)


def test_responses_force_calls_too(caller, caller_id):
    tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
    for choice in ("required", {"type": "function", "name": "plan"}):
        answer = caller.responses.create(model=caller_id, input="A trip.", tools=tools,
                                         tool_choice=choice, parallel_tool_calls=False,
                                         max_output_tokens=MOST, temperature=1)
        assert [(item.type, item.status) for item in answer.output] == [
            ("function_call", "completed")]
        check_call(answer.output[0])


def test_a_form_leaves_calls_possible(caller, caller_id):
    """An agent's model may call a tool before it answers in the form."""
    for seed in range(4):
        choice = chat(caller, caller_id, tools=TOOLS, response_format=FORMAT, temperature=1,
                      seed=seed, parallel_tool_calls=False).choices[0]
        if choice.finish_reason == "length":
            continue  # a call whose arguments nothing bounds
        if choice.message.tool_calls:
            assert choice.message.content is None
            assert choice.message.tool_calls[0].function.name in ("plan", "forget")
        else:
            validated(choice.message.content, SCHEMA)
    none = chat(caller, caller_id, tools=TOOLS, response_format=FORMAT, tool_choice="none")
    validated(none.choices[0].message.content, SCHEMA)


def test_schemas_of_tools_that_are_not_understood_are_named(caller, caller_id):
    function = {"name": "f", "parameters": {
        "type": "object", "required": ["x"], "properties": {
            "x": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2,
                  "uniqueItems": True}}}}
    # Not strict: what can be held is.
    choice = chat(caller, caller_id, tools=[{"type": "function", "function": function}],
                  tool_choice="required").choices[0]
    found = json.loads(choice.message.tool_calls[0].function.arguments)["x"]
    assert len(found) <= 2 and all(isinstance(one, bool) for one in found)
    tools = [{"type": "function", "function": {**function, "strict": True}}]
    with pytest.raises(openai.BadRequestError) as error:
        chat(caller, caller_id, tools=tools, tool_choice="required")
    assert error.value.param == "tools"
    assert "/properties/x/uniqueItems" in error.value.message
    assert chat(caller, caller_id, tools=tools, max_completion_tokens=1).choices


# --- what is refused ---

def schema_of(keyword: dict) -> dict:
    return {"type": "object", "properties": {"x": keyword}}


@pytest.mark.parametrize("keyword, pointer", [
    ({"type": "array", "contains": {"type": "null"}}, "/properties/x/contains"),
    ({"type": "array", "uniqueItems": True}, "/properties/x/uniqueItems"),
    ({"if": {"type": "null"}, "then": {"enum": [1]}}, "/properties/x/if"),
    ({"$ref": "#/$defs/none"}, "/properties/x/$ref"),
])
def test_what_a_schema_says_that_is_not_understood_is_named(client, model_id, keyword, pointer):
    schema = schema_of(keyword)
    asked = {
        "response_format.json_schema.schema": {"response_format": {
            "type": "json_schema", "json_schema": {"name": "x", "schema": schema}}},
        "structured_outputs.json": {"extra_body": {"structured_outputs": {"json": schema}}},
        "guided_json": {"extra_body": {"guided_json": json.dumps(schema)}}}
    for param, options in asked.items():
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError) as error:
                chat(client, model_id, stream=stream, **options)
            assert error.value.param == param
            assert f"{param}: {pointer}" in error.value.message
    with pytest.raises(openai.BadRequestError) as error:
        client.responses.create(model=model_id, input="hi", text={
            "format": {"type": "json_schema", "name": "x", "schema": schema}})
    assert error.value.param == "text.format.schema"
    assert pointer in error.value.message


@pytest.mark.parametrize("pattern", ["(", "a(?=b)", r"(a)\1", "[z-a]", "a{2,1}"])
def test_what_is_no_pattern_is_refused(client, model_id, pattern):
    for param, fields in (("guided_regex", {"guided_regex": pattern}),
                          ("structured_outputs.regex", {"structured_outputs": {"regex": pattern}})):
        with pytest.raises(openai.BadRequestError) as error:
            chat(client, model_id, extra_body=fields)
        assert error.value.param == param


@pytest.mark.parametrize("grammar, message", [
    ('root ::= "a', "line 1, column 10: the literal is not closed: expected '\"'"),
    ('root ::= a\n\na ::= b "c"', "line 3, column 7: expected a rule 'b' somewhere"),
    ('root ::= "a"\nroot ::= "b"', "line 2, column 1: the rule 'root' is there already"),
    ('a ::= "b"', "expected a rule 'root' somewhere"),
    ('start: "a"', "line 1, column 1: expected a rule, 'name ::= ...'"),
    ('root ::= <think> "a"', "line 1, column 10: tokens"),
    ('root ::= x\nx ::= x y | ""\ny ::= x', "recurses without end: the rule 'x' of line 2"),
    ('root ::= "a" root', "can never be satisfied"),
    ('root ::= ""', "the empty text is the only one of this form"),
    ('root ::= [ab]* "a" [ab]{30}', "grammar takes more than 65536 states"),
    ("root ::= " + "(" * 200, "line 1, column 138: parentheses nest deeper than 128"),
])
def test_what_is_no_grammar_is_refused(client, model_id, grammar, message):
    for param, fields in (("guided_grammar", {"guided_grammar": grammar}),
                          ("grammar", {"grammar": grammar}),
                          ("structured_outputs.grammar", {"structured_outputs": {
                              "grammar": grammar}})):
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError) as error:
                chat(client, model_id, extra_body=fields, stream=stream)
            assert error.value.param == param
            assert f"{param}: " in error.value.message and message in error.value.message


def test_what_nothing_satisfies_is_refused(client, model_id):
    for schema in ({"enum": []}, {"type": "string", "minLength": 3, "maxLength": 2}):
        with pytest.raises(openai.BadRequestError) as error:
            chat(client, model_id, extra_body={"guided_json": schema})
        assert error.value.param == "guided_json"
