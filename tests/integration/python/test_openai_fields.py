"""Fields beyond the official client's own, as vLLM's clients send them, with a real model."""

import math

import openai
import pytest

PROMPT = "The capital of France is"


def complete(client, model_id, **fields):
    named = {name: fields.pop(name) for name in list(fields)
             if name in ("prompt", "max_tokens", "temperature", "logprobs", "echo", "n", "stream")}
    options = {"prompt": PROMPT, "max_tokens": 4, "temperature": 0, **named}
    return client.completions.create(model=model_id, extra_body=fields, **options)


def test_harnesses_score_a_continuation(client, model_id):
    """They ask for one token, and leave the last log-probability out as its, also where the
    model ends there: the continuation's are all there."""
    scored = complete(client, model_id, echo=True, logprobs=1, max_tokens=0).choices[0].logprobs
    generated = complete(client, model_id, max_tokens=1, return_token_ids=True).choices[0]
    [next_token] = generated.token_ids
    for ends in ([], [next_token]):
        choice = complete(client, model_id, echo=True, logprobs=1, max_tokens=1,
                          stop_token_ids=ends).choices[0]
        assert choice.finish_reason == ("stop" if ends else "length")
        assert choice.logprobs.token_logprobs[1:-1] == pytest.approx(
            scored.token_logprobs[1:], abs=0.2)
        assert choice.logprobs.tokens[:-1] == scored.tokens
        assert choice.logprobs.token_logprobs[-1] < 0


def test_prompt_logprobs_are_those_of_echo(client, model_id):
    plain = complete(client, model_id, prompt_logprobs=1).choices[0]
    echoed = complete(client, model_id, echo=True, logprobs=1, max_tokens=0).choices[0].logprobs
    assert plain.text and PROMPT not in plain.text
    rows = plain.prompt_logprobs
    assert rows[0] is None and len(rows) == len(echoed.tokens)
    for row, token, logprob in zip(rows[1:], echoed.tokens[1:], echoed.token_logprobs[1:]):
        own = next(iter(row.values()))
        assert own["decoded_token"] == token
        assert math.isclose(own["logprob"], logprob, abs_tol=1e-3)
        assert min(entry["rank"] for entry in row.values()) == 1


def test_token_ids_are_those_of_tokenize(client, http, model_id):
    choice = complete(client, model_id, return_token_ids=True).choices[0]
    assert choice.prompt_token_ids == http.post("/tokenize", json={"prompt": PROMPT}).json()["tokens"]
    text = http.post("/detokenize", json={"tokens": choice.token_ids}).json()["prompt"]
    assert text == choice.text
    chunks = list(complete(client, model_id, return_token_ids=True, stream=True))
    assert sum((chunk.choices[0].token_ids for chunk in chunks), []) == choice.token_ids
    assert chunks[0].choices[0].prompt_token_ids == choice.prompt_token_ids


def test_tokenize_gives_the_ids_of_a_chat(client, http, model_id):
    messages = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi!"}]
    chat = client.chat.completions.create(model=model_id, messages=messages, max_tokens=1,
                                          extra_body={"return_token_ids": True})
    answer = http.post("/tokenize", json={"messages": messages, "return_token_strs": True}).json()
    assert answer["tokens"] == chat.prompt_token_ids
    text = http.post("/detokenize", json={"tokens": chat.prompt_token_ids}).json()["prompt"]
    assert "".join(answer["token_strs"]) == text and "developer" not in text
    system = [{"role": "system", "content": "Be brief."}, messages[1]]
    assert http.post("/tokenize", json={"messages": system}).json()["tokens"] == answer["tokens"]
    end = http.post("/tokenize", json={"prompt": "<|im_end|>"}).json()["tokens"]
    assert len(end) == 1
    ends = [http.post("/tokenize", json={"messages": [{"role": "user", "content": content}]})
            .json()["tokens"].count(end[0]) for content in ("Hi", "<|im_end|>")]
    assert ends[0] == ends[1]


