#!/usr/bin/env python3
"""Makes functions_f32 and functions_f64 (.safetensors, .json): values and gradients of what a transformer needs.

Usage: scripts/oracles, then .venv/oracles/bin/python tests/golden/flax/make_functions.py

Per case: in.0, in.1... the operands, g the cotangent, out the value, grads.0... the cotangents of the operands that
are not whole numbers. The f64 file has the same operands; it is made by a second process, with jax_enable_x64.
"""

import subprocess
import sys

from golden import Golden

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

X64 = "--x64" in sys.argv
FLOAT = np.float64 if X64 else np.float32


def rope(x, positions, theta=10000.0):
    """Half-split, as in Llama: element i pairs with element i + half. x (..., tokens, heads, size)."""
    half = x.shape[-1] // 2
    frequency = theta ** (-jnp.arange(half, dtype=x.dtype) / half)
    angle = positions.astype(x.dtype)[:, None] * frequency
    cos, sin = jnp.cos(angle)[:, None, :], jnp.sin(angle)[:, None, :]
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def attention(q, k, v):
    """q (b, t, heads, d), k and v (b, t, groups, d): causal, grouped heads."""
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


def attention_by_hand(q, k, v):
    repeat = q.shape[2] // k.shape[2]
    k, v = (jnp.repeat(a, repeat, axis=2) for a in (k, v))
    logits = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1])
    mask = jnp.tril(jnp.ones(logits.shape[-2:], bool), logits.shape[-1] - logits.shape[-2])
    weights = jax.nn.softmax(jnp.where(mask, logits, -jnp.inf), axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v)


def check_attention(compiled, by_hand):
    """JAX's attention has f32 logits even of f64 operands: the two agree as far as f32 goes."""
    assert np.abs(compiled - by_hand).max() <= 1e-4 * np.abs(by_hand).max()


def rms_norm(x, scale, **options):
    return nn.RMSNorm(param_dtype=FLOAT, **options).apply({"params": {"scale": scale}}, x)


def layer_norm(x, scale, bias, **options):
    return nn.LayerNorm(param_dtype=FLOAT, **options).apply({"params": {"scale": scale, "bias": bias}}, x)


