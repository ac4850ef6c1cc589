"""octavo compare against the same figures in numpy, float64, on built and on real checkpoints."""

import json
import pathlib
import subprocess

import ml_dtypes
import numpy as np

import inputs
from checkpoints import read_safetensors, write_safetensors

BLOCK = 128


def compare(harness, a, b):
    command = [str(harness.binary), "compare", str(a), str(b), "--json"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode in (0, 3), f"exit {result.returncode}\n{result.stderr}"
    return json.loads(result.stdout)


def read_values(directory):
    """{name: float32 array}; E4M3 weights times their block scales, in float32."""
    tensors = {}
    for path in sorted(pathlib.Path(directory).glob("*.safetensors")):
        tensors.update(read_safetensors(path))
    values = {}
    for name, (tag, array) in tensors.items():
        if name.endswith("_scale_inv"):
            continue
        if tag == "F8_E4M3":
            scales = tensors[name + "_scale_inv"][1].astype(np.float32)
            rows, cols = array.shape
            grid = np.repeat(np.repeat(scales, BLOCK, 0), BLOCK, 1)[:rows, :cols]
            values[name] = array.view(ml_dtypes.float8_e4m3fn).astype(np.float32) * grid
        else:
            values[name] = array.astype(np.float32)
    return values


def close(what, actual, expected, relative):
    assert abs(actual - expected) <= relative * abs(expected), f"{what}: {actual}, numpy {expected}"


def check_tensor(entry, a, b):
    name = entry["name"]
    assert entry["elements"] == a.size and entry["a"]["shape"] == list(a.shape), name
    if entry["verdict"] in ("equal_bits", "equal_values"):
        assert np.array_equal(a, b), f"{name}: {entry['verdict']}, and numpy says it is not"
        return
    x, y = a.astype(np.float64), b.astype(np.float64)
    d = x - y
    # n terms of one sign, in any order: n x 2^-53; two such sums and a few operations.
    relative = (2 * a.size + 8) * 2.0**-53
    aa, bb, dd = (float((v * v).sum()) for v in (x, y, d))
    close(f"{name} rms", entry["rms"], np.sqrt(dd / a.size), relative)
    snr = 10 * np.log10(aa / dd)
    assert abs(entry["snr_db"] - snr) <= 10 / np.log(10) * relative + abs(snr) * 2.0**-50, name
    norm = np.sqrt(aa * bb)
    slack = float(np.abs(x * y).sum()) / norm * relative + relative
    assert abs(entry["cosine"] - float((x * y).sum()) / norm) <= slack, f"{name} cosine"
    assert entry["max_abs"] == float(np.abs(d).max()), f"{name} max_abs"
    assert entry["differing"] == int((a != b).sum()), f"{name} differing"
    worst = tuple(entry["worst"]["index"])
    assert worst == np.unravel_index(int(np.abs(d).argmax()), d.shape), f"{name} worst {worst}"
    assert entry["worst"]["a"] == float(a[worst]) and entry["worst"]["b"] == float(b[worst]), name


def check_directories(harness, a, b):
    result = compare(harness, a, b)
    left, right = read_values(a), read_values(b)
    assert sorted(t["name"] for t in result["tensors"]) == sorted(left.keys() | right.keys())
    for entry in result["tensors"]:
        check_tensor(entry, left[entry["name"]], right[entry["name"]])
    return result


def check_model(harness, model):
    with harness.directory() as scratch:
        target = pathlib.Path(scratch) / "fp8"
        harness.octavo("quantize", model, target, "--quiet")
        result = check_directories(harness, model, target)
    verdicts = {tensor["verdict"] for tensor in result["tensors"]}
    assert verdicts == {"rounded", "equal_bits"}, f"{verdicts}"
    return f"{len(result['tensors'])} tensors, {result['summary']['differing']['snr_db']:.2f} dB"


def check_built(harness, kind):
    """Two unrelated matrices, and one against its quantization."""
    with harness.directory() as scratch:
        a, b, fp8 = (pathlib.Path(scratch) / name for name in ("a", "b", "fp8"))
        weight = inputs.make(kind, (300, 500), ml_dtypes.bfloat16, 1)
        other = inputs.make(kind, (300, 500), np.float32, 2)
        for directory, array in ((a, weight), (b, other)):
            directory.mkdir()
            write_safetensors(
                directory / "model.safetensors", {"model.layers.0.mlp.up_proj.weight": array}
            )
        harness.octavo("quantize", a, fp8, "--quiet")
        check_directories(harness, a, b)
        result = check_directories(harness, a, fp8)
        # Rounding explains whatever quantizing did.
        assert result["summary"]["different"] == 0, result["tensors"]


def run(harness, model):
    for kind in inputs.GENERATORS:
        harness.check(f"compare: figures as numpy has them, {kind}", check_built, kind)
    if model:
        harness.check("compare: a real checkpoint and its FP8, as numpy", check_model, model)
