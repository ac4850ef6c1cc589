#!/usr/bin/env python3
"""Makes ops.safetensors and ops.json: Flax's low-level FP8 operations, one by one.

Usage: scripts/oracles, then .venv/oracles/bin/python tests/golden/flax/make_ops.py

Codes are bytes; the bits of a NaN's sign are whatever the CPU gave, so compare NaN with NaN. XLA flushes
subnormal f32: where that shows, `scale_ieee` is the same formula in IEEE arithmetic (numpy).
"""

from golden import BF16, COMPUTE, FLOAT8, FORMATS, Golden, normals, same_bits

import jax
import jax.numpy as jnp
import numpy as np
from flax.linen import fp8_ops

SCALES = [1.0, 0.5, 0.0, np.inf, np.nan, -2.0, 3 / 448, 0.011160715, 1e-30]
PROMOTIONS = [("f32", "f32"), ("bf16", "bf16"), ("f16", "f16"), ("bf16", "f32"), ("f32", "bf16"), ("f16", "f32")]
AMAXES = [0.0, -0.0, -1.0, np.nan, np.inf, -np.inf, 1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 240.0, 448.0, 57344.0, 1e-38,
          1.4e-36, 1.3e-36, 1.31665e-36, 1.6e-34, 7.1e-37, 7.0e-37, 1e-30, 3.4e38, 6.5e4, 1e-40]
OLD_SCALES = [1.0, 0.0, 3 / 448, 0.011160715, np.inf, np.nan, -2.0, 1e-30]


def edge_inputs():
    """Spec T6, the formats' limits with their neighbours, ties and their neighbours, and random values."""
    table = [1.0625, 1.125, 1.1875, 0.3, 3.14159265, 17, 18, 19, 100, 0.001, 2**-10, 3 * 2**-10, 1e-6, 449, 1e9, np.inf]
    limits = [448, 464, 240, 248, 57344, 61440, 2**-6, 2**-9, 1.5 * 2**-9, 2**-14, 2**-16, 2**-17, 2**-18, 2**-11,
              1.5 * 2**-16, 224, 230, 300]
    around = [np.nextafter(np.float32(v), np.float32(to)) for v in limits for to in (0, np.inf)]
    values = np.array([0.0, *table, *limits, *around], np.float32)
    random = normals(np.random.default_rng(1), 24) * np.exp(np.linspace(-8, 8, 24)).astype(np.float32)
    return np.concatenate([values, -values, [np.float32(np.nan)], random.astype(np.float32)])


def quantize_cases(golden):
    x = edge_inputs()
    scales = np.array(SCALES, np.float32)
    golden.add("inputs", {"scales": "shape (S,), one call per scale, as a rank-0 array"}, scales=scales,
               **{name: x.astype(dtype) for name, dtype in COMPUTE.items()})
    for fmt in FORMATS:
        for x_type, compute in PROMOTIONS:
            source = jnp.asarray(x.astype(COMPUTE[x_type]))
            codes, qdq = [], []
            for scale in scales:
                one = jnp.asarray(scale)
                codes.append(np.asarray(fp8_ops.quantize(source, FLOAT8[fmt], one, COMPUTE[compute])))
                qdq.append(np.asarray(fp8_ops.qdq(source, FLOAT8[fmt], one, COMPUTE[compute])))
                compiled = jax.jit(lambda v, s: fp8_ops.qdq(v, FLOAT8[fmt], s, COMPUTE[compute]))(source, one)
                assert same_bits(qdq[-1], compiled), (fmt, x_type, compute, scale)
            golden.add(f"quantize.{fmt}.{x_type}.{compute}",
                       {"op": "quantize", "format": fmt, "x": f"inputs.{x_type}", "compute": compute,
                        "shapes": "codes, qdq (S, n): qdq in the type of x"},
                       codes=np.stack(codes), qdq=np.stack(qdq))