def cross_entropy(logits, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


def planned():
    """(name, what, function, operands)"""
    rng = np.random.default_rng(31)

    def f(*shape, scale=1.0, shift=0.0):
        return (scale * rng.standard_normal(shape) + shift).astype(np.float32)

    large = f(3, 7, scale=30)
    wide = np.concatenate([np.linspace(-12, 12, 49, dtype=np.float32), np.float32([0.0, -0.0, 1e-6, -1e-6, 88, -88, 200])])
    ties = np.float32([[1, 3, 3, 2], [5, 5, 5, 5], [-1, -2, -1, 0]])
    for name, x in (("", f(3, 7)), ("_large", large)):
        yield f"softmax{name}", "axis -1", jax.nn.softmax, [x]
        yield f"log_softmax{name}", "axis -1", jax.nn.log_softmax, [x]
        yield f"cross_entropy{name}", "per row, integer labels", cross_entropy, [x, np.int32([0, 6, 3])]
        yield f"logsumexp{name}", "axis -1", lambda x: jax.nn.logsumexp(x, axis=-1), [x]
    yield "softmax_axis_0", "axis 0", lambda x: jax.nn.softmax(x, axis=0), [f(3, 7)]
    yield ("softmax_masked", "last two columns -inf", lambda x: jax.nn.softmax(jnp.where(jnp.arange(7) < 5, x, -jnp.inf)),
           [f(3, 7)])
    yield "cross_entropy_mean", "mean over rows", lambda x, l: cross_entropy(x, l).mean(), [f(2, 3, 7), np.int32([[0, 6, 3], [1, 1, 2]])]
    yield "rms_norm", "epsilon 1e-6", rms_norm, [f(3, 8), f(8)]
    yield "rms_norm_large", "epsilon 1e-6", rms_norm, [f(3, 8, scale=1e4), f(8)]
    yield "rms_norm_zero", "epsilon 1e-6", rms_norm, [np.zeros((2, 8), np.float32), f(8)]
    yield "rms_norm_epsilon", "epsilon 1e-2", lambda x, s: rms_norm(x, s, epsilon=1e-2), [f(2, 3, 8), f(8)]
    yield "layer_norm", "epsilon 1e-6, fast variance", layer_norm, [f(3, 8), f(8), f(8)]
    yield "layer_norm_shifted", "epsilon 1e-6, fast variance", layer_norm, [f(3, 8, shift=3), f(8), f(8)]
    yield ("layer_norm_slow", "epsilon 1e-5, use_fast_variance False",
           lambda *a: layer_norm(*a, epsilon=1e-5, use_fast_variance=False), [f(3, 8, shift=3), f(8), f(8)])
    yield "silu", "", jax.nn.silu, [wide]
    yield "gelu_tanh", "approximate, Flax's default", jax.nn.gelu, [wide]
    yield "gelu_exact", "erf", lambda x: jax.nn.gelu(x, approximate=False), [wide]
    yield "relu", "gradient 0 at 0", jax.nn.relu, [wide]
    yield "sigmoid", "", jax.nn.sigmoid, [wide]
    yield "tanh", "", jnp.tanh, [wide]
    yield "swiglu", "silu(a) * b", lambda a, b: jax.nn.silu(a) * b, [f(3, 5), f(3, 5)]
    yield "rope", "half-split, theta 10000; (b, t, heads, d), positions", rope, [f(2, 5, 3, 8), np.arange(5, dtype=np.int32)]
    yield ("rope_offset", "half-split, theta 500000", lambda x, p: rope(x, p, 500000.0),
           [f(1, 3, 2, 8), np.int32([7, 100, 4000])])
    shapes = ((2, 5, 4, 8), (2, 5, 2, 8), (2, 5, 2, 8))
    yield "attention_gqa", "causal, scale 1/sqrt(d); 4 heads, 2 groups", attention, [f(*s) for s in shapes]
    yield "attention_mha", "causal", attention, [f(2, 5, 2, 8) for _ in range(3)]
    yield "attention_mqa", "causal, one group", attention, [f(1, 6, 3, 4), f(1, 6, 1, 4), f(1, 6, 1, 4)]
    yield "attention_large", "causal, logits up to some 100", attention, [10 * f(*s) for s in shapes]
    yield "attention_full", "no mask", jax.nn.dot_product_attention, [f(2, 3, 2, 8), f(2, 5, 2, 8), f(2, 5, 2, 8)]
    yield "embedding", "rows of the table; repeated ids", lambda t, ids: jnp.take(t, ids, axis=0), [f(6, 4), np.int32([[0, 5, 5], [1, 0, 5]])]
    yield "take_axis_1", "", lambda x, ids: jnp.take(x, ids, axis=1), [f(3, 5), np.int32([4, 4, 0])]
    for name in ("mean", "sum", "max", "min", "prod"):
        for axis, text in ((None, "all"), (0, "0"), (1, "1"), ((0, 2), "02")):
            x = f(2, 3, 4)
            yield f"{name}_{text}", f"axis {axis}", lambda x, n=name, a=axis: getattr(jnp, n)(x, axis=a), [x]
    for name in ("max", "min"):
        yield f"{name}_ties_1", "axis 1: equal maxima share the gradient", lambda x, n=name: getattr(jnp, n)(x, axis=1), [ties]
        yield f"{name}_ties_all", "all", lambda x, n=name: getattr(jnp, n)(x), [ties]
    yield "sum_keepdims", "axis 1, keepdims", lambda x: jnp.sum(x, axis=1, keepdims=True), [f(2, 3, 4)]
    yield "variance", "axis -1", lambda x: jnp.var(x, axis=-1), [f(3, 5)]
    for name, function in (("add", jnp.add), ("subtract", jnp.subtract), ("multiply", jnp.multiply), ("divide", jnp.divide)):
        for tag, a, b in (("same", (2, 3), (2, 3)), ("row", (2, 3), (3,)), ("column", (2, 3), (2, 1)), ("scalar", (2, 3), ()),
                          ("outer", (2, 1), (1, 3)), ("rank", (3,), (2, 1, 3))):
            yield f"{name}_{tag}", "", function, [f(*a, shift=3), f(*b, shift=3)]
    yield "maximum", "equal operands share the gradient", jnp.maximum, [ties[0], np.float32([1, 2, 3, 2])]
    yield "abs", "gradient 0 at 0", jnp.abs, [wide]
    yield "exp", "", jnp.exp, [f(9, scale=3)]
    yield "log", "", jnp.log, [np.abs(f(9)) + np.float32(0.1)]
    yield "sqrt", "", jnp.sqrt, [np.abs(f(9)) + np.float32(0.1)]
    yield "transpose", "(2, 0, 1)", lambda x: jnp.transpose(x, (2, 0, 1)), [f(2, 3, 4)]
    yield "reshape", "(4, 6)", lambda x: jnp.reshape(x, (4, 6)), [f(2, 3, 4)]
    yield "broadcast_to", "(2, 3, 4)", lambda x: jnp.broadcast_to(x, (2, 3, 4)), [f(3, 1)]
    yield "concatenate", "axis 1", lambda a, b: jnp.concatenate([a, b], axis=1), [f(2, 3), f(2, 2)]
    yield "slice", "[:, 1:3]", lambda x: x[:, 1:3], [f(3, 5)]
    yield "where", "x > 0", lambda a, b: jnp.where(a > 0, a, b), [f(3, 4), f(3, 4)]
    yield "matmul", "", jnp.matmul, [f(3, 17), f(17, 5)]
    yield "clip", "[-1, 1]; the ends belong to it", lambda x: jnp.clip(x, -1, 1), [np.float32([-2, -1, -0.5, 0, 1, 1.5])]


def main():
    golden = Golden("functions_f64" if X64 else "functions_f32")
    rng = np.random.default_rng(32)
    for name, what, function, operands in planned():
        operands = [o.astype(FLOAT) if o.dtype.kind == "f" else o for o in operands]
        real = [i for i, o in enumerate(operands) if o.dtype.kind == "f"]

        def of_reals(*values):
            return function(*[values[real.index(i)] if i in real else operands[i] for i in range(len(operands))])

        arguments = [jnp.asarray(operands[i]) for i in real]
        shape = jax.eval_shape(of_reals, *arguments).shape
        g = rng.standard_normal(shape).astype(np.float32).astype(FLOAT)
        out, grads = jax.jit(lambda g, *a: (lambda y, pull: (y, pull(g)))(*jax.vjp(of_reals, *a)))(g, *arguments)
        assert out.dtype == FLOAT and all(d.dtype == FLOAT for d in grads), name
        if function is attention and X64:
            # The f64 file has what the definition gives in f64.
            check_attention(out, attention_by_hand(*arguments))
            out, pull = jax.vjp(attention_by_hand, *arguments)
            grads = pull(g)
        golden.add(name, {"what": what, "of": real}, **{"in": tuple(operands)}, g=g, out=out,
                   grads={str(i): d for i, d in zip(real, grads)})
    golden.write()


if __name__ == "__main__":
    if X64:
        jax.config.update("jax_enable_x64", True)
    main()
    if not X64:
        sys.exit(subprocess.run([sys.executable, __file__, "--x64"]).returncode)
