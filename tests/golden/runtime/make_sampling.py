#!/usr/bin/env python3
"""Makes sampling.json beside this file: probabilities of the next token after Transformers' logits
processors, in the order in which generate() puts them.

Usage: scripts/oracles, then .venv/oracles/bin/python tests/golden/runtime/make_sampling.py
"""

import json
import pathlib

import torch
import transformers
from transformers.generation.logits_process import (
    LogitsProcessorList, MinPLogitsWarper, RepetitionPenaltyLogitsProcessor, TemperatureLogitsWarper,
    TopKLogitsWarper, TopPLogitsWarper)

HERE = pathlib.Path(__file__).resolve().parent
VOCABULARY = 24

OPTIONS = [
    {"temperature": 1.0},
    {"temperature": 0.5},
    {"temperature": 2.0, "repetition_penalty": 1.3},
    {"temperature": 1.0, "top_k": 5},
    {"temperature": 1.5, "top_k": 1},
    {"temperature": 1.0, "top_k": 1000},
    {"temperature": 1.0, "top_p": 0.8},
    {"temperature": 1.0, "top_p": 0.0},
    {"temperature": 3.0, "top_p": 0.95},
    {"temperature": 1.0, "min_p": 0.1},
    {"temperature": 1.0, "min_p": 1.0},
    {"temperature": 1.5, "top_k": 10, "top_p": 0.7},
    {"temperature": 1.5, "top_k": 12, "top_p": 0.9, "min_p": 0.2, "repetition_penalty": 0.7},
    {"temperature": 0.8, "top_k": 8, "top_p": 0.9, "min_p": 0.05, "repetition_penalty": 1.57},
]


def processors(options):
    made = LogitsProcessorList()
    if "repetition_penalty" in options:
        made.append(RepetitionPenaltyLogitsProcessor(options["repetition_penalty"]))
    made.append(TemperatureLogitsWarper(options["temperature"]))
    for key, kind in (("top_k", TopKLogitsWarper), ("top_p", TopPLogitsWarper), ("min_p", MinPLogitsWarper)):
        if key in options:
            made.append(kind(options[key]))
    return made


def main():
    cases = []
    for seed, options in enumerate(OPTIONS):
        generator = torch.Generator().manual_seed(seed)
        logits = (torch.randperm(6 * VOCABULARY, generator=generator)[:VOCABULARY].float() - 80) / 16
        history = torch.randint(VOCABULARY, (10,), generator=generator)
        scores = processors(options)(history[None], logits[None].clone())
        kept = scores[scores > -torch.inf]
        assert len(kept.unique()) == len(kept), "equal logits: their order is arbitrary"
        cases.append({"options": options, "logits": logits.tolist(), "history": history.tolist(),
                      "probabilities": scores.double().softmax(-1)[0].tolist()})
    text = ",\n".join(json.dumps(c) for c in cases)
    (HERE / "sampling.json").write_text(
        f'{{"made_with": {{"transformers": "{transformers.__version__}"}}, "cases": [\n{text}\n]}}\n')


if __name__ == "__main__":
    main()
