#!/usr/bin/env python3
"""Makes rules.safetensors and rules.json: values and cotangents of Flax's custom rules.

Usage: scripts/oracles, then .venv/oracles/bin/python tests/golden/flax/make_rules.py

Operands are small integers, so that the sums of products are exact in every order: every bit is comparable.
Results are those of single operations. Warm cases of few dimensions also ran compiled; "compiled_differs"
names the results whose bits that changes. In f16 the warm products overflow: codes up to 448 are multiplied
before they are scaled.
"""

from golden import BF16, COMPUTE, FLOAT8, FORMATS, PAIRS, Golden, integers, normals, same_bits, trees_differ

import jax
import jax.numpy as jnp
import numpy as np
from flax.linen import fp8_ops
from jax import lax

LENGTH = 4
METAS = ("scale", "amax_history")
WIDE = ("f32", "bf16")
# (lhs shape, rhs shape, ((lhs contracting, rhs contracting), (lhs batch, rhs batch)))
DIMENSIONS = [
    ((3, 4), (4, 5), (([1], [0]), ([], []))),
    ((4, 3), (5, 4), (([0], [1]), ([], []))),
    ((2, 3, 4), (4, 5), (([2], [0]), ([], []))),
    ((2, 3, 4), (2, 4, 5), (([2], [1]), ([0], [0]))),
    ((3, 4, 2), (5, 2, 4), (([1], [2]), ([2], [1]))),
    ((2, 3, 4), (4, 3, 5), (([1, 2], [1, 0]), ([], []))),
    ((2, 3, 4), (4, 3, 5), (([2, 1], [0, 1]), ([], []))),
    ((3, 2, 5, 4), (4, 6, 3, 2), (([0, 3], [2, 0]), ([1], [3]))),
    ((2, 3, 4, 5), (3, 2, 5, 6), (([3], [2]), ([0, 1], [1, 0]))),
    ((4, 2, 3, 5), (5, 3, 6, 2), (([3], [0]), ([2, 1], [1, 3]))),
    ((2, 3, 2, 4, 3), (3, 4, 2, 5, 2), (([3, 1], [1, 0]), ([2, 0], [4, 2]))),
    ((2, 3, 4), (2, 5, 4), (([2], [2]), ([0], [0]))),
    ((3, 4), (3, 5), (([], []), ([0], [0]))),
    ((2, 3), (4, 5), (([], []), ([], []))),
    ((2, 5, 3, 4), (4, 3, 5), (([1, 2, 3], [2, 1, 0]), ([], []))),
    ((4,), (4, 3), (([0], [0]), ([], []))),
    ((1, 4), (4, 1), (([1], [0]), ([], []))),
]
EINSUMS = [
    ("mk,kn->mn", (3, 4), (4, 5)), ("...k,nk->...n", (2, 3, 4), (5, 4)), ("...k,kn->...n", (2, 3, 4), (4, 5)),
    ("egcd,edh->egch", (2, 3, 2, 4), (2, 4, 5)), ("...qhd,...khd->...hqk", (2, 3, 2, 4), (2, 5, 2, 4)),
    ("mk,kn->nm", (3, 4), (4, 5)), ("gecd,edh->gech", (3, 2, 2, 4), (2, 4, 5)),
    ("...hqk,...khd->...qhd", (2, 2, 3, 5), (2, 5, 2, 4)), ("mk,kn", (3, 4), (4, 5)), ("kb,ak", (4, 3), (5, 4)),
    ("...k,...kn", (2, 3, 4), (2, 4, 5)), ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)), ("ii,ij->ij", (3, 3), (3, 4)),
    ("iik,kj->ij", (3, 3, 4), (4, 2)), ("mkx,kn->mn", (3, 4, 2), (4, 5)), ("mk,kny->mn", (3, 4), (4, 5, 2)),
    ("mkx,kny->mn", (3, 4, 2), (4, 5, 3)), ("bmk,bkn->bmn", (1, 3, 4), (2, 4, 5)), ("mk,kn->mn", (3, 1), (4, 5)),
    ("...mk,...kn->...mn", (2, 1, 3, 4), (3, 4, 5)), ("m,n->mn", (3,), (4,)), ("m,n->nm", (3,), (4,)),
    ("mk,nk->mn", (3, 4), (5, 4)), ("km,kn->mn", (4, 3), (4, 5)), ("ab,ab->ab", (3, 4), (3, 4)),
    ("ab,ba->ab", (3, 4), (4, 3)), ("abcd,dcef->abef", (2, 3, 2, 3), (3, 2, 2, 4)), ("b...k,k...->b...", (3, 2, 4), (4, 2)),
    ("abk,ck->cab", (2, 3, 4), (5, 4)), ("mk,k->m", (3, 4), (4,)), ("k,kn->n", (4,), (4, 5)), ("k,k->", (4,), (4,)),
    ("mk,kn->", (3, 4), (4, 5)),
]


