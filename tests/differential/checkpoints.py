"""Reads and writes checkpoint directories with numpy alone."""

import json
import pathlib

import ml_dtypes
import numpy as np

DTYPES = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(np.uint8),  # codes, as bytes
    "F8_E8M0": np.dtype(np.uint8),  # exponents, as bytes
}
SOURCE_TAGS = {DTYPES[tag]: tag for tag in ("F32", "F16", "BF16")}


def write_safetensors(path, tensors):
    """tensors: {name: array}, or {name: (tag, array)} where the dtype does not tell the tag."""
    header = {"__metadata__": {"format": "pt"}}
    offset = 0
    payload = []
    for name, value in tensors.items():
        tag, array = value if isinstance(value, tuple) else (SOURCE_TAGS[value.dtype], value)
        end = offset + array.nbytes
        header[name] = {"dtype": tag, "shape": list(array.shape), "data_offsets": [offset, end]}
        payload.append(array.tobytes())
        offset = end
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + b"".join(payload))


def read_safetensors(path):
    """{name: (tag, array)}"""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    result = {}
    for name, entry in header.items():
        begin, end = (start + offset for offset in entry["data_offsets"])
        array = np.frombuffer(data[begin:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
        result[name] = (entry["dtype"], array)
    return result


def write_directory(path, tensors, config):
    path = pathlib.Path(path)
    path.mkdir()
    write_safetensors(path / "model.safetensors", tensors)
    (path / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    return path


def read_directory(path):
    """{name: (tag, array)} over all shards."""
    result = {}
    for file in sorted(pathlib.Path(path).glob("*.safetensors")):
        result.update(read_safetensors(file))
    return result


def scale_name(name):
    return (
        name + "_scale_inv"
    )  # x.weight -> x.weight_scale_inv, experts.down_proj -> experts.down_proj_scale_inv
