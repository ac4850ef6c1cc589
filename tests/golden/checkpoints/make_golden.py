"""Writes golden_quantize.safetensors and golden_quantize.json: quantization by other programs.

    .venv/oracles/bin/python tests/golden/checkpoints/make_golden.py

scripts/oracles makes that Python. Per case the file holds <case>.source (BF16, F16 or F32),
<case>.codes (F8_E4M3), <case>.scale (F32, or F8_E8M0 for ue8m0) and <case>.dequantized (BF16:
code x scale in F32, rounded once). Cases of origin "transformers" are what its Fp8Quantize and
Fp8Dequantize computed, the others come from tests/differential/rules.py. Every run writes the
same bytes.
"""

import json
import pathlib
import sys

import ml_dtypes
import numpy as np
import torch
import transformers
from transformers.integrations.finegrained_fp8 import Fp8Dequantize

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "differential"))

import check_transformers  # noqa: E402
import checkpoints  # noqa: E402
import inputs  # noqa: E402
import rules  # noqa: E402
from harness import assert_same_bits  # noqa: E402

PINNED = {"numpy": "2.4.6", "ml_dtypes": "0.6.0", "torch": "2.15.0", "transformers": "5.24.0"}
SIZE_LIMIT = 200_000


def versions():
    modules = {"numpy": np, "ml_dtypes": ml_dtypes, "torch": torch, "transformers": transformers}
    found = {name: module.__version__.partition("+")[0] for name, module in modules.items()}
    if found != PINNED:
        sys.exit(f"make_golden: versions {found}, pinned are {PINNED}")
    return found


def numpy_case(source, rule, block, scale_fmt):
    codes, scales = rules.quantize(source, rule, block, scale_fmt)
    return codes, scales, rules.dequantize(codes, scales, block)


def transformers_case(source, rule, block, scale_fmt):
    """What Transformers computes; the numpy rules must agree with it."""
    codes, scales = check_transformers.transformers_quantize(source, scale_fmt, block)
    scale_dtype = torch.float32 if scale_fmt == "float" else torch.float8_e8m0fnu
    dequantized = check_transformers.to_numpy(
        Fp8Dequantize(None)._dequantize_one(
            torch.from_numpy(codes).view(torch.float8_e4m3fn),
            torch.from_numpy(scales).view(scale_dtype),
            output_dtype=torch.bfloat16,
        )
    )
    expected = numpy_case(source, rule, block, scale_fmt)
    for what, mine, theirs in zip(
        ("codes", "scale", "dequantized"), expected, (codes, scales, dequantized)
    ):
        assert_same_bits(what, mine, theirs)
    return codes, scales, dequantized


def planned_cases():
    """(origin, generator, source dtype, shape, rule, block, scale format)"""
    for scale_fmt in rules.SCALE_FORMATS:
        for generator in check_transformers.GENERATORS:
            yield "transformers", generator, "bf16", (16, 32), "transformers", (16, 16), scale_fmt
        for rule in rules.RULES:
            for generator in inputs.GENERATORS:
                yield "numpy", generator, "bf16", (20, 17), rule, (16, 16), scale_fmt
            yield "numpy", "gaussian", "f16", (20, 17), rule, (16, 8), scale_fmt
            yield "numpy", "tiny", "f32", (40, 5), rule, (1, 4), scale_fmt
    for rule in rules.RULES:
        yield "numpy", "heavy_tailed", "bf16", (129, 3), rule, (128, 128), "float"
        yield "numpy", "heavy_tailed", "bf16", (3, 129), rule, (128, 128), "float"
    yield "numpy", "gaussian", "bf16", (1, 1), "transformers", (128, 128), "ue8m0"


def main():
    made_with = versions()
    tensors, cases = {}, []
    origins = {
        "transformers": (transformers_case, f"transformers {made_with['transformers']}"),
        "numpy": (numpy_case, f"numpy {made_with['numpy']}"),
    }
    for seed, (origin, generator, dtype, shape, rule, block, scale_fmt) in enumerate(
        planned_cases()
    ):
        compute, label = origins[origin]
        source = inputs.make(generator, shape, inputs.SOURCE_DTYPES[dtype], seed)
        codes, scales, dequantized = compute(source, rule, block, scale_fmt)
        sizes = f"{shape[0]}x{shape[1]}_block_{block[0]}x{block[1]}"
        name = f"{generator}_{dtype}_{sizes}_{rule}_{scale_fmt}"
        name += "_oracle" if origin == "transformers" else ""
        tensors[f"{name}.source"] = source
        tensors[f"{name}.codes"] = ("F8_E4M3", codes)
        tensors[f"{name}.scale"] = scales if scale_fmt == "float" else ("F8_E8M0", scales)
        tensors[f"{name}.dequantized"] = dequantized
        cases.append(
            {
                "name": name,
                "rule": rule,
                "block": list(block),
                "scale_fmt": scale_fmt,
                "origin": label,
            }
        )
    # Widest types first, so that every tensor is aligned.
    widths = {
        name: (value[1] if isinstance(value, tuple) else value).itemsize
        for name, value in tensors.items()
    }
    ordered = {name: tensors[name] for name in sorted(tensors, key=lambda name: -widths[name])}
    path = HERE / "golden_quantize.safetensors"
    checkpoints.write_safetensors(path, ordered)
    lines = ",\n".join("  " + json.dumps(case) for case in cases)
    manifest = f'{{"made_with": {json.dumps(made_with)},\n "cases": [\n{lines}\n]}}\n'
    (HERE / "golden_quantize.json").write_text(manifest)
    size = path.stat().st_size + len(manifest)
    assert size < SIZE_LIMIT, size
    print(f"{len(cases)} cases, {size} bytes")


if __name__ == "__main__":
    main()
