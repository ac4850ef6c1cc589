"""What the makers of this directory share. Import it before jax: it fixes how XLA compiles.

XLA left to itself turns x / broadcast(scale) into x * (1 / scale) and keeps bf16 intermediates in f32. The
flags below turn both off, so that compiled code computes what Flax's source says, operation by operation.
"""

import importlib.metadata
import json
import os
import pathlib
import sys

XLA_FLAGS = " ".join([
    "--xla_disable_hlo_passes=algsimp",
    "--xla_allow_excess_precision=false",
    "--xla_cpu_max_isa=AVX2",
    "--xla_cpu_multi_thread_eigen=false",
])
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = XLA_FLAGS

import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "differential"))
import checkpoints  # noqa: E402

PINNED = {"flax": "0.12.8", "jax": "0.10.2", "jaxlib": "0.10.2", "ml_dtypes": "0.6.0", "numpy": "2.4.6",
          "optax": "0.2.8"}
FORMATS = ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz")
PAIRS = {"ocp": ("e4m3fn", "e5m2"), "nanoo": ("e4m3fnuz", "e5m2fnuz")}
BF16 = np.dtype(ml_dtypes.bfloat16)
FLOAT8 = {name: np.dtype(getattr(ml_dtypes, f"float8_{name}")) for name in FORMATS}
COMPUTE = {"f32": np.dtype(np.float32), "bf16": BF16, "f16": np.dtype(np.float16)}
TAGS = {np.dtype(np.float64): "F64", np.dtype(np.float32): "F32", np.dtype(np.float16): "F16", BF16: "BF16",
        np.dtype(np.int32): "I32", np.dtype(np.uint32): "U32", np.dtype(np.uint8): "U8",
        np.dtype(np.bool_): "BOOL"}


def stored(array):
    """FP8 as code bytes; everything else in its own type."""
    array = np.ascontiguousarray(array).reshape(np.shape(array))
    return array.view(np.uint8) if array.dtype in FLOAT8.values() else array


def flat(prefix, tree):
    """{prefix.path: leaf} of nested dicts, tuples and lists; the path's parts joined by '.'."""
    if isinstance(tree, dict):
        items = tree.items()
    elif isinstance(tree, (tuple, list)):
        items = enumerate(tree)
    else:
        return {prefix: tree}
    return {name: leaf for key, value in items for name, leaf in flat(f"{prefix}.{key}", value).items()}


class Golden:
    """NAME.safetensors, tensors <case>.<what>, and NAME.json, what numbers in a tensor cannot say."""

    def __init__(self, name):
        self.name, self.tensors, self.cases = name, {}, []

    def add(self, case, info, **tensors):
        assert all(case != c["name"] for c in self.cases), case
        self.cases.append({"name": case, **info})
        for key, value in tensors.items():
            for path, leaf in flat(f"{case}.{key}", value).items():
                assert path not in self.tensors, path
                self.tensors[path] = stored(leaf)

    def write(self):
        found = {name: importlib.metadata.version(name) for name in PINNED}
        if found != PINNED:
            sys.exit(f"{self.name}: versions {found}, pinned are {PINNED}")
        # Widest types first, so that every tensor is aligned.
        order = sorted(self.tensors, key=lambda name: (-self.tensors[name].itemsize, name))
        path = HERE / f"{self.name}.safetensors"
        checkpoints.write_safetensors(path, {n: (TAGS[self.tensors[n].dtype], self.tensors[n]) for n in order})
        lines = ",\n".join("  " + json.dumps(case, allow_nan=False) for case in self.cases)
        head = json.dumps({"made_with": found, "xla_flags": XLA_FLAGS})[:-1]
        (HERE / f"{self.name}.json").write_text(f'{head}, "cases": [\n{lines}\n]}}\n')
        print(f"{self.name}: {len(self.cases)} cases, {len(self.tensors)} tensors, {path.stat().st_size} bytes")


def same_bits(a, b):
    """Equal shapes, types and bits; any NaN equals any NaN."""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    bits = np.dtype(f"u{a.dtype.itemsize}")
    equal = np.atleast_1d(a).view(bits) == np.atleast_1d(b).view(bits)
    if a.dtype.kind == "f" or a.dtype == BF16 or a.dtype in FLOAT8.values():
        equal |= np.isnan(a.astype(np.float32)) & np.isnan(b.astype(np.float32))
    return bool(equal.all())


def trees_differ(a, b):
    """Paths of the leaves that are not bit-equal."""
    a, b = flat("", a), flat("", b)
    assert a.keys() == b.keys(), (a.keys(), b.keys())
    return [path for path in a if not same_bits(a[path], b[path])]


def integers(rng, shape, dtype=np.float32, top=3):
    """Whole numbers in [-top, top]: sums of their products are exact in any order."""
    return rng.integers(-top, top + 1, shape).astype(dtype)


def normals(rng, shape, dtype=np.float32, scale=1.0):
    return (scale * rng.standard_normal(shape)).astype(dtype)
