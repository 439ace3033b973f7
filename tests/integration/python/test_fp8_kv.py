"""kv_cache.dtype=fp8_e4m3: half of the bytes, the same cache."""

import sys
import pathlib

import httpx
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools" / "bench"))
import metrics_page

pytestmark = pytest.mark.no_tsan

MEMORY = ("--set", "kv_cache.memory_bytes=64MiB")
FP8 = ("--set", "kv_cache.dtype=fp8_e4m3")
REPRODUCIBLE = ("--set", "engine.reproducible=on")
QUESTION = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]


def page_of(daemon):
    return metrics_page.samples(httpx.get(f"{daemon.url}/metrics", timeout=60).text)


def model_of(client):
    return client.models.list().data[0].id


def ask(client, messages, **options):
    return client.chat.completions.create(model=model_of(client), messages=messages, temperature=0,
                                          max_completion_tokens=24, **options)


def bits(answer):
    """Everything that may not differ by a bit."""
    choice = answer.choices[0]
    return choice.message.content, [(one.token, one.logprob) for one in choice.logprobs.content]


def test_the_cache_holds_twice_the_tokens_of_bf16_and_answers(start_daemon):
    bf16 = start_daemon(*MEMORY, "--set", "kv_cache.dtype=bf16").wait_until_ready()
    wide = metrics_page.total(page_of(bf16), "refrain_kv_capacity_tokens")
    assert bf16.stop() == 0
    daemon = start_daemon(*MEMORY, *FP8).wait_until_ready()
    page = page_of(daemon)
    # Whole chunks: what was left over of the memory may hold one more.
    tokens = metrics_page.total(page, "refrain_kv_capacity_tokens")
    assert 2 * wide <= tokens <= 2.05 * wide
    assert 'cache_dtype="fp8_e4m3"' in httpx.get(f"{daemon.url}/metrics", timeout=60).text
    assert "KV fp8_e4m3" in daemon.log.read_text()
    with daemon.client() as client:
        assert "Paris" in ask(client, QUESTION).choices[0].message.content
    assert daemon.stop() == 0


def test_the_short_name_of_vllm_is_known_and_others_are_refused(start_daemon):
    daemon = start_daemon(*MEMORY, "--set", "kv_cache.dtype=fp8").wait_until_ready()
    with daemon.client() as client:
        assert ask(client, QUESTION).choices[0].message.content
    assert daemon.stop() == 0
    try:
        start_daemon("--set", "kv_cache.dtype=fp8_e5m2")
    except RuntimeError as refused:
        assert "kv_cache.dtype" in str(refused) and "fp8_e5m2" in str(refused)
        assert "fp8_e4m3" in str(refused)
    else:
        raise AssertionError("fp8_e5m2 was taken")


def test_the_second_turn_finds_the_first_and_sharing_changes_no_bit(start_daemon):
    conversations = [[*QUESTION], [{"role": "user", "content": "Name three rivers."}]]
    seen = []
    for sharing in ("on", "off"):
        daemon = start_daemon(*MEMORY, *FP8, *REPRODUCIBLE, "--set",
                              f"kv_cache.prefix_cache={sharing}").wait_until_ready()
        outputs = []
        with daemon.client() as client:
            for messages in conversations:
                first = ask(client, messages, logprobs=True, top_logprobs=3)
                again = ask(client, messages, logprobs=True, top_logprobs=3)
                assert bits(again) == bits(first)
                second = ask(client, [*messages,
                                      {"role": "assistant",
                                       "content": first.choices[0].message.content},
                                      {"role": "user", "content": "And why?"}],
                             logprobs=True, top_logprobs=3)
                cached = second.usage.prompt_tokens_details.cached_tokens
                print(f"sharing {sharing}: {cached} of {second.usage.prompt_tokens} cached")
                if sharing == "on":
                    assert cached >= first.usage.prompt_tokens - 1
                else:
                    assert cached == 0
                outputs += [bits(first), bits(second)]
        assert daemon.stop() == 0
        seen.append(outputs)
    assert seen[0] == seen[1]
