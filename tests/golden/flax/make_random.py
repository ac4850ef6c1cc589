#!/usr/bin/env python3
"""Makes random.safetensors and random.json: jax.random with threefry2x32, and what Flax draws from it.

Usage: scripts/oracles, then .venv/oracles/bin/python tests/golden/flax/make_random.py

Keys are stored as their two words. jax_threefry_partitionable is on, JAX's default: element i of an array comes from
the counter i as (high word, low word), and bits are the xor of the two words that come out.
"""

from golden import BF16, Golden, same_bits

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry_2x32

SEEDS = [0, 1, 42, 123, 2**31 - 1, 2**32 - 1]
SHAPES = [(), (1,), (7,), (4, 3), (2, 3, 5), (1000,)]


def words(key):
    return np.asarray(jax.random.key_data(key))


def name_of(shape):
    return "x".join(map(str, shape)) or "scalar"


def raw_cases(golden):
    ones = 0xFFFFFFFF
    vectors = [((0, 0), (0, 0)), ((ones, ones), (ones, ones)), ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3)),
               ((0, 42), (0, 1)), ((1, 2), (3, 4))]
    out = [threefry_2x32(np.array(key, np.uint32), np.array(counter, np.uint32)) for key, counter in vectors]
    golden.add("threefry_2x32", {"op": "threefry_2x32", "shapes": "(rows, 2) each"},
               key=np.array([v[0] for v in vectors], np.uint32), counter=np.array([v[1] for v in vectors], np.uint32),
               out=np.stack([np.asarray(o) for o in out]))


def key_cases(golden):
    for seed in SEEDS:
        key = jax.random.key(seed)
        golden.add(f"key.{seed}", {"op": "key", "seed": seed}, key=words(key),
                   **{f"split_{n}": words(jax.random.split(key, n)) for n in (2, 3, 5)},
                   split_2x3=words(jax.random.split(key, (2, 3))),
                   fold_in=np.stack([words(jax.random.fold_in(key, data)) for data in (0, 1, 2, 1000, 2**32 - 1)]))
    golden.cases.append({"name": "fold_in", "data": [0, 1, 2, 1000, 2**32 - 1]})


def draw_cases(golden):
    key = jax.random.key(42)
    for shape in SHAPES:
        info = {"seed": 42, "shape": list(shape)}
        golden.add(f"draw.{name_of(shape)}", info, bits=jax.random.bits(key, shape),
                   bits_u8=jax.random.bits(key, shape, "uint8"), bits_u16=np.asarray(
                       jax.random.bits(key, shape, "uint16")).astype(np.uint32),
                   uniform=jax.random.uniform(key, shape), normal=jax.random.normal(key, shape),
                   uniform_bf16=jax.random.uniform(key, shape, BF16), normal_bf16=jax.random.normal(key, shape, BF16),
                   uniform_range=jax.random.uniform(key, shape, minval=-2.0, maxval=0.5),
                   truncated_normal=jax.random.truncated_normal(key, -2.0, 2.0, shape),
                   randint=jax.random.randint(key, shape, -5, 17),
                   **{f"bernoulli_{p}": jax.random.bernoulli(key, p / 100, shape) for p in (0, 10, 50, 90, 100)})
    # The partitionable form, spelt out.
    n = 1000
    counters = np.stack([np.zeros(n, np.uint32), np.arange(n, dtype=np.uint32)])
    out = np.asarray(threefry_2x32(words(key), counters.ravel())).reshape(2, n)
    assert same_bits(out[0] ^ out[1], jax.random.bits(key, (n,)))


def dropout_cases(golden):
    for seed, shape, rate in [(0, (4, 8), 0.5), (1, (2, 3, 5), 0.1), (2, (100,), 0.9)]:
        x = jnp.linspace(-2, 2, int(np.prod(shape)), dtype=jnp.float32).reshape(shape)
        key = jax.random.key(seed)
        layer = nn.Dropout(rate, deterministic=False)
        y, pull = jax.vjp(lambda v: layer.apply({}, v, rngs={"dropout": key}), x)
        # The key itself, without the folding-in of a module's path.
        direct = layer.apply({}, x, rng=key)
        mask = jax.random.bernoulli(key, 1 - rate, shape)
        assert same_bits(direct, jnp.where(mask, x / (1 - rate), 0))
        golden.add(f"dropout.{seed}", {"layer": "Dropout", "rate": rate, "seed": seed, "shape": list(shape),
                                       "out": "rngs={'dropout': key}", "direct": "rng=key: bernoulli(key, 1 - rate)"},
                   x=x, out=y, grad=pull(jnp.ones(shape))[0], direct=direct, mask=mask)
    bcast = nn.Dropout(0.5, broadcast_dims=(0,), deterministic=False)
    x = jnp.ones((4, 8), jnp.float32)
    golden.add("dropout.broadcast", {"layer": "Dropout", "rate": 0.5, "seed": 5, "broadcast_dims": [0]}, x=x,
               direct=bcast.apply({}, x, rng=jax.random.key(5)))


def initializer_cases(golden):
    key = jax.random.key(7)
    makers = nn.initializers
    for name in ("lecun_normal", "lecun_uniform", "glorot_normal", "glorot_uniform", "he_normal", "he_uniform"):
        for shape in ((16, 32), (3, 4, 5)):
            golden.add(f"initializer.{name}.{name_of(shape)}", {"initializer": name, "seed": 7, "shape": list(shape)},
                       values=getattr(makers, name)()(key, shape, jnp.float32))
    for name, maker in (("normal_0.02", makers.normal(0.02)), ("uniform_0.01", makers.uniform(0.01)),
                        ("truncated_normal_0.02", makers.truncated_normal(0.02)),
                        ("variance_scaling_fan_in_normal_out_axis_0",
                         makers.variance_scaling(1.0, "fan_in", "normal", out_axis=0))):
        golden.add(f"initializer.{name}", {"initializer": name, "seed": 7, "shape": [16, 8]},
                   values=maker(key, (16, 8), jnp.float32))

    class Two(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.DenseGeneral((2, 3), name="out")(nn.Dense(5)(nn.Embed(7, 4)(x)))

    variables = Two().init(jax.random.key(3), jnp.zeros((2,), jnp.int32))
    golden.add("init.module", {"seed": 3, "modules": "Embed(7, 4), Dense(5), DenseGeneral((2, 3), name='out')"},
               variables=variables)
    golden.add("init.paths", {"seed": 3, "keys": "the parameter key of each path, as Flax folds it in",
                              "paths": [["Dense_0", "kernel"], ["out", "kernel"]]},
               dense=Probe().init_with_output(jax.random.key(3))[0][0],
               counter=Probe().init_with_output(jax.random.key(3))[0][1])


class Probe(nn.Module):
    """The words of the first two keys that a top module gets for its params."""
    @nn.compact
    def __call__(self):
        return [jax.random.key_data(self.make_rng("params")) for _ in range(2)]


def main():
    assert jax.config.jax_threefry_partitionable and jax.config.jax_default_prng_impl == "threefry2x32"
    golden = Golden("random")
    for section in (raw_cases, key_cases, draw_cases, dropout_cases, initializer_cases):
        section(golden)
    golden.write()


if __name__ == "__main__":
    main()