def meta(rng, warm):
    """(scale (1,), history (LENGTH,)): fresh, or as after some steps."""
    if not warm:
        return jnp.ones((1,), jnp.float32), jnp.zeros((LENGTH,), jnp.float32)
    return jnp.full((1,), rng.uniform(0.01, 2), jnp.float32), jnp.asarray(integers(rng, LENGTH)).at[1].set(3)


def with_vjp(function, cotangent, *arguments, compiled=True):
    """Results of single operations, and which of them compilation changes."""
    def run(cotangent, *arguments):
        value, pull = jax.vjp(function, *arguments)
        return {"out": value, "grads": pull(cotangent)}
    single = run(cotangent, *arguments)
    return single, trees_differ(single, jax.jit(run)(cotangent, *arguments)) if compiled else []


def note(differs):
    return {"compiled_differs": [path.lstrip(".") for path in differs]} if differs else {}


def qdq_cases(golden, seed=11, names=WIDE):
    rng = np.random.default_rng(seed)
    for op in ("in_qdq", "out_qdq"):
        for fmt in FORMATS:
            for name in names:
                for state in ("fresh", "warm", "poisoned"):
                    dtype = COMPUTE[name]
                    x, g = (jnp.asarray(normals(rng, (3, 5), scale=200).astype(dtype)) for _ in range(2))
                    scale, history = meta(rng, state != "fresh")
                    if state == "poisoned":
                        history = history.at[2].set(np.nan)
                    function = getattr(fp8_ops, op)
                    got, differs = with_vjp(lambda *a: function(dtype, FLOAT8[fmt], *a), g, x, scale, history)
                    golden.add(f"{op}.{fmt}.{name}.{state}",
                               {"op": op, "format": fmt, "compute": name, "grads": "0 inp, 1 scale, 2 history",
                                **note(differs)}, inp=x, scale=scale, history=history, g=g, **got)


def in_q_cases(golden, seed=12, names=WIDE):
    rng = np.random.default_rng(seed)
    for fmt in FORMATS:
        for name in names:
            for warm in (False, True):
                dtype = COMPUTE[name]
                x = jnp.asarray(normals(rng, (3, 5), scale=2).astype(dtype))
                scale, history = meta(rng, warm)
                cotangent = jnp.ones(x.shape, FLOAT8[fmt]), jnp.full((1,), 7, jnp.float32)
                got, differs = with_vjp(lambda *a: fp8_ops.in_q(dtype, FLOAT8[fmt], *a), cotangent, x, scale, history)
                golden.add(f"in_q.{fmt}.{name}.{'warm' if warm else 'fresh'}",
                           {"op": "in_q", "format": fmt, "compute": name, "out": "0 codes, 1 new scale",
                            "grads": "0 inp, 1 scale, 2 history", **note(differs)},
                           inp=x, scale=scale, history=history, **got)


