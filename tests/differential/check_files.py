"""What octavo writes, opened by the safetensors package."""

import json
import pathlib

from harness import Skip

from make_small import SKIPPED, small_model

TORCH_DTYPES = {
    "codes": "torch.float8_e4m3fn",
    "float": "torch.float32",
    "ue8m0": "torch.float8_e8m0fnu",
    "source": "torch.bfloat16",
}


def open_all(directory):
    try:
        import torch  # noqa: F401
        from safetensors import safe_open
    except ImportError as error:
        raise Skip(f"no safetensors or torch: {error}") from None
    result = {}
    for path in sorted(pathlib.Path(directory).glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            assert file.metadata() == {"format": "pt"}, f"{path.name}: metadata {file.metadata()}"
            result[path.name] = {name: file.get_tensor(name) for name in file.keys()}
    return result


def expected_dtype(name, names, scale_fmt):
    if name.endswith("_scale_inv"):
        return TORCH_DTYPES[scale_fmt]
    return TORCH_DTYPES["codes" if name + "_scale_inv" in names else "source"]


def check_index(directory, files):
    index = json.loads((directory / "model.safetensors.index.json").read_text())
    where = {name: file for file, tensors in files.items() for name in tensors}
    assert index["weight_map"] == where, "weight_map does not match the files"
    total = sum(t.nbytes for tensors in files.values() for t in tensors.values())
    assert (
        index["metadata"]["total_size"] == total
    ), f"{index['metadata']['total_size']}, sum is {total}"


def check_quantized(harness, scale_fmt, sharded):
    with harness.directory() as scratch:
        source = small_model(scratch)
        target = pathlib.Path(scratch) / "target"
        shard = ["--max-shard-size", "1MB"] if sharded else []
        harness.octavo("quantize", source, target, "--scale-fmt", scale_fmt, *shard)
        files = open_all(target)
        assert (len(files) > 1) == sharded, f"{len(files)} files"
        if sharded:
            check_index(target, files)
        tensors = {name: t for file in files.values() for name, t in file.items()}
        for name, tensor in tensors.items():
            wanted = expected_dtype(name, tensors, scale_fmt)
            assert str(tensor.dtype) == wanted, f"{name}: {tensor.dtype}, expected {wanted}"
        weights = [name for name in tensors if name + "_scale_inv" in tensors]
        assert len(weights) == 14, f"{len(weights)} quantized weights in 2 layers of 7"
        assert not any(part in name for name in weights for part in SKIPPED)
        for name in ("generation_config.json", "tokenizer_config.json"):
            assert (target / name).read_bytes() == (source / name).read_bytes(), f"{name} differs"
        config = json.loads((target / "config.json").read_text())
        quantization = config.pop("quantization_config")
        config.pop("dtype", None)
        assert list(config.items()) == list(
            json.loads((source / "config.json").read_text()).items()
        )
        assert quantization["quant_method"] == "fp8"
        assert quantization["weight_block_size"] == [128, 128]
        return f"{len(tensors)} tensors in {len(files)} files"


def check_dequantized(harness):
    with harness.directory() as scratch:
        source = small_model(scratch)
        target, back = pathlib.Path(scratch) / "target", pathlib.Path(scratch) / "back"
        harness.octavo("quantize", source, target)
        harness.octavo("dequantize", target, back, "--dtype", "bf16")
        names = [name for tensors in open_all(back).values() for name in tensors]
        originals = [name for tensors in open_all(source).values() for name in tensors]
        assert sorted(names) == sorted(originals)
        config = json.loads((back / "config.json").read_text())
        assert "quantization_config" not in config
        assert list(config.items()) == list(
            json.loads((source / "config.json").read_text()).items()
        )


def run(harness):
    for scale_fmt in ("float", "ue8m0"):
        for sharded in (False, True):
            harness.check(
                f"safetensors opens {scale_fmt}{' shards' if sharded else ''}",
                check_quantized,
                scale_fmt,
                sharded,
            )
    harness.check("safetensors opens the dequantized directory", check_dequantized)
