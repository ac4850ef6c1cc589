#!/usr/bin/env python3
"""Makes modules.safetensors and modules.json: Flax's attention, Einsum, Embed and norms.

Usage: scripts/oracles, then .venv/oracles/bin/python tests/golden/flax/make_modules.py

Integers (attention.f64 aside, which is computed in f64) and no bias in FP8, so that every sum is exact. Attention gets three
inputs: nothing adds up in their gradients.
"""

from golden import Golden, flat, integers, normals

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.linen import fp8_ops

OWG = fp8_ops.OVERWRITE_WITH_GRADIENT
LENGTH = 4


def with_integers(rng, params, divisor, dtype=np.float32):
    return jax.tree.map(lambda v: jnp.asarray(integers(rng, v.shape, dtype) / np.asarray(divisor, dtype)), params)


def run(module, variables, g, *inputs, **options):
    """Output, and cotangents of variables and inputs."""
    def apply(variables, *inputs):
        return module.apply(variables, *inputs, **options)
    y, pull = jax.vjp(apply, variables, *inputs)
    new, *grads = pull(g)
    return {"y": y, "new_variables": new, "grads": grads}


def einsum_cases(golden):
    rng = np.random.default_rng(31)
    for index, (equation, x, kernel) in enumerate([
            ("abc,cde->...dabe", (2, 3, 4), (4, 5, 6)), ("...k,nk->...n", (2, 3, 4), (5, 4)),
            ("bij,bjk->kbi", (2, 3, 4), (2, 4, 5)), ("ij,jk->i", (2, 3), (3, 4))]):
        module = nn.Einsum(kernel, equation)
        x = jnp.asarray(integers(rng, x))
        variables = {"params": with_integers(rng, module.init(jax.random.key(0), x)["params"], 1)}
        g = jnp.asarray(integers(rng, jax.eval_shape(module.apply, variables, x).shape))
        golden.add(f"einsum.{index}", {"equation": equation}, x=x, g=g, variables=variables,
                   **run(module, variables, g, x))


def embed_case(golden):
    rng = np.random.default_rng(32)
    ids = jnp.asarray(rng.integers(0, 7, (2, 5)).astype(np.int32))
    module = nn.Embed(7, 4)
    variables = {"params": with_integers(rng, module.init(jax.random.key(0), ids)["params"], 1)}
    g = jnp.asarray(integers(rng, (2, 5, 7)))

    def logits(variables):
        return module.apply(variables, module.apply(variables, ids), method="attend")
    y, pull = jax.vjp(logits, variables)
    golden.add("embed", {"what": "attend(rows)"}, ids=ids, g=g, variables=variables, y=y, new_variables=pull(g)[0])


def inputs_of(rng, make, dtype):
    return [jnp.asarray(make(rng, (2, 3, 6), dtype)) for _ in range(3)]


def fp8_attention_case(golden):
    rng = np.random.default_rng(33)
    module = nn.MultiHeadDotProductAttention(
        num_heads=2, qkv_features=8, use_bias=False,
        qkv_dot_general_cls=lambda: nn.Fp8DotGeneral(amax_history_length=LENGTH),
        out_dot_general_cls=lambda: nn.Fp8DotGeneral(amax_history_length=LENGTH),
        qk_attn_weights_einsum_cls=lambda: fp8_ops.Fp8Einsum(amax_history_length=LENGTH),
        attn_weights_value_einsum_cls=lambda: fp8_ops.Fp8Einsum(amax_history_length=LENGTH))
    variables = module.init(jax.random.key(0), *inputs_of(rng, integers, np.float32))
    params = with_integers(rng, variables["params"], 8)
    variables = {"params": params, OWG: variables[OWG]}
    for step in range(3):
        inputs = [x / 2 for x in inputs_of(rng, integers, np.float32)]
        g = jnp.asarray(integers(rng, (2, 3, 6)))
        got = run(module, variables, g, *inputs)
        golden.add(f"attention.fp8.{step}", {"length": LENGTH, "variables": sorted(flat("v", variables))},
                   x=inputs, g=g, variables=variables, **got)
        variables = {"params": params, OWG: got["new_variables"][OWG]}


def attention_cases(golden):
    rng = np.random.default_rng(34)
    with jax.enable_x64(True):
        for name, options in (("plain", {}), ("causal", {}), ("normalize_qk", {"normalize_qk": True})):
            module = nn.MultiHeadDotProductAttention(num_heads=2, qkv_features=8, param_dtype=jnp.float64, **options)
            inputs = inputs_of(rng, normals, np.float64)
            mask = nn.make_causal_mask(inputs[0][..., 0]) if name == "causal" else None
            variables = module.init(jax.random.key(0), *inputs, mask=mask)
            variables = jax.tree.map(lambda v: jnp.asarray(normals(rng, v.shape, np.float64, 0.5)), variables)
            g = jnp.asarray(normals(rng, (2, 3, 6), np.float64))
            golden.add(f"attention.f64.{name}", {"variables": sorted(flat("v", variables))}, x=inputs, g=g,
                       variables=variables, **run(module, variables, g, *inputs, mask=mask))
        for name, module in (("rms", nn.RMSNorm(param_dtype=jnp.float64)),
                             ("layer", nn.LayerNorm(param_dtype=jnp.float64, use_fast_variance=False))):
            x = jnp.asarray(normals(rng, (3, 8), np.float64))
            variables = jax.tree.map(lambda v: jnp.asarray(normals(rng, v.shape, np.float64)),
                                     module.init(jax.random.key(0), x))
            g = jnp.asarray(normals(rng, (3, 8), np.float64))
            golden.add(f"norm.{name}", {}, x=x, g=g, variables=variables, **run(module, variables, g, x))


def main():
    golden = Golden("modules")
    for section in (einsum_cases, embed_case, fp8_attention_case, attention_cases):
        section(golden)
    golden.write()


if __name__ == "__main__":
    main()
