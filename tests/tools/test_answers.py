"""What benchmarks ask before they time anything: a server that is wrong anywhere is told."""

import types

import answers
import load
import pytest

SERVER = types.SimpleNamespace(port=1, model="m", name="vllm")


def right(prompt: str) -> str:
    known = {"The capital of France is": " Paris.", "1, 2, 3, 4, 5, 6,": " 7, 8, 9, 10"}
    name = prompt.splitlines()[-1].removesuffix(":")
    return known.get(prompt) or f" {answers.HOMES[name]}\nSomebody: Somewhere"


@pytest.fixture
def serve(monkeypatch):
    """A server whose answers and counts are given; returns how many prompts came at once each time."""
    asked = []

    def start(answer=right, prompt_tokens=440):
        def complete(port, model, prompts, new_tokens, whole=True):
            asked.append(len(prompts))
            return [load.Reply(0.0, [1.0], answer(prompt), prompt_tokens, 0, new_tokens)
                    for prompt in prompts]

        monkeypatch.setattr(load, "complete", complete)
        return asked

    return start


def test_right_answers_pass_one_at_a_time_and_together_twice(serve):
    asked = serve()
    answers.check(SERVER)
    assert asked == [1, 1, 8, 8]


def test_everybody_lives_elsewhere():
    assert len(set(answers.HOMES.values())) == len(answers.HOMES) == 32


def test_a_wrong_answer_alone_is_told(serve):
    serve(lambda prompt: right(prompt).replace("7, ", ""))
    with pytest.raises(load.RequestError, match="vllm answers '1, 2, 3, 4, 5, 6,'"):
        answers.check(SERVER)


@pytest.mark.parametrize("wave", [0, 1])
def test_one_users_wrong_answer_in_either_wave_is_told(serve, wave):
    seen = []

    def answer(prompt):
        text = right(prompt)
        if prompt.endswith("Grace:"):
            seen.append(prompt)
            return text if len(seen) != wave + 1 else " Dublin, Prague"
        return text

    serve(answer)
    with pytest.raises(load.RequestError, match="'Grace:' is answered with ' Dublin, Prague'"):
        answers.check(SERVER)


def test_a_prompt_that_was_cut_is_told(serve):
    serve(prompt_tokens=300)
    with pytest.raises(load.RequestError, match="300 tokens in a prompt"):
        answers.check(SERVER)
