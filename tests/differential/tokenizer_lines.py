"""Texts that tokenizers trip over, the same on every machine: at least 10,000 for each tokenizer."""

import gzip
import pathlib
import random

ROOT = pathlib.Path(__file__).resolve().parents[2]

EMOJI = ["👩‍👩‍👧‍👦", "👨🏽‍💻", "🏳️‍🌈", "🇩🇪🇯🇵", "👍🏿", "❤️‍🔥", "1️⃣", "🧑‍🚀", "😀", "🫠", "🀄", "‼️"]
MARKS = ["e\u0301", "a\u0323\u0302", "o\u0302\u0323", "\u1e69", "s\u0323\u0307", "q\u0307\u0323", "Å", "A\u030a", "ﬁ", "ſ",
         "\u0958", "\u2126", "\u212a", "n\u0303\u0303\u0303", "\u0344", "\u0f73", "각", "\u1100\u1161\u11a8", "\u0300"]
CJK = ["人工智能", "機械学習の", "ひらがな", "カタカナー", "한국어를 배우다", "漢字かな交じり文", "。、「」", "１２３", "ﾊﾝｶｸ",
       "龥", "一", "\u3007", "㍿", "𠀀𪜀", "\U00030000", "〇三"]
RTL = ["שלום עולם", "مرحبا بالعالم", "\u202babc\u202c", "٣٤٥", "لا", "עִבְרִית", "\u200fx\u200e", "فارسی‌ها", "ﷺ"]
SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", " \n ", "\u00a0", "\u3000", "\u2003", "\u200b", "\u180e", "\u0085",
          "\x0b", "\x0c", "\u2028", "\u202f", "\ufeff", "\r", " " * 17, "\n" * 5, "\t\t "]
WORDS = ["the", "Hello", "WORLD", "don't", "I'LL", "we've", "they'RE", "it's", "'s", "’s", "naïve", "Straße", "ΑΒΓ", "привет",
         "camelCaseWord", "snake_case", "x", "I", "don’t", "'ſ", "ǅ", "Ⅻ", "²", "½", "𝒳𝓎", "ªº", "हिन्दी", "ไทย", "தமிழ்", "ქართული",
         "İstanbul", "Việt", "ʻokina", "<", ">", "|", "▁", "Ġ", "Ċ", "Ä", "Â", "▁▁", "<0x0A>", "<0xE2>", "Ġthe"]
NUMBERS = ["0", "7", "42", "123", "1234", "12345678901234567890", "3.14159", "1,000,000", "0x1F", "1e-5", "٤٢", "७", "¾", "Ⅷ",
           "①", "1st", "2nd3", "-17", "+49", "10%", "$9.99", "00", "007"]
CODE = ["for (int i = 0; i < n; ++i) {", "    return x;", "#include <vector>", "def f(self, *args):", "std::vector<int>{1, 2}",
        "a->b.c[0]", "/* comment */", "// TODO", "if(!ok)return;", "=>", "!==", "&&", "::", "...", "\\n", "{{}}", "<?php", "</div>",
        "&amp;", "@param", "#!/bin/sh", "${HOME}", "100_000", "`x`", "~~", "---", "===", "“quoted”", "—", "…", "€5", "£", "©®™"]


def planes(rng):
    """Any code point of any plane, but no surrogate."""
    while True:
        code = rng.randrange(rng.choice([0x80, 0x800, 0x3000, 0x10000, 0x20000, 0x110000]))
        if not 0xD800 <= code < 0xE000:
            return chr(code)


def mixtures(count, special, seed=5):
    rng = random.Random(seed)
    pools = [EMOJI, MARKS, CJK, RTL, SPACES, WORDS, NUMBERS, CODE, special or WORDS]
    for _ in range(count):
        pool = rng.choice(pools)
        parts = []
        for _ in range(rng.randrange(1, 14)):
            part = planes(rng) if rng.random() < 0.06 else rng.choice(pool if rng.random() < 0.5 else rng.choice(pools))
            parts.append(part + (" " if rng.random() < 0.4 else ""))
        yield "".join(parts)


def runs():
    """Long runs, and what used to overflow stacks."""
    for count in (1, 2, 3, 15, 16, 17, 100, 1000):
        for unit in (" ", "\n", "\t", "a", "A", "1", "!", "é", "漢", "👍", "ab", " a", "\r\n", "\u0301", "=", "-", "▁", "_"):
            yield unit * count
            yield "x" + unit * count + "y"
    yield " " * 100_000
    yield "x" + " " * 100_000 + "y"
    yield "\n" * 100_000
    yield "A" * 43_000
    yield "ab" * 10_000
    yield "1" * 30_000
    yield "é" * 20_000
    yield "漢" * 20_000


def prose(directory, count):
    """The first lines of each text, as many of each."""
    paths = sorted(pathlib.Path(directory).glob("*.txt.gz"))
    lines = []
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            # A whole speech may be one line.
            lines += [line[:2000] for line in file.read().split("\n") if line][: count // len(paths)]
    return lines


def code(count):
    """Pieces of this repository."""
    lines = []
    for path in sorted([*ROOT.glob("octavo/**/*.cc"), *ROOT.glob("tests/**/*.py"), *ROOT.glob("docs/*.md")]):
        text = path.read_text(encoding="utf-8")
        lines += text.split("\n")
        lines += [text[i : i + 300] for i in range(0, len(text), 3000)]
        if len(lines) >= count:
            break
    return lines[:count]


def all_lines(special, texts=None):
    lines = [*runs(), *mixtures(6000, special), *code(3000)]
    if texts:
        lines += prose(texts, 6000)
    lines += mixtures(max(0, 10_500 - len(lines)), special, seed=6)
    # NUL ends a record, and no text may be empty: an empty last record is none.
    return [line.replace("\0", "") for line in lines if line.replace("\0", "")]
