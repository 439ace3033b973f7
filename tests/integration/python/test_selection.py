"""best_of, beam search, cached tokens and the view of the cache, with a real model."""

import httpx
import openai
import pytest

PROMPT = "The best way to learn a language is"


def beams(client, model_id, prompt=PROMPT, **options):
    body = {"use_beam_search": True, **options.pop("extra_body", {})}
    return client.completions.create(model=model_id, prompt=prompt, max_tokens=12,
                                     extra_body=body, **options)


def test_beams_come_best_first(client, model_id):
    answer = beams(client, model_id, n=4, logprobs=1, temperature=0)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert len({choice.text for choice in answer.choices}) == 4
    assert answer.usage.prompt_tokens == 8
    sums = [sum(choice.logprobs.token_logprobs) for choice in answer.choices
            if choice.finish_reason == "length"]
    assert len(sums) >= 2 and sums == sorted(sums, reverse=True)


def test_beams_find_what_greedy_misses(client, model_id):
    prompt = "Once upon a time"  # whose most probable next token leads nowhere
    greedy = client.completions.create(model=model_id, prompt=prompt, max_tokens=12, temperature=0,
                                       logprobs=0, extra_body={"ignore_eos": True})
    best = beams(client, model_id, prompt, n=1, best_of=8, logprobs=0,
                 extra_body={"ignore_eos": True})
    assert len(best.choices) == 1
    assert best.usage.completion_tokens == 12
    # By 7.5; rounding moves them by less than 0.1.
    assert (sum(best.choices[0].logprobs.token_logprobs) >
            sum(greedy.choices[0].logprobs.token_logprobs) + 5)


def test_beams_answer_a_chat(client, model_id):
    answer = client.chat.completions.create(
        model=model_id, messages=[{"role": "user", "content": "Say hello."}], n=2,
        max_completion_tokens=8, extra_body={"use_beam_search": True, "length_penalty": 0.5})
    assert len(answer.choices) == 2
    assert answer.choices[0].message.content


def test_beams_come_with_the_prompts_logprobs(reproducible, model_id):
    client = reproducible.client()

    def ask(**more):
        answer = client.completions.create(
            model=model_id, prompt=PROMPT, max_tokens=6, n=more.pop("n", 1),
            extra_body={"prompt_logprobs": 2, **more})
        return answer.model_dump()["choices"]

    rows = ask()[0]["prompt_logprobs"]
    assert len(rows) == 8 and rows[0] is None
    for _ in range(2):  # whatever of the prompt was in the cache
        choices = ask(use_beam_search=True, n=3)
        assert len(choices) == 3
        for choice in choices:
            assert choice["prompt_logprobs"] == rows


def test_best_of_returns_the_best(reproducible, model_id):
    def means(answer) -> list[tuple[float, str]]:
        return [(sum(choice.logprobs.token_logprobs) / 8, choice.text) for choice in answer.choices]

    options = dict(model=model_id, prompt=PROMPT, max_tokens=8, temperature=1.0, seed=3,
                   logprobs=0, extra_body={"ignore_eos": True})
    with reproducible.client() as client:
        every = client.completions.create(n=5, **options)
        best = client.completions.create(n=2, best_of=5, **options)
    assert best.usage.completion_tokens == 5 * 8
    assert len(set(means(every))) == 5
    assert means(best) == sorted(means(every), reverse=True)[:2]


@pytest.mark.parametrize("body, param", [
    ({"best_of": 2, "n": 3}, "best_of"),
    ({"best_of": 2, "stream": True}, "stream"),
    ({"use_beam_search": True, "temperature": 0.5}, "temperature"),
    ({"use_beam_search": True, "n": 100}, "n"),
    ({"use_beam_search": True, "stop": ["x"]}, "stop"),
    ({"cache_salt": "x" * 129}, "cache_salt"),
    ({"n": 129}, "n"),
])
def test_contradictions_name_the_field(http, body, param):
    answer = http.post("/v1/completions", json={"prompt": "x", "max_tokens": 1, **body})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_cached_tokens_are_always_there_and_true(client, model_id):
    text = "Once upon a time there was a small server. " * 20 + "It was called "
    options = dict(model=model_id, prompt=text + "Ada", max_tokens=2,
                   extra_body={"cache_salt": "cached tokens"})
    first = client.completions.create(**options).usage
    assert first.prompt_tokens_details.cached_tokens == 0
    again = client.completions.create(**options).usage
    assert again.prompt_tokens_details.cached_tokens == again.prompt_tokens - 1
    chunks = list(client.completions.create(
        stream=True, stream_options={"include_usage": True}, **options))
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens == again.prompt_tokens - 1
    # Nothing is shared across salts.
    other = client.completions.create(**{**options, "extra_body": {"cache_salt": "other"}}).usage
    assert other.prompt_tokens_details.cached_tokens == 0
    chat = client.chat.completions.create(
        model=model_id, messages=[{"role": "user", "content": text}], max_completion_tokens=1)
    assert chat.usage.prompt_tokens_details.cached_tokens is not None


def test_the_cache_can_be_looked_into_only_where_debug_is_on(http, start_daemon):
    assert http.get("/debug/cache").status_code == 404
    daemon = start_daemon("--set", "server.debug=on").wait_until_ready()
    with daemon.client() as client:
        client.completions.create(model=client.models.list().data[0].id, prompt=PROMPT * 20,
                                  max_tokens=1, extra_body={"cache_salt": "a secret"})
    page = httpx.get(f"{daemon.url}/debug/cache?limit=2")
    assert page.status_code == 200
    assert "a secret" not in page.text and "language" not in page.text
    view = page.json()
    assert view["namespaces"] == [{"tenant": "", "salted": True, "first_chunks": 1}]
    assert view["totals"]["nodes"] > 2 and view["totals"]["nodes_shown"] == 2
    assert [node["depth"] for node in view["nodes"]] == [1, 2]
    assert view["nodes"][1]["parent"] == view["nodes"][0]["id"]
    assert all(node["sharers"] == 0 for node in view["nodes"])
    totals = view["totals"]
    assert totals["free_chunks"] + totals["used_chunks"] + totals["cached_chunks"] == totals["chunks"]
    refused = httpx.get(f"{daemon.url}/debug/cache?limit=0")
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "limit"


def test_a_beam_request_that_goes_away_frees_its_beams(client, model_id, start_daemon):
    daemon = start_daemon("--set", "server.debug=on").wait_until_ready()
    with pytest.raises(openai.APITimeoutError), daemon.client() as impatient:
        beams(impatient.with_options(timeout=0.7), model_id, n=16,
              extra_body={"ignore_eos": True, "max_tokens": 2000})
    for _ in range(200):
        totals = httpx.get(f"{daemon.url}/debug/cache?limit=1").json()["totals"]
        if totals["running_sequences"] == 0:
            break
    assert totals["used_chunks"] == 0
