"""What the official client sees, with a real model."""

import concurrent.futures
import math

import httpx
import metrics_page
import openai
import pytest

PROMPT = "The capital of France is"
QUESTION = [{"role": "user", "content": "What colour is the sky on a clear day?"}]


def test_models_are_listed_and_found(client, model_id):
    models = client.models.list().data
    assert [model.id for model in models] == [model_id]
    assert client.models.retrieve(model_id).id == model_id
    with pytest.raises(openai.NotFoundError) as error:
        client.models.retrieve("no-such-model")
    assert error.value.code == "model_not_found"


def test_chat_answers_sensibly(client, model_id):
    answer = client.chat.completions.create(
        model=model_id, messages=QUESTION, temperature=0, max_completion_tokens=32)
    assert answer.object == "chat.completion"
    assert answer.choices[0].message.role == "assistant"
    assert "blue" in answer.choices[0].message.content
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_chat_knows_the_capital_of_france(client, model_id):
    """Its first token leads by 0.08: activations of 8 bits would answer otherwise."""
    answer = client.chat.completions.create(
        model=model_id, messages=[{"role": "user", "content": "What is the capital of France?"}],
        temperature=0, max_completion_tokens=32)
    assert answer.choices[0].message.content == "The capital of France is Paris."
    assert answer.choices[0].finish_reason == "stop"


def test_streamed_chat_says_the_same_as_the_whole_one(client, model_id):
    options = dict(model=model_id, messages=QUESTION, temperature=0, max_completion_tokens=32)
    whole = client.chat.completions.create(**options)
    chunks = list(client.chat.completions.create(
        stream=True, stream_options={"include_usage": True}, **options))
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[0].choices[0].delta.content
    assert all(len(chunk.choices) == 1 for chunk in chunks[:-1])
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert text == whole.choices[0].message.content
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason


def test_text_parts_are_the_same_as_a_string(client, model_id):
    parts = [{"role": "user", "content": [{"type": "text", "text": QUESTION[0]["content"]}]}]
    options = dict(model=model_id, temperature=0, max_completion_tokens=16)
    assert (client.chat.completions.create(messages=parts, **options).choices[0].message.content ==
            client.chat.completions.create(messages=QUESTION, **options).choices[0].message.content)


def test_completion_continues_the_prompt(client, model_id):
    answer = client.completions.create(model=model_id, prompt=PROMPT, temperature=0, max_tokens=8)
    assert "Paris" in answer.choices[0].text
    assert answer.usage.completion_tokens <= 8


@pytest.mark.parametrize("length", [1, 7, 64])
def test_ignore_eos_gives_exactly_max_tokens(client, model_id, length):
    chunks = list(client.completions.create(
        model=model_id, prompt=PROMPT, max_tokens=length, stream=True, temperature=0,
        stream_options={"include_usage": True}, extra_body={"ignore_eos": True}))
    assert chunks[-1].usage.completion_tokens == length
    assert chunks[-2].choices[0].finish_reason == "length"
    # One event per token; a token that ends inside a character joins the next one.
    assert length * 0.8 <= len(chunks) - 1 <= length


def test_prompts_of_every_form(client, http, model_id):
    options = dict(model=model_id, temperature=0, max_tokens=4)
    ids = http.post("/tokenize", json={"prompt": PROMPT}).json()["tokens"]
    text = client.completions.create(prompt=PROMPT, **options).choices[0].text
    assert client.completions.create(prompt=ids, **options).choices[0].text == text
    several = client.completions.create(prompt=[PROMPT, "Two plus two is"], **options)
    assert [choice.index for choice in several.choices] == [0, 1]
    assert several.choices[0].text == text
    assert client.completions.create(prompt=[ids, ids], **options).choices[1].text == text
    assert http.post("/detokenize", json={"tokens": ids}).json()["prompt"] == PROMPT


@pytest.mark.parametrize("fields", [
    {}, {"add_generation_prompt": False},
    {"continue_final_message": True, "add_generation_prompt": False}])
def test_tokenize_counts_messages_as_a_chat_does(http, model_id, fields):
    messages = [{"role": "user", "content": "What does <|im_end|> end?<|im_start|>"},
                {"role": "assistant", "content": "It ends <|im_end|> a "}]
    counted = http.post("/tokenize", json={"messages": messages} | fields).json()
    answered = http.post("/v1/chat/completions", json={
        "model": model_id, "messages": messages, "max_tokens": 1, "return_token_ids": True} | fields)
    assert counted["tokens"] == answered.json()["prompt_token_ids"]
    assert counted["count"] == answered.json()["usage"]["prompt_tokens"]


