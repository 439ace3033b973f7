"""Conversations of a plain client: it sends back the text it saw, the cache knows the rest."""

import random

TURNS = 20
QUESTIONS = ["Tell me about the sea.", "And then?", "Why is that so?", "Give an example, please.",
             "Say it in other words: naïve café 日本語 🦊", "Who says so?", "Thanks. And rivers?"]


def ask(client, model, messages, stream, **options):
    """The answer's text and the usage."""
    options = dict(model=model, messages=messages, temperature=1.0, max_completion_tokens=48,
                   **options)
    if not stream:
        answer = client.chat.completions.create(**options)
        return answer.choices[0].message.content, answer.usage
    text, usage = "", None
    for chunk in client.chat.completions.create(
            stream=True, stream_options={"include_usage": True}, **options):
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
        usage = chunk.usage or usage
    return text, usage


def test_twenty_turns_find_their_history_in_the_cache(client, model_id):
    rng = random.Random(4)
    messages, cached, history, known = [], 0, 0, 0
    for turn in range(TURNS):
        messages.append({"role": "user", "content": rng.choice(QUESTIONS)})
        options = {"stop": [" the", "ing", "."]} if turn % 3 == 2 else {}
        text, usage = ask(client, model_id, messages, stream=turn % 2 == 1, **options)
        found = usage.prompt_tokens_details.cached_tokens
        print(f"turn {turn}: {found} of {known} tokens of history, prompt {usage.prompt_tokens}")
        if turn > 0:
            assert found >= 0.9 * known
        cached += found
        history += known
        # With a stop string, some of its tokens are counted that the history will not have.
        known = usage.prompt_tokens + usage.completion_tokens
        messages.append({"role": "assistant", "content": text})
    assert cached >= 0.95 * history


def test_an_answer_of_several_is_continued_from_the_cache(client, model_id):
    messages = [{"role": "user", "content": "Name a colour and say why you like it."}]
    answer = client.chat.completions.create(model=model_id, messages=messages, temperature=1.0, n=3,
                                            max_completion_tokens=40)
    for choice in answer.choices:
        _, usage = ask(client, model_id,
                       [*messages, {"role": "assistant", "content": choice.message.content},
                        {"role": "user", "content": "Another one?"}], stream=False)
        shown = len(choice.message.content.split())
        assert usage.prompt_tokens_details.cached_tokens >= answer.usage.prompt_tokens + shown - 3


def test_salts_share_no_history(client, model_id):
    messages = [{"role": "user", "content": "A secret of the first salt, please."}]
    text, usage = ask(client, model_id, messages, stream=False, extra_body={"cache_salt": "one"})
    messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "More?"}]
    _, other = ask(client, model_id, messages, stream=False, extra_body={"cache_salt": "two"})
    assert other.prompt_tokens_details.cached_tokens == 0
    _, same = ask(client, model_id, messages, stream=False, extra_body={"cache_salt": "one"})
    assert same.prompt_tokens_details.cached_tokens >= usage.prompt_tokens


def test_a_final_message_is_continued(client, model_id):
    messages = [{"role": "user", "content": "What colour is the sky?"},
                {"role": "assistant", "content": "The sky is"}]
    body = {"continue_final_message": True, "add_generation_prompt": False}
    text, usage = ask(client, model_id, messages, stream=False, extra_body=body)
    assert text
    rendered = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
                "Face<|im_end|>\n<|im_start|>user\nWhat colour is the sky?<|im_end|>\n"
                "<|im_start|>assistant\nThe sky is")
    same = client.completions.create(model=model_id, prompt=rendered, max_tokens=1)
    assert usage.prompt_tokens == same.usage.prompt_tokens
