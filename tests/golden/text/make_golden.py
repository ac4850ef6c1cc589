#!/usr/bin/env python3
"""Makes the small tokenizers of this directory, lines.bin and ids.json, with the tokenizers package.

Usage: tests/golden/text/make_golden.py [NAME=TOKENIZER_JSON ...]

lines.bin: texts, each ended by a NUL byte. ids.json: for each tokenizer, how many ids the lines have, FNV-1a of them all
(4 bytes each, little-endian, each line followed by 0xFFFFFFFF), and the ids of the first lines. NAME=FILE adds a large
tokenizer, which is not kept; those that ids.json has already stay in it.
"""

import json
import pathlib
import sys

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "differential"))
import tokenizer_lines  # noqa: E402

SHOWN = 12
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+")
LLAMA3 = QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|")
NEMO = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def byte_level(**options):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, **options)


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def trained(size, pre_tokenizer, normalizer=None, alphabet=True, special=SPECIAL, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    letters = pre_tokenizers.ByteLevel.alphabet() if alphabet else []
    options = {"initial_alphabet": letters, "limit_alphabet": 300} if alphabet else {"limit_alphabet": 150}
    for key, name in (("continuing_subword_prefix", "continuing_subword_prefix"), ("end_of_word_suffix", "end_of_word_suffix")):
        if model.get(key):
            options[name] = model[key]
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False, **options)
    words = tokenizer_lines.WORDS + tokenizer_lines.CODE
    corpus = [*tokenizer_lines.mixtures(1500, None, seed=1), " ".join(words), *(" ".join(words[i:i + 6]) for i in range(60))]
    tokenizer.train_from_iterator(corpus * 2, trainer)
    return tokenizer


def changed(tokenizer, change):
    document = json.loads(tokenizer.to_str())
    change(document)
    return Tokenizer.from_str(json.dumps(document))


def byte_level_tokenizers():
    gpt2 = trained(500, pre_tokenizers.Sequence([pre_tokenizers.Digits(True), byte_level()]))
    gpt2.decoder = decoders.ByteLevel()
    yield "gpt2", gpt2

    def llama3_change(document):
        model = document["model"]
        model["ignore_merges"] = True
        # No merges lead to this one.
        model["vocab"]["ĠViá»ĩt"] = len(model["vocab"])
        document["model"]["merges"] = [" ".join(pair) for pair in model["merges"]]

    llama3 = changed(trained(500, pre_tokenizers.Sequence([split(LLAMA3), byte_level(use_regex=False)])), llama3_change)
    llama3.decoder = decoders.ByteLevel()
    llama3.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True),
        processors.TemplateProcessing(single="<|endoftext|> $A", pair="$A $B", special_tokens=[("<|endoftext|>", 0)])])
    yield "llama3", llama3

    qwen = trained(500, pre_tokenizers.Sequence([split(QWEN), byte_level(use_regex=False)]), normalizers.NFC())
    qwen.decoder = decoders.ByteLevel()
    yield "qwen", qwen

    nemo = trained(400, pre_tokenizers.Sequence([split(NEMO), byte_level(use_regex=False)]))
    nemo.decoder = decoders.ByteLevel()
    yield "nemo", nemo

    steps = [pre_tokenizers.Punctuation(), byte_level(), pre_tokenizers.Digits(), split("[0-9][0-9][0-9]")]
    falcon = trained(400, pre_tokenizers.Sequence(steps))
    falcon.decoder = decoders.ByteLevel()
    yield "falcon", falcon


def metaspace_tokenizers():
    unknown = ["<unk>", "<s>", "</s>"]
    vocabulary = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}

    def with_bytes(document):
        vocab = document["model"]["vocab"]
        for byte in range(256):
            vocab.setdefault(f"<0x{byte:02X}>", len(vocab))

    mistral = trained(500, pre_tokenizers.Metaspace(prepend_scheme="never"), alphabet=False, special=unknown, **vocabulary)
    mistral = changed(mistral, with_bytes)
    mistral.pre_tokenizer = pre_tokenizers.Sequence([])
    mistral.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    mistral.post_processor = processors.TemplateProcessing(single="<s> $A", pair="$A $B", special_tokens=[("<s>", 1)])
    mistral.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                         decoders.Strip(" ", 1, 0)])
    yield "mistral", changed(mistral, lambda document: document.update(pre_tokenizer=None))
    for scheme in ("always", "first", "never"):
        fused = scheme != "first"
        metaspace = trained(400, pre_tokenizers.Metaspace(prepend_scheme=scheme), alphabet=False, special=unknown,
                            unk_token="<unk>", fuse_unk=fused)
        metaspace.decoder = decoders.Metaspace(prepend_scheme=scheme)
        yield f"metaspace_{scheme}", metaspace


