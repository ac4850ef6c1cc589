#!/usr/bin/env python3
"""Makes expected/greedy.json: 20 prompts and the 200 tokens that Transformers' f32 run says next to each, for every tiny
model beside this file and, where its directory is given, for SmolLM2-135M-Instruct.

NAME: {
  prompts, greedy   token ids, a list for each prompt; end tokens are like any other
  texts             SmolLM2: the prompts as text
  weights           SmolLM2: size of model.safetensors and the sum of its 64-bit words: other weights, other text
  f32_error         the largest distance of a logit of Transformers' f32 run from the f64 run, over all steps
  near              [prompt, step, gap] of those steps where the two best logits of the f64 run are nearer than NEAR
}

The f64 run is that of make_models.py. Prompts have the same number of tokens, so that a batch needs no padding.

Usage: scripts/oracles, then .venv/oracles/bin/python tests/golden/models/make_greedy.py [SMOLLM2_DIR]
Without SMOLLM2_DIR its entry stays as it is.
"""

import json
import pathlib
import sys

import numpy as np
import torch
from make_models import EXPECTED, HERE, MODELS, VOCABULARY, in_f64
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM
from transformers.utils import logging

logging.disable_progress_bar()

PROMPTS = 20
PROMPT = 16
GREEDY = 200
NEAR = 2**-10

# The last PROMPT tokens of each are the prompt.
TEXTS = [
    "Once upon a time, in a small village by the sea, there lived an old clockmaker who",
    "The capital of France is Paris, the capital of Italy is Rome, and the capital of Spain is",
    "The three laws of motion, which Isaac Newton published in 1687, can be stated as follows:",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return fibonacci(n - 1) +",
    "#include <vector>\n\nint main() {\n  std::vector<int> v{3, 1, 2};\n  for (int x",
    "In the year 1815, after many days of marching through the rain, the soldiers at last",
    "Ingredients for two: 200 g of flour, 3 eggs, 100 ml of milk, a pinch of salt.\n\n1.",
    "<|im_start|>user\nName three colours of the rainbow, please.<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nWhy is the sky blue? Explain it to a child.<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nWrite a short poem about rivers and stones.<|im_end|>\n<|im_start|>assistant\n",
    "12 + 30 = 42. 15 + 27 = 42. 20 + 22 =",
    '{"name": "Ada", "born": 1815, "fields": ["mathematics", "computing"], "works":',
    "La plus grande ville de France est Paris, qui se trouve sur la Seine. La deuxième",
    "Die Hauptstadt von Deutschland ist Berlin, und die größte Stadt von Bayern ist",
    "Q: How many legs has a spider?\nA: Eight.\nQ: How many legs has an ant?\nA:",
    "It was the best of times, it was the worst of times, it was the age of wisdom,",
    "| planet | moons |\n|---|---|\n| Earth | 1 |\n| Mars | 2 |\n| Jupiter |",
    "SELECT name, COUNT(*) FROM orders JOIN customers ON orders.customer_id =",
    "Dear Sir or Madam,\n\nI am writing to complain about the train that I took on Monday,",
    "To be healthy you should: - sleep eight hours; - drink water; - walk every day; -",
]


def tiny_prompts(seed):
    generator = torch.Generator().manual_seed(seed + 2000)
    return torch.randint(VOCABULARY, (PROMPTS, PROMPT), generator=generator).tolist()


def text_prompts(directory):
    """(ids, texts): each text has those ids again. The file counts: AutoTokenizer may put other steps in its place."""
    tokenizer = Tokenizer.from_file(str(pathlib.Path(directory) / "tokenizer.json"))
    assert len(TEXTS) == PROMPTS
    ids = [tokenizer.encode(text, add_special_tokens=False).ids[-PROMPT:] for text in TEXTS]
    texts = tokenizer.decode_batch(ids, skip_special_tokens=False)
    for line, text in zip(ids, texts):
        assert len(line) == PROMPT, f"{len(line)} tokens: {text!r}"
        assert tokenizer.encode(text, add_special_tokens=False).ids == line, text
    return ids, texts


class Reference:
    """Transformers' f32 and f64 runs of a directory."""

    def __init__(self, directory):
        self.f32 = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
        self.f64 = in_f64(AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval())

    def greedy(self, prompts):
        config = self.f32.generation_config
        config.eos_token_id = None
        ids = torch.tensor(prompts)
        with torch.no_grad():
            out = self.f32.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=GREEDY, do_sample=False,
                                    repetition_penalty=1.0, pad_token_id=0)
        return out[:, ids.shape[1]:].tolist()

    def steps(self, prompt, greedy):
        """(f64 logits, f32 logits), (GREEDY, vocabulary): what stands before each token of `greedy`."""
        ids = torch.tensor([prompt + greedy])
        with torch.no_grad():
            return [model(ids, use_cache=False).logits[0, len(prompt) - 1:-1] for model in (self.f64, self.f32)]


def gaps(exact):
    best = exact.topk(2).values
    return best[:, 0] - best[:, 1]


def entry(reference, prompts):
    greedy = reference.greedy(prompts)
    error, near = 0.0, []
    for number, (prompt, line) in enumerate(zip(prompts, greedy)):
        assert len(line) == GREEDY
        exact, f32 = reference.steps(prompt, line)
        error = max(error, (f32.double() - exact).abs().max().item())
        gap = gaps(exact)
        near += [[number, step, gap[step].item()] for step in (gap < NEAR).nonzero()[:, 0].tolist()]
        others = (exact.argmax(-1) != torch.tensor(line)).nonzero()[:, 0].tolist()
        assert all(gap[step] < NEAR for step in others), f"prompt {number}: {others}"
        for step in others:
            print(f"  prompt {number}, step {step}: f32 and f64 differ where the two best are {gap[step]:.1e} apart")
    assert error < NEAR / 4
    return {"prompts": prompts, "greedy": greedy, "f32_error": error, "near": near}


def smollm2_entry(directory):
    weights = (directory / "model.safetensors").read_bytes()
    words = np.frombuffer(weights[:len(weights) // 8 * 8], "<u8")
    prompts, texts = text_prompts(directory)
    return {"weights": [len(weights), f"{words.sum(dtype=np.uint64):016x}"], "texts": texts,
            **entry(Reference(directory), prompts)}


def written(value, indent=1):
    """Lists of scalars on one line."""
    if isinstance(value, dict):
        lines = [f"{json.dumps(key)}: {written(item, indent + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(" " * indent + line for line in lines) + "}"
    if isinstance(value, list) and value and isinstance(value[0], list):
        return "[\n" + ",\n".join(" " * indent + json.dumps(line, separators=(",", ":")) for line in value) + "]"
    return json.dumps(value)


def main(smollm2=None):
    torch.set_num_threads(1)
    path = EXPECTED / "greedy.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    result = {}
    for seed, name in enumerate(MODELS):
        result[name] = entry(Reference(HERE / name), tiny_prompts(seed))
    if smollm2:
        result["smollm2"] = smollm2_entry(pathlib.Path(smollm2))
    elif "smollm2" in known:
        result["smollm2"] = known["smollm2"]
    for name, made in result.items():
        different = len({token for line in made["greedy"] for token in line})
        print(f"{name}: f32 error {made['f32_error']:.2e}, {len(made['near'])} steps with a gap below {NEAR:.1e}, smallest "
              f"{min((line[2] for line in made['near']), default=NEAR):.1e}, {different} different tokens")
    path.write_text(written(result) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
