"""Compares a directory made by smollm2_to_hf with Transformers' own loading of the same GGUF.

    smollm2_check.py WHEEL_OR_GGUF DIRECTORY

Weights must equal the GGUF's rounded to BF16; logits in float32 must equal those of the GGUF model
whose weights were rounded to BF16; token ids must be equal. Exit status 1 if not.
"""

import os
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from smollm2_to_hf import extract_gguf

PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "In 1815, 1234567 people; 3.14159 is π. Ünïcödé 漢字 🙂",
]
TOKENIZER_TEXTS = PROMPTS + [
    "",
    " leading and trailing ",
    "tabs\tand\r\nnewlines\n\n\n  and   runs of   spaces",
    "it's we're I'll don't they've I'd I'm IT'S",
    "<|im_start|>user\nWhat is 12 x 34?<|im_end|>\n<|im_start|>assistant\n",
    "emoji 👩‍👩‍👧‍👦 and é é, العربية עברית हिन्दी ไทย 한국어",
    "0123456789 ½ ² ٣ 12,345.67e-8",
]
CHAT = [{"role": "user", "content": "What are we having for dinner?"}]


def largest_logit_difference(model, other, tokenizer):
    largest = 0.0
    for prompt in PROMPTS:
        ids = torch.tensor([tokenizer(prompt)["input_ids"]])
        with torch.no_grad():
            difference = model(ids).logits - other(ids).logits
        largest = max(largest, difference.abs().max().item())
    return largest


def differing_weights(model, other):
    theirs = dict(other.named_parameters())
    ours = dict(model.named_parameters())
    if ours.keys() != theirs.keys():
        return sorted(ours.keys() ^ theirs.keys())
    return [name for name in ours if not torch.equal(ours[name], theirs[name])]


def main(source, directory):
    with tempfile.TemporaryDirectory() as scratch:
        gguf = os.path.abspath(extract_gguf(source, scratch))
        folder, name = os.path.split(gguf)
        theirs = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
        their_tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(directory)

    failures = []
    print(
        f"logits, GGUF weights as they are:   largest difference "
        f"{largest_logit_difference(model, theirs, tokenizer):.3g} (the BF16 rounding of weights)"
    )
    for parameter in theirs.parameters():  # not the buffers: rotary frequencies stay float32
        parameter.data = parameter.data.to(torch.bfloat16).to(torch.float32)
    rounded = largest_logit_difference(model, theirs, tokenizer)
    print(f"logits, GGUF weights rounded to BF16: largest difference {rounded:.3g}")
    if rounded != 0:
        failures.append("logits")
    weights = differing_weights(model, theirs)
    print(f"weights that differ from the GGUF's rounded to BF16: {len(weights)} {weights[:3]}")
    failures += weights
    for text in TOKENIZER_TEXTS:
        ids, their_ids = tokenizer(text)["input_ids"], their_tokenizer(text)["input_ids"]
        if ids != their_ids:
            failures.append(text)
            print(f"token ids differ for {text!r}:\n  {ids}\n  {their_ids}")
        if tokenizer.decode(ids) != text:
            failures.append(text)
            print(f"decoding does not give back {text!r} but {tokenizer.decode(ids)!r}")
    chat = tokenizer.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)
    their_chat = their_tokenizer.apply_chat_template(
        CHAT, tokenize=False, add_generation_prompt=True
    )
    if chat != their_chat:
        failures.append("chat template")
    print(f"token ids: {len(TOKENIZER_TEXTS)} texts compared; chat prompt: {chat!r}")
    ids = tokenizer(chat, return_tensors="pt")
    answer = model.generate(**ids, max_new_tokens=16, do_sample=False)[
        0, ids["input_ids"].shape[1] :
    ]
    print(f"greedy answer: {tokenizer.decode(answer)!r}")
    print("equal" if not failures else f"{len(failures)} differences")
    return 1 if failures else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: smollm2_check.py WHEEL_OR_GGUF DIRECTORY")
    sys.exit(main(*sys.argv[1:]))
