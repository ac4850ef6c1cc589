"""octavo quantize and dequantize against rules.py, bit for bit."""

import pathlib

import ml_dtypes
import numpy as np

import checkpoints
import inputs
import rules
from harness import assert_same_bits

SHAPES = [(128, 256), (300, 200), (1, 1), (130, 3), (2, 160, 96)]
BLOCKS = [(128, 128), (32, 64), (1, 128)]
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16"}
# Without `huge`: there code x scale may leave the range of the destination.
FINITE = [name for name in inputs.GENERATORS if name != "huge"]
WITHIN_F16 = ["gaussian", "zeros", "code_midpoints"]


def sources(dtype, generators):
    """{tensor name: array}: every generator in every shape; 3-D ones are fused experts."""
    result = {}
    for name in generators:
        for shape in SHAPES:
            index = len(result)
            module = "experts.down_proj" if len(shape) == 3 else "up_proj.weight"
            result[f"model.layers.{index}.mlp.{module}"] = inputs.make(name, shape, dtype, index)
    return result


def quantize_options(rule, block, scale_fmt):
    return [
        "--rule",
        rule,
        "--scale-fmt",
        scale_fmt,
        "--weight-block-size",
        f"{block[0]},{block[1]}",
    ]


def quantized(harness, directory, tensors, options):
    source = checkpoints.write_directory(pathlib.Path(directory) / "source", tensors, CONFIG)
    target = pathlib.Path(directory) / "target"
    harness.octavo("quantize", source, target, *options)
    return target


def check_quantize(harness, source_dtype, rule, block, scale_fmt):
    tensors = sources(inputs.SOURCE_DTYPES[source_dtype], inputs.GENERATORS)
    with harness.directory() as directory:
        target = quantized(harness, directory, tensors, quantize_options(rule, block, scale_fmt))
        written = checkpoints.read_directory(target)
    assert len(written) == 2 * len(tensors), f"{len(written)} tensors, {2 * len(tensors)} expected"
    for name, source in tensors.items():
        codes, scales = rules.quantize(source, rule, block, scale_fmt)
        code_tag, actual_codes = written[name]
        scale_tag, actual_scales = written[checkpoints.scale_name(name)]
        assert (code_tag, scale_tag) == ("F8_E4M3", "F32" if scale_fmt == "float" else "F8_E8M0")
        assert_same_bits(f"scale of {name} {source.shape}", actual_scales, scales)
        assert_same_bits(f"codes of {name} {source.shape}", actual_codes, codes)
        assert not ((codes & 0x7F) == 0x7F).any(), f"NaN code in {name}"
    return f"{len(tensors)} tensors"


def check_f32_powers_of_two(harness):
    """--scale-dtype f32: the same powers of two in another container."""
    tensors = sources(ml_dtypes.bfloat16, ["gaussian", "heavy_tailed", "zeros"])
    block = (128, 128)
    options = quantize_options("transformers", block, "ue8m0") + ["--scale-dtype", "f32"]
    with harness.directory() as directory:
        written = checkpoints.read_directory(quantized(harness, directory, tensors, options))
    for name, source in tensors.items():
        codes, scales = rules.quantize(source, "transformers", block, "ue8m0")
        assert_same_bits(
            f"scale of {name}", written[checkpoints.scale_name(name)][1], rules.scale_values(scales)
        )
        assert_same_bits(f"codes of {name}", written[name][1], codes)


def check_dequantize(harness, dtype, block, scale_fmt):
    generators = WITHIN_F16 if dtype == "f16" else FINITE
    tensors = sources(ml_dtypes.bfloat16, generators)
    with harness.directory() as directory:
        target = quantized(
            harness, directory, tensors, quantize_options("transformers", block, scale_fmt)
        )
        back = pathlib.Path(directory) / "back"
        harness.octavo("dequantize", target, back, "--dtype", dtype)
        written, actual = checkpoints.read_directory(target), checkpoints.read_directory(back)
    assert actual.keys() == tensors.keys(), f"names {sorted(actual.keys() ^ tensors.keys())[:3]}"
    for name in tensors:
        codes, scales = written[name][1], written[checkpoints.scale_name(name)][1]
        expected = rules.dequantize(codes, scales, block, inputs.SOURCE_DTYPES[dtype])
        assert_same_bits(name, actual[name][1], expected)
    return f"{len(tensors)} tensors"


