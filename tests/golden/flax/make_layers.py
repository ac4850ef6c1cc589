#!/usr/bin/env python3
"""Makes layers.safetensors and layers.json: Flax's FP8 layers, forward and backward.

Usage: scripts/oracles, then .venv/oracles/bin/python tests/golden/flax/make_layers.py

Variables and their gradients keep Flax's names: <case>.variables.params.kernel and so on. The cases einsum.* and
injection.* are those of Flax's own tests (the keys are split in the order x, y, g).
"""

from golden import BF16, COMPUTE, FLOAT8, PAIRS, Golden, flat, integers, normals

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.linen import fp8_ops

OWG = fp8_ops.OVERWRITE_WITH_GRADIENT
MODULES = {"ocp": nn.Fp8DotGeneral, "nanoo": nn.NANOOFp8DotGeneralOp}


def representable(x, fmt):
    return fp8_ops.qdq(x, FLOAT8[fmt], jnp.ones((1,)), jnp.float32)


def names(variables):
    return {"variables": {path[2:]: list(leaf.shape) for path, leaf in flat("v", variables).items()}}


def einsum_cases(golden):
    for index, (x, y, g, equation) in enumerate([
            ((16, 32), (32, 64), (16, 64), "mk,kn->mn"), ((2, 3, 32), (64, 32), (2, 3, 64), "...k,nk->...n"),
            ((2, 3, 64), (64, 32), (2, 3, 32), "...k,kn->...n")]):
        _, *keys = jax.random.split(jax.random.key(42), 4)
        x, y, g = (representable(jax.random.normal(key, shape), fmt) for key, shape, fmt in zip(
            keys, (x, y, g), ("e4m3fn", "e4m3fn", "e5m2")))
        module = fp8_ops.Fp8Einsum()
        variables = module.init(jax.random.key(0), equation, x, y)

        def fp8(variables, x, y):
            return jnp.sum(module.apply(variables, equation, x, y) * g)

        def plain(x, y):
            return jnp.sum(jnp.einsum(equation, x, y) * g)

        value, (owg, *grads) = jax.jit(jax.value_and_grad(fp8, (0, 1, 2)))(variables, x, y)
        reference, plain_grads = jax.jit(jax.value_and_grad(plain, (0, 1)))(x, y)
        scale = float(jnp.sum(jnp.abs(jnp.einsum(equation, x, y) * g)))
        assert abs(float(value - reference)) <= 1e-5 * scale
        golden.add(f"einsum.{index}", {"equation": equation, "test": "test_fp8_einsum", "grads": "0 x, 1 y",
                                       **names(variables)},
                   x=x, y=y, g=g, loss=value, grads=grads, plain_loss=reference, plain_grads=plain_grads,
                   new_variables=owg)


def gradients(module, variables, x, g, reduce):
    """Loss, cotangents of variables and x, and the output of a module, compiled."""
    def loss(variables, x):
        y = module.apply(variables, x)
        return reduce(y.astype(jnp.float32) * g.astype(jnp.float32)), y
    (value, y), (new, dx) = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(variables, x)
    return {"loss": value, "y": y, "dx": dx, "new_variables": new}


def injection_cases(golden):
    for pair, (e4m3, e5m2) in PAIRS.items():
        init_key, random_key = jax.random.split(jax.random.key(123), 2)
        x = representable(jax.random.uniform(random_key, (16, 32)), e4m3)
        dy = representable(jax.random.uniform(random_key, (16, 64)), e5m2)
        layer = nn.DenseGeneral(features=64)
        plain = layer.init(init_key, x)
        fp8_layer = nn.DenseGeneral(features=64, dot_general_cls=MODULES[pair])
        variables = fp8_layer.init(init_key, x)
        got, expected = (gradients(m, v, x, dy, jnp.mean) for m, v in ((fp8_layer, variables), (layer, plain)))
        error = abs(got["dx"] - expected["dx"]).max()
        assert error < 2e-4 and abs(got["loss"] - expected["loss"]) < 1e-2
        golden.add(f"injection.{pair}", {"test": "test_fp8_dot_general_injection", "pair": pair, "loss": "mean(y * dy)",
                                         "dx_error": float(error), **names(variables)},
                   x=x, dy=dy, variables=variables, plain=expected, **got)


def worked_case(golden):
    """Spec T5 and its third step."""
    lhs = np.array([[1, 2, 3], [-4, 0.5, 0]], np.float32)
    rhs = np.array([[0.5, -1], [0.25, 2], [1.5, -0.75]], np.float32)
    g = np.array([[1, 0.5], [-2, 4]], np.float32)
    third = np.array([[1, 0.001], [-2, 4]], np.float32)
    module = nn.Fp8DotGeneral(amax_history_length=4)
    numbers = (((1,), (0,)), ((), ()))
    variables = module.init(jax.random.key(0), lhs, rhs, numbers)
    step = jax.jit(lambda v, x, y, g: jax.vjp(lambda *a: module.apply(a[0], a[1], a[2], numbers), v, x, y)[1](g))
    forward = jax.jit(lambda v, x, y: module.apply(v, x, y, numbers))
    for index, (x, cotangent) in enumerate([(lhs, g), (lhs, g), (2 * lhs, third)]):
        y = forward(variables, x, rhs)
        new, dx, dk = step(variables, x, rhs, cotangent)
        golden.add(f"worked.{index}", {"spec": "T5", "length": 4}, lhs=x, rhs=rhs, g=cotangent, variables=variables, y=y,
                   d_lhs=dx, d_rhs=dk, new_variables=new)
        variables = new