def other_tokenizers():
    affixes = trained(400, pre_tokenizers.Whitespace(), normalizers.Sequence([
        normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip(), normalizers.Replace(Regex(r"\d+"), "#")]),
        alphabet=False, special=["<unk>"], unk_token="<unk>", continuing_subword_prefix="##", end_of_word_suffix="</w>")
    yield "affixes", affixes

    added = trained(400, byte_level(), normalizers.Lowercase())
    added.decoder = decoders.ByteLevel()
    added.add_special_tokens([AddedToken("<|user|>", rstrip=True, special=True),
                              AddedToken("<|both|>", lstrip=True, rstrip=True, special=True)])
    added.add_tokens([AddedToken("<|left|>", lstrip=True, normalized=False), AddedToken("word", single_word=True, normalized=False),
                      AddedToken("Yesterday", normalized=True), AddedToken("  ", normalized=False),
                      AddedToken("<|user|>extra", normalized=False), AddedToken("naïve", single_word=True)])
    yield "added", added

    steps = [split(r"\d", "merged_with_previous"), split(r"[A-Z]", "merged_with_next"), split(r"[\p{P}\p{S}]", "contiguous"),
             split(r"\p{L}+", "merged_with_next", True), split(r"(?=q)|\b", "isolated"), split(r"(?m:.)+", "removed", True),
             pre_tokenizers.Split("e", "merged_with_previous"), pre_tokenizers.WhitespaceSplit()]
    yield "behaviors", trained(300, pre_tokenizers.Sequence(steps), normalizers.NFKD(), alphabet=False,
                               special=["<unk>"], unk_token="<unk>")


def special_of(tokenizer):
    return [token["content"] for token in json.loads(tokenizer.to_str())["added_tokens"]][:60]


def fnv(lines):
    hash_ = 0xCBF29CE484222325
    for line in lines:
        for number in [*line, 0xFFFFFFFF]:
            for byte in number.to_bytes(4, "little"):
                hash_ = (hash_ ^ byte) * 0x100000001B3 % 2**64
    return f"{hash_:016x}"


def main():
    small = dict([*byte_level_tokenizers(), *metaspace_tokenizers(), *other_tokenizers()])
    special = sorted({s for tokenizer in small.values() for s in special_of(tokenizer)} | {"<｜begin▁of▁sentence｜>", "<think>"})
    cases = ["G", "<s>G", " G", "<|user|>Hello", "<|user|>   Hello", "a word, words", " Việt", "Yesterday YESTERDAY",
             "<|endoftext|>Hi<|endoftext|>", " <|left|> x <|both|> y ", "1234567", "sub-word 123,4567!"]
    runs = [line for line in tokenizer_lines.runs() if len(line) <= 102]
    lines = [*cases, *runs, *tokenizer_lines.mixtures(900, special, seed=2)]
    (HERE / "lines.bin").write_bytes(b"".join(line.encode() + b"\0" for line in lines))
    golden_path = HERE / "ids.json"
    golden = json.loads(golden_path.read_text()) if golden_path.exists() else {}
    golden = {name: entry for name, entry in golden.items() if "large" in entry}
    for argument in sys.argv[1:]:
        name, _, path = argument.partition("=")
        small[name] = Tokenizer.from_file(path)
    for name, tokenizer in small.items():
        large = any(argument.startswith(name + "=") for argument in sys.argv[1:])
        if not large:
            text = json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":"))
            (HERE / f"{name}.tokenizer.json").write_text(text + "\n")
        ids = [encoding.ids for encoding in tokenizer.encode_batch(lines)]
        decoded = tokenizer.decode_batch(ids, skip_special_tokens=False)
        texts = [list(text.encode()) for text in decoded]
        golden[name] = {**({"large": True} if large else {}), "ids": sum(map(len, ids)), "fnv": fnv(ids),
                        "text_fnv": fnv(texts), "first": ids[:SHOWN]}
    body = ",\n".join(f"{json.dumps(name)}: {json.dumps(golden[name])}" for name in sorted(golden))
    golden_path.write_text("{\n" + body + "\n}\n")
    print(f"{len(lines)} lines, {len(golden)} tokenizers")


if __name__ == "__main__":
    main()
