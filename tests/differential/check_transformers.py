"""octavo against Transformers: its load-time quantizer, and its loader of quantized checkpoints."""

import pathlib

import numpy as np

import checkpoints
import inputs
from check_rules import CONFIG, quantize_options
from harness import Skip, assert_same_bits
from make_small import BLOCK_MULTIPLES, small_model

try:
    import torch
    from transformers import AutoModelForCausalLM, FineGrainedFP8Config
    from transformers.integrations.finegrained_fp8 import Fp8Quantize
    from transformers.utils import logging

    logging.disable_progress_bar()
    MISSING = None
except ImportError as error:
    MISSING = f"no torch or transformers: {error}"

BLOCK = (128, 128)
# Not `tiny`: where 448 / amax overflows, Transformers writes zero scales; Octavo guards there.
GENERATORS = ["gaussian", "heavy_tailed", "wide", "huge", "zeros", "code_midpoints"]


class Quantizer:
    """What Fp8Quantize reads of its owner."""

    def __init__(self, block, scale_fmt):
        self.quantization_config = FineGrainedFP8Config(
            weight_block_size=block, scale_fmt=scale_fmt
        )


def to_torch(array):
    if array.dtype.itemsize == 2 and array.dtype != np.float16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def to_numpy(tensor):
    """float32 stays; e4m3 and e8m0 become bytes; bf16 becomes the ml_dtypes type."""
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(inputs.SOURCE_DTYPES["bf16"])
    return tensor.numpy() if tensor.dtype == torch.float32 else tensor.view(torch.uint8).numpy()


def transformers_quantize(array, scale_fmt, block=BLOCK):
    """(codes, scales) as numpy arrays."""
    result = Fp8Quantize(Quantizer(block, scale_fmt)).convert({"x.weight": to_torch(array)})
    return to_numpy(result["x.weight"]), to_numpy(result["x.weight_scale_inv"])


def require_transformers():
    if MISSING:
        raise Skip(MISSING)


def compare_with_quantizer(sources, written, scale_fmt):
    for name, source in sources.items():
        codes, scales = transformers_quantize(source, scale_fmt)
        assert_same_bits(f"scale of {name}", written[checkpoints.scale_name(name)][1], scales)
        assert_same_bits(f"codes of {name}", written[name][1], codes)


def check_quantizer_inputs(harness, source_dtype, scale_fmt):
    require_transformers()
    sources = {
        f"model.layers.{i}.mlp.up_proj.weight": inputs.make(
            name, (256, 384), inputs.SOURCE_DTYPES[source_dtype], i
        )
        for i, name in enumerate(GENERATORS)
    }
    with harness.directory() as scratch:
        source = checkpoints.write_directory(pathlib.Path(scratch) / "source", sources, CONFIG)
        target = pathlib.Path(scratch) / "target"
        harness.octavo(
            "quantize", source, target, *quantize_options("transformers", BLOCK, scale_fmt)
        )
        compare_with_quantizer(sources, checkpoints.read_directory(target), scale_fmt)
    return f"{len(sources)} tensors"


def check_loader(harness, scale_fmt, explicit):
    """explicit: dequantize=True is asked for; else it is what Transformers does on a CPU."""
    require_transformers()
    with harness.directory() as scratch:
        source = small_model(scratch, BLOCK_MULTIPLES)
        target, back = pathlib.Path(scratch) / "target", pathlib.Path(scratch) / "back"
        harness.octavo(
            "quantize", source, target, *quantize_options("transformers", BLOCK, scale_fmt)
        )
        harness.octavo("dequantize", target, back, "--dtype", "bf16")
        originals, written, dequantized = map(checkpoints.read_directory, (source, target, back))
        config = {"quantization_config": FineGrainedFP8Config(dequantize=True)} if explicit else {}
        model, info = AutoModelForCausalLM.from_pretrained(
            target, dtype=torch.bfloat16, output_loading_info=True, **config
        )
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[kind], f"{kind}: {list(info[kind])[:3]}"
    loaded = {name: to_numpy(parameter.detach()) for name, parameter in model.named_parameters()}
    assert loaded.keys() == originals.keys() == dequantized.keys()
    for name, array in loaded.items():
        assert_same_bits(
            f"{name}, Transformers against octavo dequantize", dequantized[name][1], array
        )
    quantized = {
        name: array
        for name, (_, array) in originals.items()
        if checkpoints.scale_name(name) in written
    }
    assert len(quantized) == 14, f"{len(quantized)} quantized weights in 2 layers of 7"
    compare_with_quantizer(quantized, written, scale_fmt)
    with torch.no_grad():
        logits = model(torch.tensor([[1, 2, 3, 4]])).logits
    assert torch.isfinite(logits).all()
    return f"{len(loaded)} weights"


def run(harness):
    for source_dtype in inputs.SOURCE_DTYPES:
        for scale_fmt in ("float", "ue8m0"):
            harness.check(
                f"Transformers' quantizer {source_dtype} {scale_fmt}",
                check_quantizer_inputs,
                source_dtype,
                scale_fmt,
            )
    for scale_fmt in ("float", "ue8m0"):
        for explicit in (True, False):
            harness.check(
                f"Transformers loads {scale_fmt}{', dequantize=True' if explicit else ''}",
                check_loader,
                scale_fmt,
                explicit,
            )
