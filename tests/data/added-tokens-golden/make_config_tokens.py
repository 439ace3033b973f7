#!/usr/bin/env python3
"""Writes config_tokens.json: small tokenizers with a tokenizer_config.json whose added_tokens_decoder
says otherwise than tokenizer.json, and texts with the ids that transformers gives them.

    make_config_tokens.py FILE [TEXTS_PER_TOKENIZER]        (needs transformers 5.23.0)
"""

import json
import pathlib
import random
import sys
import tempfile

import transformers

TEXTS = ["", "<s>", " <s> ", "hi <s>\n hi", "<s>hi<s>", "hi<s>hi <s> hi", "<|end|>\n\nhi", "  <|end|>  ",
         "<w>", "hi<w>", "hi <w> hi", "<w>hi", "<new> <new>hi", "<late><early>", "ihih", "hi", " hi hihi",
         "<json> <json>hi", "a<s>\u3000<|end|>\u2003hi"]
PARTS = ["<s>", "</s>", "<|end|>", "<w>", "<new>", "<late>", "<early>", "<json>", "ih", "hi", "h", "i",
         " ", "  ", "\n", "\t", "\u00a0", "\u3000", "a", "-", "<", ">", "\u00e9"]  # fmt: skip


def flags(content, **options):
    return {"content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True} | options  # fmt: skip


def byte_alphabet():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(256 + i) for i in range(len(others))]


PIECES = [*byte_alphabet(), "hi", "\u0120hi", "\u0120\u0120", "ih"]
FIRST = len(PIECES)  # the id of the first added token
LLAMA_PIECES = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)),
                "\u2581", "h", "i", "hi", "\u2581hi", "\u2581\u2581"]  # fmt: skip
COMMON = ["<s>", "</s>", "<|end|>", "<w>", "<json>"]


def byte_level(**changes):
    """Tokens with plain flags but for those of `changes`, by place."""
    added = [{"id": FIRST + i, **flags(content, **changes.get(f"t{i}", {}))}
             for i, content in enumerate(COMMON)]  # fmt: skip
    return {
        "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                          "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                    "use_regex": True},
        "model": {"type": "BPE", "vocab": {piece: i for i, piece in enumerate(PIECES)},
                  "merges": ["h i", "\u0120 hi", "\u0120 \u0120"]},
    }  # fmt: skip


def marked():
    added = [{"id": LLAMA_PIECES.index(content), **flags(content)} for content in ("<unk>", "<s>", "</s>")]
    added.append({"id": len(LLAMA_PIECES), **flags("<|end|>")})
    return {
        "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
        "pre_tokenizer": None, "decoder": None,
        "model": {"type": "BPE", "vocab": {piece: i for i, piece in enumerate(LLAMA_PIECES)},
                  "merges": ["h i", "\u2581 hi", "\u2581 \u2581"], "unk_token": "<unk>",
                  "byte_fallback": True, "fuse_unk": True},
    }  # fmt: skip


def decoder(*tokens):
    return {"added_tokens_decoder": {str(token_id): token for token_id, token in tokens}}


def make_tokenizers():
    """Name: tokenizer.json, tokenizer_config.json."""
    looks_around = [(FIRST, flags("<s>", lstrip=True)), (FIRST + 2, flags("<|end|>", rstrip=True)),
                    (FIRST + 3, flags("<w>", single_word=True))]
    return {
        "flags_of_the_config": (byte_level(), decoder(*looks_around)),
        "flags_of_the_json_alone": (
            byte_level(t0={"lstrip": True}, t2={"rstrip": True}, t3={"single_word": True}),
            decoder((FIRST, flags("<s>")), (FIRST + 2, flags("<|end|>")), (FIRST + 3, flags("<w>")))),
        "flags_of_tokens_that_the_config_lacks": (
            byte_level(t0={"lstrip": True}, t4={"rstrip": True, "lstrip": True}),
            decoder((FIRST + 1, flags("</s>")))),
        "special_in_one_of_them": (
            byte_level(t2={"special": False}),
            decoder((FIRST, flags("<s>", special=False)), (FIRST + 2, flags("<|end|>")),
                    (FIRST + 3, flags("<w>", special=False, normalized=True)))),
        "special_by_its_role": (
            byte_level(), decoder((FIRST + 1, flags("</s>", special=False))) | {"eos_token": "</s>"}),
        "normalized": (
            byte_level(t0={"normalized": True}),
            decoder((FIRST, flags("<s>")), (FIRST + 2, flags("<|end|>", normalized=True)))),
        "only_in_the_config": (byte_level(), decoder((FIRST + 5, flags("<new>", lstrip=True)))),
        "other_ids_in_the_config": (
            byte_level(),
            decoder((FIRST + 90, flags("<early>")), (FIRST + 500, flags("<late>", special=False)), (3, flags("<new>")))),
        "tokens_of_the_vocabulary": (
            byte_level(), decoder((FIRST - 1, flags("ih", special=False)),
                                  (FIRST - 4, flags("hi", special=False, single_word=True)))),
        "left_out_flags": (byte_level(), decoder((FIRST, {"content": "<s>"}),
                                                 (FIRST + 3, {"content": "<w>", "special": True}))),
        "no_tokens": (byte_level(t0={"lstrip": True}), {"added_tokens_decoder": {}}),
        "no_decoder": (byte_level(t0={"lstrip": True}), {"eos_token": "</s>"}),
        "marked": (marked(), decoder(
            (0, flags("<unk>")), (1, flags("<s>", lstrip=True, rstrip=True)), (2, flags("</s>", rstrip=True)),
            (len(LLAMA_PIECES), flags("<|end|>", rstrip=True)),
            (len(LLAMA_PIECES) + 1, flags("<new>", special=False)))),
    }  # fmt: skip


def cases_of(spec, config, count):
    with tempfile.TemporaryDirectory() as folder:
        for name, content in (("tokenizer.json", spec), ("tokenizer_config.json", config)):
            (pathlib.Path(folder) / name).write_text(json.dumps(content))
        loaded = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer = loaded.backend_tokenizer
    rng = random.Random(12)
    texts = list(TEXTS)
    while len(texts) < count:
        texts.append("".join(rng.choices(PARTS, k=rng.randint(1, 12))))
    cases = []
    for text in texts:
        ids = []
        for text_only in (False, True):
            tokenizer.encode_special_tokens = text_only
            ids.append(tokenizer.encode(text, add_special_tokens=False).ids)
        cases.append([text, *ids])
    return cases


def main():
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 40
    golden = {}
    for name, (steps, config) in make_tokenizers().items():
        spec = {"version": "1.0", "truncation": None, "padding": None, "post_processor": None, **steps}
        golden[name] = {"tokenizer": spec, "config": config, "cases": cases_of(spec, config, count)}
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(golden, file, ensure_ascii=True, separators=(",", ":"))
        file.write("\n")


main()
