"""Makes composed.json: texts and what the normalizer NFC of Hugging Face `tokenizers` makes of them.

    python3 make_composed.py > composed.json        (needs tokenizers 0.23.x)

Marks are those of Unicode 3.2: its tables do not know all of today's. What Python's do not agree on is left out.
"""

import json
import random
import unicodedata

from tokenizers import normalizers

HANGUL_PARTS = [0x1100, 0x1112, 0x1161, 0x1175, 0x11A8, 0x11C2, 0xAC00, 0xAC1C, 0xD788]


def composed(text: str) -> str:
    return normalizers.NFC().normalize_str(text)


def known(text: str) -> bool:
    return composed(text) == unicodedata.normalize("NFC", text)


def main() -> None:
    random.seed(20261126)
    characters = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    decomposed = [(c, unicodedata.normalize("NFD", c)) for c in characters]
    changing = [c for c, parts in decomposed if c != parts and not 0xAC00 <= ord(c) <= 0xD7A3]
    marks = [c for c in characters if unicodedata.ucd_3_2_0.combining(c)]
    bases = list("aeiouAcEKnyz q\n.0") + [chr(c) for c in (0x3B1, 0x3C9, 0x418, 0x438, 0x627, 0x928,
                                                           0x4E00, 0x304B, 0x1F600, 0x2260, 0x212B)]
    texts = ["", "plain", "caf\u00e9 and cafe\u0301", "\u0301", "a\u0327\u0301 a\u0301\u0327",
             "\u1112\u1161\u11ab\u1100\u1173\u11af", "\ud55c\uae00", "\u0344\u2126\u212a\u1fef\u037e"]
    for start in range(0, len(changing), 24):
        some = changing[start:start + 24]
        texts.append(" ".join(some))
        texts.append("".join(unicodedata.normalize("NFD", c) for c in some))
    for _ in range(300):
        text = ""
        for _ in range(random.randrange(1, 60)):
            kind = random.random()
            if kind < 0.35:
                text += random.choice(bases)
            elif kind < 0.75:
                text += "".join(random.choices(marks[:120] if kind < 0.6 else marks,
                                               k=random.randrange(1, 5)))
            elif kind < 0.85:
                text += unicodedata.normalize("NFD", random.choice(changing))
            else:
                text += chr(random.choice(HANGUL_PARTS))
        texts.append(text)
    pairs = [[text, composed(text)] for text in texts if known(text)]
    assert len(pairs) > 0.9 * len(texts), len(pairs)
    print(json.dumps(pairs, indent=0))


if __name__ == "__main__":
    main()