def out_dq_cases(golden, seed=13, names=WIDE):
    rng = np.random.default_rng(seed)
    for name in names:
        dtype = COMPUTE[name]
        out = jnp.asarray(normals(rng, (3, 5), scale=1e4).astype(dtype))
        g = jnp.asarray(normals(rng, (3, 5)).astype(dtype))
        scales = [jnp.asarray(rng.uniform(0.001, 0.1, 1).astype(np.float32)) for _ in range(2)]
        got, differs = with_vjp(lambda *a: fp8_ops.out_dq(dtype, *a), g, *scales, out)
        golden.add(f"out_dq.{name}", {"op": "out_dq", "dq_type": name, "grads": "0 lhs_scale, 1 rhs_scale, 2 out",
                                      **note(differs)}, lhs_scale=scales[0], rhs_scale=scales[1], acc=out, g=g, **got)


def transpose_cases(golden):
    rng = np.random.default_rng(14)
    for index, (lhs, rhs, numbers) in enumerate(DIMENSIONS):
        x, y = (jnp.asarray(integers(rng, shape)) for shape in (lhs, rhs))
        out, pull = jax.vjp(lambda a, b: lax.dot_general(a, b, numbers), x, y)
        g = jnp.asarray(integers(rng, out.shape))
        options = {"dimension_numbers": numbers, "precision": lax.Precision.HIGHEST,
                   "preferred_element_type": jnp.float32}
        dx = fp8_ops.dot_general_transpose_lhs(g, x, y, **options)
        dy = fp8_ops.dot_general_transpose_rhs(g, x, y, **options)
        assert all(same_bits(a, b) for a, b in zip((dx, dy), pull(g))), numbers
        golden.add(f"transpose.{index}", {"op": "dot_general_transpose", "dimension_numbers": numbers},
                   x=x, y=y, g=g, out=out, dx=dx, dy=dy)


def model_of_dot(lhs, rhs, g, numbers, metas, dtype):
    """The specification of the direct path, in numpy; sums in f64."""
    def quantized(x, fmt, scale, history):
        top = np.float32(FLOAT8[fmt].name and float(fp8_ops.get_fp8_max(FLOAT8[fmt], np.float32)))
        h = history.max()
        new = np.float32(1) / (top / h) if h > 0 and np.isfinite(h) else np.float32(1) / (np.float32(1) / scale[0])
        quotient = (x.astype(dtype) / dtype.type(new)).astype(dtype).astype(np.float32)
        return np.clip(quotient, -top, top).astype(FLOAT8[fmt]), np.array([new], np.float32)

    def product(a, b, numbers, *scales):
        total = lax.dot_general(a.astype(np.float32), b.astype(np.float32), numbers, precision=lax.Precision.HIGHEST)
        factor = (scales[0] * scales[1]).astype(dtype)
        return (np.asarray(total).astype(dtype) * factor).astype(dtype)

    ql, sl = quantized(lhs, "e4m3fn", *metas[0])
    qr, sr = quantized(rhs, "e4m3fn", *metas[1])
    qg, sg = quantized(g, "e5m2", *metas[2])
    _, pull = jax.vjp(lambda a, b: lax.dot_general(a, b, numbers), ql.astype(np.float32), qr.astype(np.float32))
    dl, dr = (np.asarray(d).astype(dtype) for d in pull(qg.astype(np.float32)))
    return {"out": product(ql, qr, numbers, sl, sr), "0": (dl * (sr * sg).astype(dtype)).astype(dtype),
            "1": (dr * (sl * sg).astype(dtype)).astype(dtype)}