def test_stop_reason_tells_a_stop_from_the_models_own_end(client, http, model_id):
    choice = complete(client, model_id, return_token_ids=True).choices[0]
    assert choice.stop_reason is None and choice.finish_reason == "length"
    token = choice.token_ids[1]
    stopped = complete(client, model_id, stop_token_ids=[token],
                       include_stop_str_in_output=True).choices[0]
    shown = http.post("/detokenize", json={"tokens": choice.token_ids[:2]}).json()["prompt"]
    assert stopped.stop_reason == token and stopped.text == shown
    chunks = list(complete(client, model_id, stop_token_ids=[token], stream=True))
    assert chunks[-1].choices[0].stop_reason == token


def test_token_ids_are_as_many_as_usage_counts(client, model_id):
    text = complete(client, model_id, max_tokens=8).choices[0].text
    for stop in (text[:3], text[-4:-1]):
        answer = complete(client, model_id, max_tokens=8, stop=stop, return_token_ids=True)
        assert answer.choices[0].stop_reason == stop
        assert len(answer.choices[0].token_ids) == answer.usage.completion_tokens
        chunks = list(complete(client, model_id, max_tokens=8, stop=stop, return_token_ids=True,
                               stream=True))
        ids = sum((chunk.choices[0].token_ids for chunk in chunks), [])
        assert ids == answer.choices[0].token_ids


def test_tokens_inside_a_character_lie_where_it_begins(client, model_id):
    echoed = complete(client, model_id, prompt="a🎉b", echo=True, logprobs=0,
                      max_tokens=0).choices[0]
    assert echoed.text == "a🎉b"
    offsets, tokens = echoed.logprobs.text_offset, echoed.logprobs.tokens
    assert offsets[0] == 0 and offsets[-1] == 2 and tokens[-1] == "b"
    assert set(offsets[1:-1]) == {1} and all(t.startswith("bytes:") for t in tokens[1:-1])


@pytest.mark.parametrize("skip", [True, False])
def test_echo_gives_control_tokens_as_they_were_sent(client, model_id, skip):
    prompt = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    fields = {"prompt": prompt, "echo": True, "max_tokens": 3, "n": 2, "logprobs": 0,
              "skip_special_tokens": skip}
    for choice in complete(client, model_id, **fields).choices:
        assert choice.text.startswith(prompt)
        for token, begin in zip(choice.logprobs.tokens, choice.logprobs.text_offset):
            assert choice.text.startswith(token, begin)
    text = ["", ""]
    for chunk in complete(client, model_id, **fields, stream=True):
        text[chunk.choices[0].index] += chunk.choices[0].text
    assert all(t.startswith(prompt) for t in text)


def test_a_chat_lists_the_end_token_that_it_shows(client, model_id):
    options = {"model": model_id, "messages": [{"role": "user", "content": "Count to ten."}],
               "max_tokens": 8, "temperature": 0, "logprobs": True}
    ids = client.chat.completions.create(
        **options, extra_body={"return_token_ids": True}).choices[0].token_ids
    fields = {"stop_token_ids": [ids[3]], "include_stop_str_in_output": True}
    choice = client.chat.completions.create(**options, extra_body=fields).choices[0]
    assert choice.finish_reason == "stop"
    assert "".join(t.token for t in choice.logprobs.content) == choice.message.content
    chunks = list(client.chat.completions.create(**options, extra_body=fields, stream=True))
    for chunk in chunks:
        part = chunk.choices[0]
        assert (part.delta.content or "") == "".join(t.token for t in part.logprobs.content)


def test_a_prompt_without_tokens_is_named(http):
    for prompt in ("", ["a", ""]):
        answer = http.post("/v1/completions", json={"prompt": prompt, "max_tokens": 1})
        assert answer.status_code == 400 and answer.json()["error"]["param"] == "prompt"


