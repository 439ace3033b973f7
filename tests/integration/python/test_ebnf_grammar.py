"""Grammars in EBNF, against XGrammar's reading of them, if it is installed: it is none of the
requirements, as it wants PyTorch."""

import random

import pytest

testing = pytest.importorskip("xgrammar.testing")
from xgrammar import Grammar  # noqa: E402

GRAMMARS = 500
NAMES = ["root", "x", "rule-2", "B_3"]
CHARACTERS = ["a", "b", "\u00e9", "\\n", "\\u0061", "\\\\"]


class RandomGrammar:
    """Of a few rules. Without what only one of the two takes: empty alternatives, `.`, `{,n}`; and
    without left recursion, in which XGrammar may lose itself."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.rules = NAMES[:self.random.randint(1, 4)]
        self.text = ""
        for self.drawn, name in enumerate(self.rules):
            self.text += f"{name} ::= {self.alternatives(2)}\n"

    def space(self) -> str:
        return self.random.choice([" ", " ", "  ", "\t", "\n  ", " # x ::= \"\n"])

    def alternatives(self, depth: int) -> str:
        some = [self.sequence(depth)]
        while self.random.random() < 0.4:
            some.append(self.sequence(depth))
        return (" |" + self.space()).join(some)

    def sequence(self, depth: int) -> str:
        return self.space().join(self.part(depth) for _ in range(self.random.randint(1, 3)))

    def part(self, depth: int) -> str:
        # XGrammar takes minutes where what may be empty is repeated.
        part = self.unquantified(depth)
        some = ["*", "+", "{2}", "{0,2}", "{1,}", "{0,18}"] if part[0] == "[" else ["?"]
        return part + self.random.choice(["", "?", *some])

    def unquantified(self, depth: int) -> str:
        kind = self.random.randrange(4 if depth > 0 else 3)
        if kind == 0:
            name = self.random.choice(self.rules)
            is_behind = self.rules.index(name) > self.drawn
            return name if is_behind else f'("b" {name} | "a")'
        if kind == 1:
            members = self.random.sample(CHARACTERS + ["a-c", "\\-"], self.random.randint(1, 2))
            return "[" + self.random.choice(["", "", "^"]) + "".join(members) + "]"
        if kind == 2:
            return '"' + "".join(self.random.choices(CHARACTERS, k=self.random.randint(0, 2))) + '"'
        return "(" + self.alternatives(depth - 1) + ")"

    def texts(self) -> list[str]:
        return ["", "a", "b", "aa", "ab", "ba", "bb", "aab", "\n", "\u00e9", "a\u00e9b"] + [
            "".join(self.random.choices("ab\u00e9\n\\-", k=self.random.randint(1, 6)))
            for _ in range(10)]


def test_xgrammar_takes_the_same_texts(ask_grammars):
    grammars = [RandomGrammar(seed) for seed in range(GRAMMARS)]
    texts = [grammar.texts() for grammar in grammars]
    answers = ask_grammars([{"grammar": grammar.text, "samples": 3, "texts": some}
                   for grammar, some in zip(grammars, texts)])
    compared = taken = 0
    for grammar, some, answer in zip(grammars, texts, answers):
        if "refused" in answer:
            assert ("recurses without end" in answer["refused"]
                    or "never be satisfied" in answer["refused"]
                    or "takes more than" in answer["refused"]), (grammar.text, answer)
            continue
        theirs = Grammar.from_ebnf(grammar.text)
        for sample in answer["samples"]:
            assert testing._is_grammar_accept_string(theirs, sample), (grammar.text, sample)
        for text, accepted in zip(some, answer["accepted"]):
            compared += 1
            taken += accepted
            assert testing._is_grammar_accept_string(theirs, text) == accepted, (grammar.text, text)
    assert compared > 10 * GRAMMARS / 2 and taken > GRAMMARS
