"""octavo tokenize against the tokenizers package: ids, decoded text, pieces."""

import gzip
import json
import os
import pathlib
import shutil
import subprocess

from harness import Skip

from tokenizer_lines import all_lines

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "golden" / "text"


def ids_of(harness, model, lines, *options):
    """Of each line, by itself."""
    path = pathlib.Path(harness.scratch) / "lines"
    path.write_bytes("".join(line + "\0" for line in lines).encode())
    out = harness.octavo("tokenize", model, "--file", path, "--null", *options)
    return [[int(word) for word in line.split()] for line in out.split("\n")[:-1]]


def texts_of(harness, model, ids, *options):
    path = pathlib.Path(harness.scratch) / "ids"
    path.write_text("".join(" ".join(map(str, line)) + "\0" for line in ids))
    command = [str(harness.binary), "tokenize", str(model), "--file", str(path), "--null", "--decode", *options]
    return subprocess.run(command, capture_output=True, check=True).stdout.decode().split("\0")[:-1]


def compare(what, lines, actual, expected):
    assert len(actual) == len(expected), f"{what}: {len(actual)} records of {len(expected)}"
    wrong = [i for i, (a, e) in enumerate(zip(actual, expected)) if a != e]
    if wrong:
        i = wrong[0]
        line, a, e = lines[i], actual[i], expected[i]
        at = next((k for k, (x, y) in enumerate(zip(a, e)) if x != y), min(len(a), len(e)))
        raise AssertionError(f"{what}: {len(wrong)} of {len(lines)} differ, first {line[:200]!r} at {at}: "
                             f"{a[at:at + 12]}, expected {e[at:at + 12]}")


def load(path):
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise Skip(f"no tokenizers: {error}") from None
    reference = Tokenizer.from_file(str(path))
    reference.no_truncation()
    reference.no_padding()
    return reference


def check_tokenizer(harness, path, texts):
    reference = load(path)
    special = [t["content"] for t in json.loads(path.read_text())["added_tokens"]][:200]
    lines = all_lines(special, texts)
    assert len(lines) >= 10_000, f"{len(lines)} lines"
    tokens = 0
    for added in (True, False):
        expected = [e.ids for e in reference.encode_batch_fast(lines, add_special_tokens=added)]
        compare("ids", lines, ids_of(harness, path, lines, *([] if added else ["--no-added-special"])), expected)
        tokens += sum(map(len, expected))
    reference.encode_special_tokens = True
    expected = [e.ids for e in reference.encode_batch_fast(lines)]
    compare("ids without special tokens", lines, ids_of(harness, path, lines, "--no-parse-special"), expected)
    reference.encode_special_tokens = False
    ids = [e.ids for e in reference.encode_batch_fast(lines)]
    # Cut in the middle, code points are not whole.
    ids += [line[len(line) // 3 : 1 + 2 * len(line) // 3] for line in ids]
    names = lines + lines
    for skip in (True, False):
        expected = reference.decode_batch(ids, skip_special_tokens=skip)
        compare("text", names, texts_of(harness, path, ids, *(["--skip-special"] if skip else [])), expected)
    return f"{len(lines)} lines, {tokens} tokens"


def unpacked(directory, scratch):
    """{name: tokenizer.json} of a directory of directories."""
    found = {}
    for entry in sorted(pathlib.Path(directory).iterdir()) if directory else []:
        plain, packed = entry / "tokenizer.json", entry / "tokenizer.json.gz"
        if packed.exists():
            plain = pathlib.Path(scratch) / entry.name / "tokenizer.json"
            plain.parent.mkdir(exist_ok=True)
            with gzip.open(packed) as source, open(plain, "wb") as target:
                shutil.copyfileobj(source, target)
        if plain.exists():
            found[entry.name] = plain
    return found


def run(harness, model):
    texts = os.environ.get("OCTAVO_TEXTS")
    found = unpacked(os.environ.get("OCTAVO_TOKENIZERS"), harness.scratch)
    if not found:
        print("skipped: large tokenizers (OCTAVO_TOKENIZERS names no directory of them)")
        harness.counts["skipped"] += 1
    if not texts:
        print("note: no prose among the texts (OCTAVO_TEXTS names no directory of it)")
    if model and (pathlib.Path(model) / "tokenizer.json").exists():
        found[pathlib.Path(model).name] = pathlib.Path(model) / "tokenizer.json"
    for fixture in sorted(FIXTURES.glob("*.tokenizer.json")):
        found[fixture.name] = fixture
    for name, path in found.items():
        harness.check(f"tokenize {name}", check_tokenizer, path, texts)