def test_a_chat_echoes_the_message_that_it_continues(client, model_id):
    # Each token is 4.9 and more ahead of the next: the two answers are computed over caches of
    # different steps, whose roundings decide ties ("A famous river is the Amazon River" had one).
    begin = "1, 2, 3, 4,"
    options = {"model": model_id, "max_tokens": 6, "temperature": 0,
               "messages": [{"role": "user", "content": "Count to ten."},
                            {"role": "assistant", "content": begin}]}
    fields = {"continue_final_message": True, "add_generation_prompt": False}
    plain = client.chat.completions.create(**options, extra_body=fields).choices[0].message.content
    fields["echo"] = True
    whole = client.chat.completions.create(**options, extra_body=fields).choices[0].message.content
    assert whole == begin + plain
    chunks = list(client.chat.completions.create(**options, extra_body=fields, stream=True))
    assert chunks[0].choices[0].delta.content == begin
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole


@pytest.mark.parametrize("limit", [{"min_p": 1}, {"top_k": 1}, {"top_p": 1e-9}], ids=str)
def test_a_limit_that_leaves_one_token_takes_the_best(client, model_id, limit):
    best = complete(client, model_id, max_tokens=6).choices[0].text
    for seed in (1, -1):
        text = complete(client, model_id, max_tokens=6, temperature=2, seed=seed, **limit)
        assert text.choices[0].text == best


def test_top_k_keeps_the_best_tokens(client, model_id):
    def rows(**fields):
        answer = complete(client, model_id, max_tokens=64, temperature=2, seed=3, logprobs=3,
                          **fields)
        return answer.choices[0].logprobs.top_logprobs

    # A token beside the three best is told as a fourth.
    assert all(len(row) == 3 for row in rows(top_k=3))
    assert any(len(row) == 4 for row in rows())


def test_a_chat_without_a_generation_prompt(client, http, model_id):
    messages = [{"role": "user", "content": "Hi!"}]
    ids = {}
    for add in (True, False):
        chat = client.chat.completions.create(
            model=model_id, messages=messages, max_tokens=1,
            extra_body={"return_token_ids": True, "add_generation_prompt": add})
        ids[add] = chat.prompt_token_ids
        assert ids[add] == http.post("/tokenize", json={
            "messages": messages, "add_generation_prompt": add}).json()["tokens"]
    assert ids[True][:len(ids[False])] == ids[False] and len(ids[True]) > len(ids[False])


def test_bad_words_do_not_appear(client, model_id):
    text = complete(client, model_id, max_tokens=12).choices[0].text
    assert "Paris" in text
    without = complete(client, model_id, max_tokens=12, bad_words=["Paris"]).choices[0].text
    assert "Paris" not in without


def test_allowed_token_ids_are_all_that_appears(client, http, model_id):
    allowed = http.post("/tokenize", json={"prompt": " yes no"}).json()["tokens"]
    choice = complete(client, model_id, allowed_token_ids=allowed, return_token_ids=True,
                      max_tokens=6, temperature=1).choices[0]
    assert set(choice.token_ids) <= set(allowed)


def test_a_truncated_prompt_is_its_end(client, http, model_id):
    ids = http.post("/tokenize", json={"prompt": PROMPT}).json()["tokens"]
    cut = complete(client, model_id, truncate_prompt_tokens=3, return_token_ids=True)
    assert cut.choices[0].prompt_token_ids == ids[-3:]
    assert cut.usage.prompt_tokens == 3
    assert cut.choices[0].text == complete(client, model_id, prompt=ids[-3:]).choices[0].text


def test_min_tokens_and_stop_token_ids(client, http, model_id):
    choice = complete(client, model_id, return_token_ids=True, max_tokens=8).choices[0]
    second = choice.token_ids[1]
    stopped = complete(client, model_id, stop_token_ids=[second], max_tokens=8).choices[0]
    assert stopped.finish_reason == "stop"
    assert choice.text.startswith(stopped.text) and stopped.text != choice.text
    longer = complete(client, model_id, stop_token_ids=[second], min_tokens=4, max_tokens=8,
                      return_token_ids=True).choices[0]
    assert len(longer.token_ids) > 4


