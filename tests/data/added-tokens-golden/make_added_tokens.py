#!/usr/bin/env python3
"""Writes added_tokens.json: small tokenizers whose added tokens have lstrip, rstrip, single_word or
normalized, and texts with the ids that Hugging Face `tokenizers` gives them.

    make_added_tokens.py FILE [TEXTS_PER_TOKENIZER]
"""

import json
import random
import sys

import tokenizers

TEXTS = [
    "",
    " ",
    "hi",
    "<|end|>",
    "  <|end|>  ",
    "hi <|end|>\n\n hi",
    "hi <s> hi",
    "hi\t\n<s>\u00a0\u3000hi",
    "<s> <s>  </s> <s>",
    "<|end|> <s>hi",
    "<|end|> <|end|> hi <|end|>",
    "<s>hi</s>\n<s> hi </s>\n",
    "hi \u200b<s>\u180e hi",
    "hi\u2028<s>\u0085hi",
    "<|user|>\nhi<|end|>\n<|user|>\n",
    "hi <mask> hi <mask>hi",
    "hi<mask>",
    "<w>",
    "<w> hi<w> <w>hi <w>",
    "é<w> -<w>- 日<w> a\u0301<w> \u24b6<w> \u200d<w> \u00b2<w> _<w> 1<w>",
    "<w>\u200c <w>\u0301 <w>\u2160 <w>\u203f <w>\U0001f170 <w>\U0001f600",
    "<w><w> <s><w><s>word<w>",
    "word words word. sword <s>word</s>word<|end|>word",
    "<|end|>word <w>word",
    "<|end|>  hi  hi",
    "<|end|>   hi<s>\t   \t  -",
    "<|end|>    hi    <s>    hi",
    "<|end|>\n\n\n<s>\n\n\nhi",
    "hi\n\n\n<mask>\n\nhi",
    "<|en <|end|",
    "\u2581<s>\u2581hi\u2581<|end|>\u2581",
]
PARTS = [
    "<s>", "</s>", "<|end|>", "<|user|>", "<mask>", "<w>", "word",
    " ", " ", "  ", "\n", "\n\n", "\t", "\r", "\u0085", "\u00a0", "\u1680", "\u2009", "\u2028",
    "\u202f", "\u205f", "\u3000", "\u180e", "\u200b", "\u001c",
    "h", "hi", "é", "日", "_", "1", "\u00b2", "\u24b6", "\u0301", "\u200c", "\u200d", "\u2160",
    "-", ".", "<", "|", "\u2581", "\U0001f600", "\U0001f170",
]  # fmt: skip


def added(token_id, content, **options):
    token = {"id": token_id, "content": content, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False, "special": True}  # fmt: skip
    return token | options


def common_tokens(first):
    """As in fine-tunes of Mistral saved by axolotl, and the turn tokens of Phi-3."""
    return [
        added(first, "<s>", lstrip=True, rstrip=True),
        added(first + 1, "</s>", lstrip=True, rstrip=True),
        added(first + 2, "<|end|>", rstrip=True),
        added(first + 3, "<|user|>", rstrip=True),
        added(first + 4, "<mask>", lstrip=True),
        added(first + 5, "<w>", single_word=True),
    ]


def byte_alphabet():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(256 + i) for i in range(len(others))]


def model(pieces, merges, **options):
    return {"type": "BPE", "vocab": {piece: i for i, piece in enumerate(pieces)},
            "merges": merges, **options}  # fmt: skip


def byte_level(added_tokens):
    pieces = [*byte_alphabet(), "hi", "\u0120hi", "\u0120\u0120"]
    merges = ["h i", "\u0120 hi", "\u0120 \u0120"]
    return {
        "added_tokens": added_tokens(len(pieces)),
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False,
                          "trim_offsets": True, "use_regex": True},
        "model": model(pieces, merges),
    }


def pieces_of_llama():
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["\u2581", "h", "i", "w", "o", "r", "d", "hi", "\u2581hi", "\u2581\u2581"]
    return pieces, ["h i", "\u2581 hi", "\u2581 \u2581"]


def marked(steps):
    pieces, merges = pieces_of_llama()
    tokens = [added(0, "<unk>", lstrip=True, rstrip=True)] + common_tokens(len(pieces))
    for token in tokens[1:3]:
        token["id"] = pieces.index(token["content"])
    for i, token in enumerate(tokens[3:]):
        token["id"] = len(pieces) + i
    return {
        "added_tokens": tokens,
        "model": model(pieces, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True),
        **steps,
    }


def metaspace(scheme):
    tokenizer = marked({"pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581",
                                          "prepend_scheme": scheme, "split": False}})  # fmt: skip
    for token in tokenizer["added_tokens"]:
        token["normalized"] = token["content"] in ("<mask>", "<w>", "</s>")
    return tokenizer


def make_tokenizers():
    """By name. What is found first takes white space and words from what is normalized."""
    text = {"special": False, "normalized": True}
    return {
        "byte_level": byte_level(common_tokens),
        "byte_level_normalized": byte_level(
            lambda first: common_tokens(first)
            + [
                added(first + 6, "word", single_word=True, **text),
                added(first + 7, "  ", **text),
                added(first + 8, "\n\n", rstrip=True, **text),
            ]
        ),
        # Tokens that are white space which another token takes.
        "byte_level_spaces": byte_level(
            lambda first: common_tokens(first)
            + [
                added(first + 6, "word", single_word=True, special=False),
                added(first + 7, "  ", special=False),
                added(first + 8, "\n\n", rstrip=True, special=False),
            ]
        ),
        "marked": marked(
            {"normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Prepend", "prepend": "\u2581"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
            ]}}  # fmt: skip
        ),
        "metaspace_first": metaspace("first"),
        "metaspace_always": metaspace("always"),
    }


def ids_or_none(tokenizer, text, text_only):
    tokenizer.encode_special_tokens = text_only
    try:
        return tokenizer.encode(text, add_special_tokens=False).ids
    except BaseException as error:  # a panic is none of Python's exceptions
        if type(error).__name__ != "PanicException":
            raise
        return None


def cases_of(spec, count):
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(spec))
    rng = random.Random(11)
    cases = []
    texts = list(TEXTS)
    while len(texts) < count:
        texts.append("".join(rng.choices(PARTS, k=rng.randint(1, 16))))
    for text in texts:
        ids = ids_or_none(tokenizer, text, text_only=False)
        plain = ids_or_none(tokenizer, text, text_only=True)
        if ids is None or plain is None:
            print("panic:", repr(text), file=sys.stderr)
            continue
        cases.append([text, ids, plain])
    return cases


def main():
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 45
    golden = {}
    for name, steps in make_tokenizers().items():
        spec = {"version": "1.0", "truncation": None, "padding": None, "normalizer": None,
                "pre_tokenizer": None, "post_processor": None, "decoder": None, **steps}  # fmt: skip
        golden[name] = {"tokenizer": spec, "cases": cases_of(spec, count)}
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(golden, file, ensure_ascii=True, separators=(",", ":"))
        file.write("\n")


main()