def dot_cases(golden, seed=15, names=WIDE):
    """fp8_scaled_dot_general, and through it in_q, quantized_dot and out_dq."""
    rng = np.random.default_rng(seed)
    for index, (lhs, rhs, numbers) in enumerate(DIMENSIONS):
        for name in names if index < 8 else names[:-1]:
            for warm in (False, True):
                dtype = COMPUTE[name]
                x, y = (jnp.asarray(integers(rng, shape, dtype)) for shape in (lhs, rhs))
                metas = [meta(rng, warm) for _ in range(3)]

                def dot(x, y, *metas):
                    (ls, lh), (rs, rh), (gs, gh) = metas
                    return fp8_ops.fp8_scaled_dot_general(
                        x, y, numbers, preferred_element_type=dtype, lhs_scale=ls, rhs_scale=rs, grad_scale=gs,
                        lhs_amax_history=lh, rhs_amax_history=rh, grad_amax_history=gh, quantize_compute_type=dtype)

                g = jnp.asarray(integers(rng, jax.eval_shape(dot, x, y, *metas).shape, dtype))
                got, differs = with_vjp(dot, g, x, y, *metas, compiled=warm and index < 4)
                expected = model_of_dot(*(np.asarray(a) for a in (x, y, g)), numbers,
                                        [tuple(np.asarray(m) for m in pair) for pair in metas], dtype)
                model_differs = [key for key, value in expected.items()
                                 if not same_bits(value, got["out"] if key == "out" else got["grads"][int(key)])]
                golden.add(f"dot.{index}.{name}.{'warm' if warm else 'fresh'}",
                           {"op": "fp8_scaled_dot_general", "dimension_numbers": numbers, "compute": name,
                            "meta": "0 lhs, 1 rhs, 2 output gradient; each 0 scale, 1 history",
                            "grads": "0 lhs, 1 rhs, 2..4 the metas", **note(differs),
                            **({"model_differs": model_differs} if model_differs else {})},
                           lhs=x, rhs=y, g=g, meta=metas, **got)


def quantized_dot_cases(golden, seed=16, names=WIDE):
    rng = np.random.default_rng(seed)
    numbers = DIMENSIONS[0][2]
    for name in names:
        dtype = COMPUTE[name]
        x, y, g = (jnp.asarray(integers(rng, shape, dtype)) for shape in ((3, 4), (4, 5), (3, 5)))
        qx, qy = (v.astype(FLOAT8["e4m3fn"]) for v in (x, y))
        scales = [jnp.full((1,), s, jnp.float32) for s in (0.011160715, 0.0066964286)]
        grad = meta(rng, True)

        def dot(x, y, sx, sy, gs, gh):
            return fp8_ops.quantized_dot(x, qx, sx, y, qy, sy, gs, gh, numbers, dtype)

        got, differs = with_vjp(dot, g, x, y, *scales, *grad)
        golden.add(f"quantized_dot.{name}",
                   {"op": "quantized_dot", "dimension_numbers": numbers, "compute": name, "q_lhs": "codes e4m3fn of lhs",
                    "grads": "0 lhs, 1 rhs, 2 lhs_scale, 3 rhs_scale, 4 grad scale, 5 grad history", **note(differs)},
                   lhs=x, rhs=y, q_lhs=qx, q_rhs=qy, lhs_scale=scales[0], rhs_scale=scales[1], grad_scale=grad[0],
                   grad_history=grad[1], g=g, **got)


def einsum_cases(golden, seed=17, names=WIDE):
    rng = np.random.default_rng(seed)
    for index, (equation, lhs, rhs) in enumerate(EINSUMS):
        for name in names if index < 10 else names[:-1]:
            dtype = COMPUTE[name]
            for warm in (False, True) if index < 10 else (True,):
                module = fp8_ops.Fp8Einsum(amax_history_length=LENGTH)
                x, y = (jnp.asarray(integers(rng, shape, dtype)) for shape in (lhs, rhs))
                x = x.at[(0,) * x.ndim].set(3)
                y = jnp.clip(y, -2, 2).at[(0,) * y.ndim].set(2)
                pairs = {who: meta(rng, warm) for who in ("input", "kernel", "output_grad")}
                variables = {fp8_ops.OVERWRITE_WITH_GRADIENT: {
                    f"{who}_{what}": value for who, pair in pairs.items() for what, value in zip(METAS, pair)}}
                info = {"op": "Fp8Einsum", "equation": equation, "compute": name, "grads": "0 variables, 1 lhs, 2 rhs"}
                case = f"einsum.{index}.{name}.{'warm' if warm else 'fresh'}"

                def run(variables, x, y):
                    return module.apply(variables, equation, x, y)
                try:
                    g = jnp.asarray(integers(rng, jax.eval_shape(run, variables, x, y).shape, dtype))
                except (ValueError, TypeError) as error:
                    golden.add(case, {**info, "error": type(error).__name__}, lhs=x, rhs=y)
                    continue
                got, differs = with_vjp(run, g, variables, x, y, compiled=warm and index < 4)
                metas = {"variables": variables[fp8_ops.OVERWRITE_WITH_GRADIENT]}
                owg, *grads = got["grads"]
                got["grads"] = [owg[fp8_ops.OVERWRITE_WITH_GRADIENT], *grads]
                input_amax = float(got["grads"][0]["input_amax_history"][0])
                summed = "x" in equation or "y" in equation
                swapped = None if summed else input_amax != 3
                golden.add(case, {**info, "roles_swapped": swapped, **note(differs)}, lhs=x, rhs=y, g=g, **metas, **got)