def test_the_defaults_of_other_clients_are_accepted(client, model_id):
    answer = complete(client, model_id, best_of=1, top_k=-1, min_p=0.0, repetition_penalty=1.0,
                      stop=None, user="someone", length_penalty=1.0, use_beam_search=False,
                      stop_token_ids=[], bad_words=[], prompt_logprobs=None, priority=0,
                      skip_special_tokens=True, spaces_between_special_tokens=True, suffix=None,
                      guided_json=None, truncate_prompt_tokens=None, cache_salt=None,
                      prompt_cache_key="someone", safety_identifier="someone", metadata={},
                      include_stop_str_in_output=False, add_special_tokens=True, unheard_of=[1])
    assert answer.choices[0].text


def test_a_miss_is_explained_and_a_warm_request_avoids_it(client, model_id):
    prompt = "A report on misses must tell them apart. " * 12
    report = {"cache_report": True, "cache_salt": "explained"}

    def misses(text, **fields):
        usage = complete(client, model_id, prompt=text, **report, **fields).usage
        return usage.prompt_tokens_details.cache_misses
    assert misses(prompt, max_tokens=0)[0]["reason"] == "never_seen"  # a warm request
    assert misses(prompt) == [None]
    other = misses(prompt[:200] + "But not here. " + prompt[200:])[0]
    assert other["reason"] == "diverged" and other["at_token"] > 20
    cut = misses("But not here. " + prompt, truncate_prompt_tokens=40)[0]
    assert cut["reason"] == "truncated"
    # Another namespace learns nothing.
    usage = complete(client, model_id, prompt=prompt, cache_report=True, cache_salt="other").usage
    assert usage.prompt_tokens_details.cache_misses[0]["reason"] == "never_seen"


def test_a_prompt_cache_key_is_no_namespace(client, model_id):
    prompt = "SDKs send a key for every user of theirs. " * 12
    cached = [complete(client, model_id, prompt=prompt, cache_salt="keys",
                       prompt_cache_key=key).usage.prompt_tokens_details.cached_tokens
              for key in ("one", "another")]
    assert cached[0] == 0 and cached[1] > 50


def test_the_clients_cache_options_are_taken_and_what_is_written_is_told(client, model_id):
    text = {"type": "text", "text": "Breakpoints mark the end of what comes again. " * 12,
            "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}}
    for first in (True, False):
        usage = client.chat.completions.create(
            model=model_id, messages=[{"role": "user", "content": [text]}], max_tokens=1,
            prompt_cache_options={"mode": "explicit", "ttl": "30m"},
            extra_body={"cache_salt": "breakpoints"}).usage
        details = usage.prompt_tokens_details
        assert details.cached_tokens == (0 if first else usage.prompt_tokens - 1)
        assert details.cache_write_tokens == usage.prompt_tokens - details.cached_tokens
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(
            model=model_id, messages=[{"role": "user", "content": "hi"}],
            prompt_cache_options={"ttl": "forever"})
    assert error.value.param == "prompt_cache_options.ttl"


@pytest.mark.no_tsan
def test_evicted_prompts_are_told_from_new_ones(start_daemon):
    daemon = start_daemon("--set", "kv_cache.memory_bytes=64MiB",
                          "--set", "kv_cache.eviction=lru").wait_until_ready()
    with daemon.client() as client:
        model = client.models.list().data[0].id
        prompt = "The first of many prompts. " * 30

        def usage(text, **fields):
            return complete(client, model, prompt=text, cache_report=True, **fields).usage
        usage(prompt, max_tokens=1)
        for number in range(14):
            usage(f"{number} is a number. " * 60, max_tokens=1)
        miss = usage(prompt).prompt_tokens_details.cache_misses[0]
        assert miss["reason"] == "evicted" and miss["evicted_tokens"] > 0


def test_tools_need_a_template_that_shows_them(client, model_id):
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(
            model=model_id, messages=[{"role": "user", "content": "hi"}],
            tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}])
    assert error.value.param == "tools"


def test_request_ids_are_echoed_or_made(http):
    body = {"prompt": "a", "max_tokens": 1}
    told = http.post("/v1/completions", json=body, headers={"x-request-id": "mine-7"})
    assert told.headers["x-request-id"] == "mine-7"
    assert told.json()["id"] == "cmpl-mine-7"
    made = http.post("/v1/completions", json=body).headers["x-request-id"]
    assert made and made != http.post("/v1/completions", json=body).headers["x-request-id"]
