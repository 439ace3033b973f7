"""The load client reads streams right and takes no wrong answer for a measurement."""

import json

import load
import pytest


def event(**payload):
    return f"data: {json.dumps(payload)}\n\n".encode()


def usage(prompt=5, completion=2, cached=0):
    return event(choices=[], usage={"prompt_tokens": prompt, "completion_tokens": completion,
                                    "prompt_tokens_details": {"cached_tokens": cached}})


def token(text):
    return event(choices=[{"index": 0, "text": text}])


def chunked(*parts):
    return b"".join(f"{len(part):x}\r\n".encode() + part + b"\r\n" for part in parts) + b"0\r\n\r\n"


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def test_times_each_token_by_the_arrival_of_its_own_bytes():
    first, second, rest = chunked(token("a")), chunked(token("b")), chunked(usage())
    cut = [first[:-5], second[:-5], rest + b""]  # without the last chunk of each but the last
    reply = load.parse_reply(1.0, [(1.5, CHUNKED), (2.0, cut[0]), (4.0, cut[1]), (9.0, cut[2])])
    assert reply.text == "ab"
    assert reply.time_to_first_token_s == pytest.approx(1.0)
    assert reply.tokens_per_s == pytest.approx(0.5)
    assert (reply.prompt_tokens, reply.completion_tokens) == (5, 2)


def test_an_event_cut_at_every_byte_reads_the_same():
    body = CHUNKED + chunked(token("α"), usage(completion=1))
    for cut in range(1, len(body)):
        reply = load.parse_reply(0.0, [(1.0, body[:cut]), (2.0, body[cut:])])
        assert reply.text == "α"


def test_reads_a_body_without_transfer_chunks():
    reply = load.parse_reply(0.0, [(1.0, HEAD + b"\r\n" + token("x") + usage(cached=3))])
    assert (reply.text, reply.cached_tokens) == ("x", 3)


def test_reads_chat_deltas():
    delta = event(choices=[{"delta": {"role": "assistant"}}, {"delta": {"content": "hi"}}])
    assert load.parse_reply(0.0, [(1.0, HEAD + b"\r\n" + delta + usage())]).text == "hi"


@pytest.mark.parametrize("body, message", [
    (b"HTTP/1.1 429 Too Many Requests\r\n\r\n{}", "429"),
    (HEAD + b"\r\n" + event(error={"message": "broke"}), "broke"),
    (HEAD + b"\r\n" + token("x"), "no usage"),
    (HEAD + b"\r\n" + usage(), "no token"),
    (CHUNKED + chunked(token("x"))[:-5], "inside a transfer chunk"),
    (b"", "no HTTP response"),
])
def test_refuses_what_is_no_whole_answer(body, message):
    with pytest.raises(load.RequestError, match=message):
        load.parse_reply(0.0, [(1.0, body)])


def test_prompts_are_of_the_asked_length_and_begin_differently():
    prompts = load.Prompts(seed=1)
    texts = [prompts.take(100) for _ in range(50)]
    assert all(len(text.split(" ")) == 100 for text in texts)
    assert len({" ".join(text.split(" ")[:8]) for text in texts}) == 50