def check_fixed_point(harness, scale_fmt):
    """quantize, dequantize to BF16, quantize: the same bits; with ue8m0, the same values."""
    tensors = sources(ml_dtypes.bfloat16, [name for name in FINITE if name != "tiny"])
    block = (128, 128)
    options = quantize_options("transformers", block, scale_fmt)
    with harness.directory() as directory:
        target = quantized(harness, directory, tensors, options)
        back, again = pathlib.Path(directory) / "back", pathlib.Path(directory) / "again"
        harness.octavo("dequantize", target, back, "--dtype", "bf16")
        harness.octavo("quantize", back, again, *options)
        first, second = checkpoints.read_directory(target), checkpoints.read_directory(again)
    assert first.keys() == second.keys()
    if scale_fmt == "float":
        for name in first:
            assert_same_bits(name, second[name][1], first[name][1])
    else:
        for name in tensors:
            values = [
                rules.dequantize(
                    file[name][1], file[checkpoints.scale_name(name)][1], block, np.float32
                )
                for file in (first, second)
            ]
            assert_same_bits(name, values[1], values[0])


def check_model(harness, model, scale_fmt):
    """Every tensor of a real checkpoint: quantized ones by the rule, all others untouched."""
    source = checkpoints.read_directory(model)
    block = (128, 128)
    with harness.directory() as directory:
        target = pathlib.Path(directory) / "target"
        harness.octavo(
            "quantize", model, target, *quantize_options("transformers", block, scale_fmt)
        )
        written = checkpoints.read_directory(target)
    count = 0
    for name, (tag, array) in source.items():
        if checkpoints.scale_name(name) in written:
            codes, scales = rules.quantize(array, "transformers", block, scale_fmt)
            assert_same_bits(f"scale of {name}", written[checkpoints.scale_name(name)][1], scales)
            assert_same_bits(f"codes of {name}", written[name][1], codes)
            count += 1
        else:
            assert written[name][0] == tag, f"{name}: {written[name][0]}, expected {tag}"
            assert_same_bits(name, written[name][1], array)
    projections = [name for name in source if "_proj.weight" in name]
    assert count == len(projections), f"{count} quantized, {len(projections)} projections"
    assert len(written) == len(source) + count
    return f"{count} of {len(source)} tensors quantized"


def run(harness, model):
    for source_dtype in inputs.SOURCE_DTYPES:
        for block in BLOCKS:
            for rule in rules.RULES:
                for scale_fmt in rules.SCALE_FORMATS:
                    harness.check(
                        f"quantize {source_dtype} {rule} {block[0]}x{block[1]} {scale_fmt}",
                        check_quantize,
                        source_dtype,
                        rule,
                        block,
                        scale_fmt,
                    )
    harness.check("quantize ue8m0 with f32 scales", check_f32_powers_of_two)
    for dtype in inputs.SOURCE_DTYPES:
        for block in BLOCKS:
            for scale_fmt in rules.SCALE_FORMATS:
                harness.check(
                    f"dequantize to {dtype} {block[0]}x{block[1]} {scale_fmt}",
                    check_dequantize,
                    dtype,
                    block,
                    scale_fmt,
                )
    for scale_fmt in rules.SCALE_FORMATS:
        harness.check(f"quantize again {scale_fmt}", check_fixed_point, scale_fmt)
    if model:
        for scale_fmt in rules.SCALE_FORMATS:
            harness.check(
                f"quantize {model} {scale_fmt}", check_model, pathlib.Path(model), scale_fmt
            )