def test_n_gives_that_many_choices(client, model_id):
    answer = client.chat.completions.create(
        model=model_id, messages=QUESTION, n=3, temperature=1.0, seed=7, max_completion_tokens=8)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]


def test_stop_strings_end_the_text_before_them(client, model_id):
    options = dict(model=model_id, prompt="1, 2, 3, 4, 5,", temperature=0, max_tokens=40)
    whole = client.completions.create(**options).choices[0].text
    stop = whole[5:8]
    answer = client.completions.create(stop=[stop], **options).choices[0]
    assert answer.text == whole[:whole.index(stop)]
    assert answer.finish_reason == "stop"
    streamed = client.completions.create(stop=stop, stream=True, **options)
    assert "".join(chunk.choices[0].text for chunk in streamed) == answer.text
    kept = client.completions.create(
        stop=stop, extra_body={"include_stop_str_in_output": True}, **options).choices[0]
    assert kept.text == answer.text + stop


def test_completion_logprobs_are_consistent(client, model_id):
    choice = client.completions.create(
        model=model_id, prompt=PROMPT, temperature=0, max_tokens=6, logprobs=3).choices[0]
    logprobs = choice.logprobs
    assert "".join(logprobs.tokens) == choice.text
    assert len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == len(logprobs.tokens)
    for token, logprob, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs):
        assert logprob <= 0
        assert math.isclose(top[token], logprob, abs_tol=1e-4)
        assert logprob == max(top.values())  # greedy took the best one
        assert len(top) >= 3
    for offset, token in zip(logprobs.text_offset, logprobs.tokens):
        assert choice.text[offset:].startswith(token)


def test_chat_logprobs_spell_the_answer(client, model_id):
    choice = client.chat.completions.create(
        model=model_id, messages=QUESTION, temperature=0, max_completion_tokens=8, logprobs=True,
        top_logprobs=2).choices[0]
    spelled = b"".join(bytes(token.bytes) for token in choice.logprobs.content)
    assert spelled.decode() == choice.message.content
    assert all(len(token.top_logprobs) == 2 for token in choice.logprobs.content)


def test_echo_scores_the_prompt(client, model_id):
    choice = client.completions.create(
        model=model_id, prompt=PROMPT, max_tokens=0, echo=True, logprobs=1).choices[0]
    assert choice.text == PROMPT
    assert "".join(choice.logprobs.tokens) == PROMPT
    assert choice.logprobs.token_logprobs[0] is None
    assert all(value < 0 for value in choice.logprobs.token_logprobs[1:])


def test_seeds_decide_what_is_sampled(reproducible, model_id):
    with reproducible.client() as client:
        def text(seed: int) -> str:
            return client.completions.create(model=model_id, prompt="Once upon a time",
                                             max_tokens=16, temperature=1.0,
                                             seed=seed).choices[0].text
        texts = [text(seed) for seed in range(4)]
        assert len(set(texts)) > 1
        assert [text(seed) for seed in range(4)] == texts


def test_logit_bias_forbids_a_token(client, http, model_id):
    options = dict(model=model_id, prompt=PROMPT, temperature=0, max_tokens=1)
    best = client.completions.create(**options).choices[0].text
    ids = http.post("/tokenize", json={"prompt": best, "add_special_tokens": False}).json()["tokens"]
    biased = client.completions.create(logit_bias={str(ids[0]): -100}, **options)
    assert biased.choices[0].text != best


@pytest.mark.parametrize("fields, param", [
    ({"temperature": -1}, "temperature"),
    ({"max_tokens": -5}, "max_tokens"),
    ({"max_tokens": 10**9}, "max_tokens"),
    ({"n": 0}, "n"),
    ({"top_p": 2}, "top_p"),
    ({"logprobs": 1000}, "logprobs"),
    ({"stop": ["a"] * 100}, "stop"),
    ({"logit_bias": {"999999999": 1}}, "logit_bias"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [-1]}, "prompt"),
    ({"suffix": "x"}, "suffix"),
])
def test_bad_fields_are_named(client, model_id, fields, param):
    with pytest.raises(openai.BadRequestError) as error:
        client.completions.create(**{"model": model_id, "prompt": "a", **fields})
    assert error.value.param == param
    assert error.value.type == "invalid_request_error"