def fm32_cases(golden):
    """Spec T1: three applications of one meta in a scan; and the guide's two uses, by maximum and by sum."""
    def convert(tree, dtype):
        return jax.tree.map(lambda v: lax.convert_element_type(v, dtype), tree)

    for pair, (fmt, _) in PAIRS.items():
        def chain(x, scale, history):
            def loss(x, metas):
                scale, history = convert(metas, fp8_ops.fp32_max_grad)
                body = lambda carry, _: (fp8_ops.in_qdq(jnp.float32, FLOAT8[fmt], carry, scale, history), None)
                out, _ = lax.scan(body, x, None, length=3)
                return out[0]
            return jax.value_and_grad(loss, argnums=(0, 1))(x, (scale, history))

        for how, run in (("jit", jax.jit(chain)), ("eager", chain)):
            scale, history = jnp.ones((1,)), jnp.zeros((3,))
            rows = []
            for x in (2.0, 3.0, 4.0):
                try:
                    value, (dx, (scale, history)) = run(jnp.full((1,), x), scale, history)
                except Exception as error:  # noqa: BLE001 - what fails is what is recorded
                    golden.add(f"fm32.{pair}.{how}", {"op": "fp32_max_grad", "error": type(error).__name__})
                    break
                rows.append({"out": value, "dx": dx, "scale": scale, "history": history})
            else:
                golden.add(f"fm32.{pair}.{how}", {"op": "fp32_max_grad", "format": fmt, "x": [2.0, 3.0, 4.0],
                                                  "shapes": "one row per iteration"},
                           **{key: np.stack([np.asarray(row[key]) for row in rows]) for key in rows[0]})
    for kind in ("maximum", "sum"):
        def twice(x, y, scale, history):
            if kind == "maximum":
                scale, history = convert((scale, history), fp8_ops.fp32_max_grad)
            quantized = [fp8_ops.in_qdq(jnp.float32, FLOAT8["e4m3fn"], v, scale, history) for v in (x, y)]
            return quantized[0] + quantized[1]
        grads = jax.jit(jax.grad(twice, argnums=(0, 1, 2, 3)))(2.0, 3.0, jnp.float32(1), jnp.zeros(1024))
        golden.add(f"fm32.guide.{kind}", {"op": "fp32_max_grad", "x": 2.0, "y": 3.0, "grads": "x, y, scale, history"},
                   grads=grads)
    # A meta that the loss does not use.
    for kind in ("maximum", "sum"):
        def unused(scale):
            scale = convert(scale, fp8_ops.fp32_max_grad) if kind == "maximum" else scale
            return jnp.float32(1) + 0 * jnp.float32(scale.ndim)
        golden.add(f"fm32.unused.{kind}", {"op": "fp32_max_grad"}, grad=jax.jit(jax.grad(unused))(jnp.ones((1,))))


def main():
    golden = Golden("rules")
    for section in (fm32_cases, qdq_cases, in_q_cases, out_dq_cases, transpose_cases, quantized_dot_cases, dot_cases,
                    einsum_cases):
        section(golden)
    sections = (qdq_cases, in_q_cases, out_dq_cases, quantized_dot_cases, dot_cases, einsum_cases)
    for seed, section in enumerate(sections, 31):
        section(golden, seed, ("f16",))
    golden.write()


if __name__ == "__main__":
    main()
