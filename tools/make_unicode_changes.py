#!/usr/bin/env python3
"""Writes octavo/text/unicode_changes.h: where the tables of the tokenizers package are not those that we link.

Usage: tools/make_unicode_changes.py    (with the Python that scripts/oracles makes; its unicodedata must be of Unicode 14)

PCRE2 10.42 has the tables of Unicode 14; the regular expressions of the `tokenizers` package have later ones. Each code
point whose general category or script differs gets a stand-in: an older one of the same category and UTF-8 length,
and of the same script where there is one. Lower case is that of a later Unicode as well; punctuation,
outside regular expressions, that of a far earlier one.
"""

import collections
import pathlib
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

OUT = pathlib.Path(__file__).resolve().parent.parent / "octavo" / "text" / "unicode_changes.h"
CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn").split()
SCRIPTS = "Han Hiragana Katakana Hangul Latin Cyrillic Arabic".split()
EVERY = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def members(pattern):
    split = pre_tokenizers.Split(Regex(f"(?:{pattern})+"), "removed", invert=True)
    found = set()
    for piece, _ in split.pre_tokenize_str("".join(EVERY)):
        found.update(piece)
    return found


def lower_changes():
    """[first, last, what is added]: where lower case is not that of Unicode 14."""
    lowercase = normalizers.Lowercase()
    ranges = []
    for c in EVERY:
        lower = lowercase.normalize_str(c)
        if lower == c.lower() or len(lower) != 1:
            continue
        code, delta = ord(c), ord(lower) - ord(c)
        if ranges and ranges[-1][1] == code - 1 and ranges[-1][2] == delta:
            ranges[-1][1] = code
        else:
            ranges.append([code, code, delta])
    return ranges


def not_punctuation():
    """[first, last]: punctuation of Unicode 16 that the pre-tokenizer Punctuation does not know."""
    split = pre_tokenizers.Punctuation("removed")
    expected = sorted(members(r"\p{P}"))
    kept = {c for piece, _ in split.pre_tokenize_str("".join(expected)) for c in piece}
    ranges = []
    for code in map(ord, expected):
        if chr(code) not in kept:
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return ranges


def main():
    if unicodedata.unidata_version != "14.0.0":
        raise SystemExit(f"unicodedata is {unicodedata.unidata_version}, 14.0.0 is needed")
    category = {c: name for name in CATEGORIES for c in members(rf"\p{{{name}}}")}
    script = {c: name for name in SCRIPTS for c in members(rf"\p{{{name}}}")}
    # A script never changes without the category: both change when a code point is assigned.
    changed = [c for c in EVERY if category[c] != unicodedata.category(c)]
    kind = {c: (len(c.encode()), category[c], script.get(c)) for c in EVERY}
    stand_in = {}
    unchanged = set(EVERY) - set(changed)
    for c in EVERY:
        if c in unchanged:
            stand_in.setdefault(kind[c], c)
    ranges, missing = [], collections.Counter()
    for c in changed:
        chosen = stand_in.get(kind[c]) or stand_in.get((*kind[c][:2], None))  # the script matters least
        if chosen is None:
            missing[kind[c]] += 1
            continue
        code = ord(c)
        if ranges and ranges[-1][1] == code - 1 and ranges[-1][2] == ord(chosen):
            ranges[-1][1] = code
        else:
            ranges.append([code, code, ord(chosen)])
    lower, unknown = lower_changes(), not_punctuation()
    lower_lines = "".join(f"    {{0x{a:04X}, 0x{b:04X}, {d}}},\n" for a, b, d in lower)
    unknown_lines = "".join(f"    {{0x{a:04X}, 0x{b:04X}}},\n" for a, b in unknown)
    lines = "".join(f"    {{0x{a:04X}, 0x{b:04X}, 0x{r:04X}}},\n" for a, b, r in ranges)
    OUT.write_text(f"""// Written by tools/make_unicode_changes.py: {len(changed)} code points whose category or script is not that of Unicode 14.
#pragma once

#include <array>

namespace octavo::text {{

// Inclusive. `stand_in`: of the category and UTF-8 length that the range has now, and of its script
// where Unicode 14 has such a code point.
struct UnicodeChange {{
  char32_t first;
  char32_t last;
  char32_t stand_in;
}};

inline constexpr std::array<UnicodeChange, {len(ranges)}> kUnicodeChanges = {{{{
{lines}}}}};

// Inclusive. `added` to the code point: its lower case, which Unicode 14 does not have.
struct LowerChange {{
  char32_t first;
  char32_t last;
  int added;
}};

inline constexpr std::array<LowerChange, {len(lower)}> kLowerChanges = {{{{
{lower_lines}}}}};

// Inclusive: punctuation that the pre-tokenizer of that name does not know.
struct CodeRange {{
  char32_t first;
  char32_t last;
}};

inline constexpr std::array<CodeRange, {len(unknown)}> kUnknownPunctuation = {{{{
{unknown_lines}}}}};

}}  // namespace octavo::text
""")
    print(f"{len(changed)} code points, {len(ranges)} ranges; without stand-in: {dict(missing)}")


if __name__ == "__main__":
    main()
