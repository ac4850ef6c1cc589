"""Greedy text of octavo against Transformers', live: token by token, fed as Transformers chose and said freely. For the
tiny models Transformers' text must be that of expected/greedy.json besides."""

import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np

from harness import Skip

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "models"
sys.path.insert(0, str(GOLDEN))
F32 = ["--activations", "f32", "--kv-cache-dtype", "f32"]


def character_tokenizer(size):
    """One token for each character: (tokenizer.json, the characters)."""
    characters = [chr(0x100 + i) for i in range(size)]
    model = {"type": "BPE", "vocab": {c: i for i, c in enumerate(characters)}, "merges": []}
    return json.dumps({"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
                       "post_processor": None, "decoder": {"type": "Fuse"}, "model": model}), characters


def logits_of(harness, directory, sequences, first):
    """(tokens - first, vocabulary) of each, by the program of tests/support."""
    program = harness.built("octavo_print_logits")
    vocabulary = json.loads((directory / "config.json").read_text())["vocab_size"]
    for tokens in sequences:
        result = subprocess.run([program, directory, str(first)], input=" ".join(map(str, tokens)).encode(),
                                capture_output=True)
        assert result.returncode == 0, result.stderr.decode()
        yield np.frombuffer(result.stdout, np.float32).reshape(len(tokens) - first, vocabulary)


def generated(harness, directory, texts, count):
    prompts = [word for text in texts for word in ("-p", text)]
    out = harness.octavo("generate", directory, *prompts, *F32, "-n", count, "--temp", 0, "--ignore-eos", "--no-special",
                         "--repetition-penalty", 1, "--json", "--quiet")
    return [sequence["tokens"] for sequence in json.loads(out)["sequences"]]


def compare(harness, directory, prompts, texts, golden=None):
    import make_greedy

    reference = make_greedy.Reference(directory)
    greedy = reference.greedy(prompts)
    assert golden in (None, greedy), "Transformers says something else here than in expected/greedy.json"
    first = len(prompts[0]) - 1
    ours = logits_of(harness, directory, [p + line[:-1] for p, line in zip(prompts, greedy)], first)
    error = their_error = 0.0
    differ = []  # (prompt, step, gap)
    gaps = []
    for number, (prompt, line, logits) in enumerate(zip(prompts, greedy, ours)):
        exact, f32 = reference.steps(prompt, line)
        gap = make_greedy.gaps(exact).numpy()
        error = max(error, np.abs(logits - exact.numpy()).max())
        their_error = max(their_error, (f32.double() - exact).abs().max().item())
        differ += [(number, step, gap[step]) for step in np.flatnonzero(logits.argmax(-1) != np.array(line))]
        gaps.append(gap)
    assert 0 < error <= 2 * their_error, f"error {error}, Transformers' {their_error}"
    for number, step, gap in differ:
        assert gap < error, f"prompt {number}, step {step}: the two best are {gap} apart, our error is {error}"
    # Said freely: the same up to the first step that may differ.
    free = generated(harness, directory, texts, len(greedy[0]))
    split = 0
    for number, (line, said) in enumerate(zip(greedy, free, strict=True)):
        assert len(said) == len(line), f"prompt {number}: {len(said)} tokens"
        step = next((i for i, (a, b) in enumerate(zip(line, said)) if a != b), None)
        if step is not None:
            gap = gaps[number][step]
            assert gap < error, f"prompt {number} leaves Transformers' text at {step}, the two best {gap} apart, error {error}"
            split += 1
    return (f"{len(prompts)} prompts of {len(greedy[0])} tokens, {len(differ)} differ where fed, {split} texts part; error "
            f"{error:.2e}, {error / their_error:.2f} of Transformers'")


def check_tiny(harness, name, seed):
    import make_greedy

    with harness.directory() as scratch:
        directory = pathlib.Path(scratch) / name
        shutil.copytree(GOLDEN / name, directory)
        text, characters = character_tokenizer(make_greedy.VOCABULARY)
        (directory / "tokenizer.json").write_text(text)
        prompts = make_greedy.tiny_prompts(seed)
        texts = ["".join(characters[t] for t in prompt) for prompt in prompts]
        golden = json.loads((GOLDEN / "expected" / "greedy.json").read_text())[name]
        assert golden["prompts"] == prompts
        return compare(harness, directory, prompts, texts, golden["greedy"])


def check_real(harness, directory):
    import make_greedy

    prompts, texts = make_greedy.text_prompts(directory)
    return compare(harness, directory, prompts, texts)


def run(harness, model):
    try:
        import make_greedy
    except ImportError as error:
        print(f"skipped: greedy text (no torch or transformers: {error})")
        harness.counts["skipped"] += 1
        return
    for seed, name in enumerate(make_greedy.MODELS):
        harness.check(f"greedy text of {name}", check_tiny, name, seed)
    if model:
        harness.check(f"greedy text of {pathlib.Path(model).name}", check_real, pathlib.Path(model))