def dequantize_cases(golden):
    codes = np.arange(256, dtype=np.uint8)
    for fmt in FORMATS:
        for name, dtype in COMPUTE.items():
            values = np.stack([fp8_ops.dequantize(jnp.asarray(codes.view(FLOAT8[fmt])), dtype, jnp.float32(scale))
                               for scale in SCALES])
            golden.add(f"dequantize.{fmt}.{name}", {"op": "dequantize", "format": fmt, "dq_dtype": name,
                                                    "shapes": "values (S, 256), code c in column c"}, values=values)
    accumulator = normals(np.random.default_rng(2), 64, scale=1e4)
    golden.add("dequantize.accumulator", {"op": "dequantize", "dq_dtype": "bf16", "note": "f32 rounded before scaling"},
               x=accumulator, scale=np.float32(0.011160715),
               values=fp8_ops.dequantize(jnp.asarray(accumulator), BF16, jnp.float32(0.011160715)))


def broadcast_cases(golden):
    rng = np.random.default_rng(3)
    for shape, scale_shape in [((3, 4), (3, 1)), ((3, 4), (4,)), ((3, 4), (1, 4)), ((3, 4), ()), ((3, 4), (1,)),
                               ((2, 3, 4), (3, 1)), ((2, 3, 4), (2, 1, 1)), ((), ()), ((5,), (5,)), ((), (1,)),
                               ((3, 4), (3,))]:
        x = normals(rng, shape, scale=20)
        scale = np.exp(rng.uniform(-3, 0, scale_shape)).astype(np.float32)
        name = f"broadcast.{'x'.join(map(str, shape)) or 'scalar'}.{'x'.join(map(str, scale_shape)) or 'scalar'}"
        try:
            codes = fp8_ops.quantize(jnp.asarray(x), FLOAT8["e4m3fn"], jnp.asarray(scale), jnp.float32)
        except ValueError:
            golden.add(name, {"op": "quantize", "format": "e4m3fn", "error": "broadcast"}, x=x, scale=scale)
            continue
        golden.add(name, {"op": "quantize", "format": "e4m3fn"}, x=x, scale=scale, codes=codes,
                   qdq=fp8_ops.qdq(jnp.asarray(x), FLOAT8["e4m3fn"], jnp.asarray(scale), jnp.float32))


def compute_scale_cases(golden):
    rows = [(a, s, m, margin) for a in AMAXES for s in OLD_SCALES for m in (448.0, 57344.0, 240.0)
            for margin in ((0, 1, -3) if s == 1.0 else (0,))]
    rng = np.random.default_rng(4)
    rows += [(a, 1.0, m, 0) for a in np.exp(rng.uniform(-20, 20, 200)) for m in (448.0, 57344.0)]
    amax, scale, top = (np.array([r[i] for r in rows], np.float32) for i in range(3))
    margin = np.array([r[3] for r in rows], np.int32)
    flax = np.array([fp8_ops.compute_scale(jnp.float32(a), jnp.float32(s), jnp.float32(m), int(k))
                     for a, s, m, k in zip(amax, scale, top, margin)], np.float32)
    with np.errstate(all="ignore"):
        factor = (top / amax) / np.exp2(margin).astype(np.float32)
        factor = np.where((amax > 0) & np.isfinite(amax), factor, np.float32(1) / scale)
        ieee = (np.float32(1) / factor).astype(np.float32)
    tiny = np.finfo(np.float32).tiny
    for row in zip(amax, flax, ieee):
        flushed = abs(row[0]) < tiny or abs(row[2]) < tiny
        assert same_bits(row[1], row[2]) or flushed, row
    golden.add("compute_scale", {"op": "compute_scale", "shapes": "all (rows,)", "margin": "i32"}, amax=amax, scale=scale,
               fp8_max=top, margin=margin, new_scale=flax, scale_ieee=ieee)
    golden.add("compute_scale.broadcast", {"op": "compute_scale", "note": "amax of rank 0, scale of shape (1,)"},
               amax=np.float32(3), scale=np.ones(1, np.float32), fp8_max=np.float32(448),
               new_scale=fp8_ops.compute_scale(jnp.float32(3), jnp.ones(1), jnp.float32(448)))