def layer_cases(golden):
    def fp8(**options):
        return lambda: nn.Fp8DotGeneral(amax_history_length=4, **options)

    def qdq():
        return fp8_ops.Fp8DotGeneralOp(amax_history_length=4)

    def nanoo():
        return fp8_ops.NANOOFp8DotGeneralOp(amax_history_length=4)

    dense, general = nn.Dense, nn.DenseGeneral
    cases = [
        ("dense", dense(5, dot_general_cls=fp8()), (2, 3, 4), np.float32),
        ("dense_no_bias", dense(5, use_bias=False, dot_general_cls=fp8()), (3, 4), np.float32),
        ("dense_qdq", dense(5, dot_general_cls=qdq), (3, 4), np.float32),
        ("dense_nanoo", dense(5, dot_general_cls=nanoo), (3, 4), np.float32),
        ("dense_dtype_bf16", dense(5, dtype=jnp.bfloat16, dot_general_cls=fp8()), (3, 4), np.float32),
        ("dense_dtype_bf16_qdq", dense(5, dtype=jnp.bfloat16, dot_general_cls=qdq), (3, 4), np.float32),
        ("dense_params_bf16", dense(5, dtype=jnp.bfloat16, param_dtype=jnp.bfloat16, dot_general_cls=fp8()), (3, 4), BF16),
        ("dense_x_bf16", dense(5, dot_general_cls=fp8()), (3, 4), BF16),
        ("general_two_features", general((5, 2), dot_general_cls=fp8()), (3, 4), np.float32),
        ("general_two_axes", general((5, 2), axis=(-2, -1), dot_general_cls=fp8()), (2, 3, 4), np.float32),
        ("general_axis_1", general(5, axis=1, dot_general_cls=fp8()), (2, 3, 4), np.float32),
        ("general_axes_1_3", general((5,), axis=(3, 1), dot_general_cls=fp8()), (2, 3, 2, 4), np.float32),
        ("general_batch", general(5, axis=-1, batch_dims=(0,), dot_general_cls=fp8()), (2, 3, 4), np.float32),
        ("general_batch_2", general((5, 2), axis=(-1,), batch_dims=(0, 1), dot_general_cls=fp8()), (2, 2, 3, 4), np.float32),
        ("general_bf16", general((5, 2), axis=(-2, -1), dtype=jnp.bfloat16, dot_general_cls=fp8()), (2, 3, 4), np.float32),
        ("dense_dtype_f16", dense(5, dtype=jnp.float16, dot_general_cls=fp8()), (3, 4), np.float32),
        ("dense_dtype_f16_qdq", dense(5, dtype=jnp.float16, dot_general_cls=qdq), (3, 4), np.float32),
        ("dense_params_f16", dense(5, dtype=jnp.float16, param_dtype=jnp.float16, dot_general_cls=fp8()), (3, 4), np.float16),
        ("dense_x_f16", dense(5, dot_general_cls=fp8()), (3, 4), np.float16),
    ]
    rng = np.random.default_rng(21)
    for name, module, shape, dtype in cases:
        variables = module.init(jax.random.key(1), jnp.zeros(shape, dtype))
        variables = jax.tree.map(lambda v: v, variables)
        params = variables["params"]
        # Multiples of 1/4, for exact sums; a bias, so that it shows.
        kernel_type = params["kernel"].dtype
        params["kernel"] = jnp.asarray(integers(rng, params["kernel"].shape) / 4).astype(kernel_type)
        if "bias" in params:
            params["bias"] = jnp.asarray(integers(rng, params["bias"].shape) / 8).astype(kernel_type)
        for step in range(3):
            x = jnp.asarray((2 ** step * integers(rng, shape)).astype(dtype))
            out = jax.eval_shape(module.apply, variables, x)
            g = jnp.asarray(integers(rng, out.shape))
            got = gradients(module, variables, x, g, jnp.sum)
            golden.add(f"{name}.{step}", {"layer": type(module).__name__, "case": name, "step": step,
                                          "loss": "sum(f32(y) * g)", "length": 4, "out_dtype": str(out.dtype),
                                          **names(variables)},
                       x=x, g=g, variables=variables, **got)
            variables = {"params": params, OWG: got["new_variables"][OWG]}


def narrow_kernel_cases(golden, name="bf16", seed=22):
    """The dot module itself: x in f32, kernel narrower; random values, so that rounding shows."""
    rng = np.random.default_rng(seed)
    dtype = COMPUTE[name]
    numbers = (((1,), (0,)), ((), ()))
    module = nn.Fp8DotGeneral(amax_history_length=4)
    kernel = jnp.asarray(normals(rng, (32, 8)).astype(dtype))
    variables = module.init(jax.random.key(0), jnp.zeros((4, 32)), kernel, numbers)
    for step in range(3):
        x = jnp.asarray(normals(rng, (4, 32)))
        g = jnp.asarray(normals(rng, (4, 8)).astype(dtype))
        y, pull = jax.vjp(lambda *a: module.apply(*a, numbers), variables, x, kernel)
        new, dx, dk = pull(g)
        golden.add(f"{name}_kernel.{step}", {"layer": "Fp8DotGeneral", "length": 4, "note": "single operations"}, x=x,
                   kernel=kernel, g=g, variables=variables, y=y, dx=dx, dk=dk, new_variables=new)
        variables = new


def main():
    golden = Golden("layers")
    for section in (worked_case, einsum_cases, injection_cases, layer_cases, narrow_kernel_cases):
        section(golden)
    narrow_kernel_cases(golden, "f16", 23)
    golden.write()


if __name__ == "__main__":
    main()