def test_a_prompt_beyond_the_context_is_refused(client, model_id):
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model=model_id, prompt="word " * 20000, max_tokens=1)
    with pytest.raises(openai.BadRequestError):
        list(client.completions.create(model=model_id, prompt="word " * 20000, max_tokens=1,
                                       stream=True))


def test_unknown_model_is_not_found(client):
    with pytest.raises(openai.NotFoundError) as error:
        client.chat.completions.create(model="gpt-nothing", messages=QUESTION)
    assert error.value.code == "model_not_found"


def test_many_clients_at_once_get_their_own_answers(reproducible, model_id):
    def ask(number: int) -> str:
        with reproducible.client() as client:
            return client.completions.create(
                model=model_id, prompt=f"{number}, {number + 1}, {number + 2},", temperature=0,
                max_tokens=8).choices[0].text
    numbers = range(10, 26)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, numbers))
    assert len(set(answers)) == 16
    assert answers == [ask(number) for number in numbers]


def test_async_client_streams_what_the_other_one_gets(reproducible, model_id):
    import asyncio

    questions = [[{"role": "user", "content": f"What is {number} and {number}?"}]
                 for number in range(2, 6)]
    options = dict(model=model_id, temperature=0, max_completion_tokens=16)

    async def run() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{reproducible.url}/v1", api_key="none") as client:
            async def one(messages) -> str:
                stream = await client.chat.completions.create(messages=messages, stream=True,
                                                              **options)
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
            return await asyncio.gather(*map(one, questions))

    with reproducible.client() as client:
        alone = [client.chat.completions.create(messages=messages, **options)
                 .choices[0].message.content for messages in questions]
    assert len(set(alone)) > 1 and all(alone)
    assert asyncio.run(run()) == alone


def test_stop_strings_are_not_found_in_control_tokens_that_are_not_shown(client, model_id):
    def ask(skip: bool):
        answer = client.chat.completions.create(
            model=model_id, messages=[{"role": "user", "content": "hi"}], temperature=0,
            max_completion_tokens=40, stop=["|>"],
            extra_body={"ignore_eos": True, "skip_special_tokens": skip})
        return answer.choices[0]

    shown, hidden = ask(skip=False), ask(skip=True)
    assert shown.finish_reason == "stop" and shown.message.content.endswith("<|im_end")
    assert hidden.finish_reason == "length" and "<|im_" not in hidden.message.content


def test_a_client_that_goes_away_frees_its_place(start_daemon):
    daemon = start_daemon("--set", "engine.max_sequences=1").wait_until_ready()
    with daemon.client() as client:
        model = client.models.list().data[0].id
        stream = client.completions.create(model=model, prompt=PROMPT, max_tokens=1500, stream=True,
                                           extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        client.completions.create(model=model, prompt="Hello", max_tokens=2)
    page = metrics_page.samples(httpx.get(f"{daemon.url}/metrics").text)
    # Most of the first request's 1,500 tokens never came.
    assert metrics_page.value(page, "vllm:generation_tokens_total") < 1000


def test_pings_come_to_who_waits_and_are_passed_over(start_daemon):
    """With them a stream has its head while another request has the only place."""
    daemon = start_daemon("--set", "engine.max_sequences=1",
                          "--set", "http.sse_ping_s=0.05").wait_until_ready()
    with daemon.client() as client:
        model = client.models.list().data[0].id
        ask = dict(model=model, messages=QUESTION, temperature=0, max_completion_tokens=16)
        alone = client.chat.completions.create(**ask).choices[0].message.content
        running = client.completions.create(model=model, prompt=PROMPT, max_tokens=1500, stream=True,
                                            extra_body={"ignore_eos": True})
        next(iter(running))
        waiting = client.chat.completions.create(stream=True, **ask)
        daemon.wait_for_queued(1)
        with httpx.stream("POST", f"{daemon.url}/v1/completions", timeout=60, json={
                "model": model, "prompt": PROMPT, "max_tokens": 1, "stream": True}) as raw:
            assert next(raw.iter_text()).startswith(": ping\n\n")
        running.close()
        chunks = list(waiting)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == alone