def sequence(golden, name, values, length, fmt, scale=1.0, dtype=np.float32):
    """values (T, n): the tensor of each step."""
    update = jax.jit(lambda x, s, h: fp8_ops.update_fp8_meta(x, FLOAT8[fmt], s, h))
    x = np.asarray(values, np.float32).astype(dtype)
    meta = jnp.full((1,), scale, jnp.float32), jnp.zeros((length,), jnp.float32)
    scales, histories, codes, qdq = [], [], [], []
    for row in x:
        compiled = update(jnp.asarray(row), *meta)
        array, *meta = fp8_ops.quantize_dequantize_update(jnp.asarray(row), FLOAT8[fmt], *meta, dtype)
        assert same_bits(compiled[0], meta[0]) and same_bits(compiled[1], meta[1]), name
        codes.append(np.asarray(fp8_ops.quantize(jnp.asarray(row), FLOAT8[fmt], meta[0], dtype)))
        qdq.append(np.asarray(array))
        scales.append(np.asarray(meta[0]))
        histories.append(np.asarray(meta[1]))
    golden.add(name, {"op": "update_fp8_meta", "format": fmt, "length": length, "initial_scale": scale,
                      "shapes": "x, codes, qdq (T, n); scale (T, 1), history (T, length): after the step"},
               x=x, scale=np.stack(scales), history=np.stack(histories), codes=np.stack(codes), qdq=np.stack(qdq))


def sequence_cases(golden):
    rng = np.random.default_rng(5)
    worked = [[a, -a / 3] for a in (5, 3, 7, 1, 2, 6)]
    sequence(golden, "sequence.spec_2_6", worked, 4, "e4m3fn")
    sequence(golden, "sequence.spec_2_7", [[a / 2, -a] for a in (5, 3, 7, 1, 2, 6, 0.5, 0.25)], 4, "e4m3fn")
    for fmt in FORMATS:
        for length in (1, 2, 4):
            sequence(golden, f"sequence.random.{fmt}.{length}", normals(rng, (11, 5), scale=3), length, fmt)
    for poison, value in (("nan", np.nan), ("inf", np.inf), ("minus_inf", -np.inf)):
        for length in (1, 2, 4):
            x = normals(rng, (3 + 2 * length + 2, 5))
            x[3, 2] = value
            sequence(golden, f"sequence.{poison}.{length}", x, length, "e4m3fn")
    zeros = np.concatenate([np.zeros((3, 5), np.float32), normals(rng, (3, 5)), np.zeros((6, 5), np.float32)])
    sequence(golden, "sequence.zeros", zeros, 4, "e4m3fn")
    sequence(golden, "sequence.tiny_gradients", normals(rng, (4, 5), scale=1e-6), 4, "e5m2")
    sequence(golden, "sequence.bf16", normals(rng, (11, 5), scale=3), 4, "e4m3fn", dtype=BF16)
    sequence(golden, "sequence.initial_scale", normals(rng, (6, 5)), 4, "e4m3fn", scale=0.25)
    for fmt in FORMATS:
        sequence(golden, f"sequence.f16.{fmt}", normals(rng, (11, 5), scale=3), 4, fmt, dtype=COMPUTE["f16"])


def main():
    golden = Golden("ops")
    for fmt in FORMATS:
        golden.add(f"fp8_max.{fmt}", {"op": "get_fp8_max", "format": fmt},
                   **{name: fp8_ops.get_fp8_max(FLOAT8[fmt], dtype) for name, dtype in COMPUTE.items()})
    quantize_cases(golden)
    dequantize_cases(golden)
    broadcast_cases(golden)
    compute_scale_cases(golden)
    sequence_cases(golden)
    golden.write()


if __name__ == "__main__":
    main()
