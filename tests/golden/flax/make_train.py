#!/usr/bin/env python3
"""Makes train.safetensors, state.safetensors and their .json: runs of Flax's TrainState with FP8 layers.

Usage: scripts/oracles, then .venv/oracles/bin/python tests/golden/flax/make_train.py

Tensors of train are stacked over steps: <case>.x is (steps, ...), <case>.before.params.kernel the parameters that a
step starts with, <case>.grads those of params, <case>.owg the FP8 state that the step leaves. state holds whole
train states as flat dictionaries, parts of a path joined by '/', with a prefix <case>/.
"""

from golden import PAIRS, FLOAT8, Golden, flat, same_bits

import flax.linen as nn
import flax.serialization
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.linen import fp8_ops
from flax.training import train_state

OWG = fp8_ops.OVERWRITE_WITH_GRADIENT
MODULES = {"ocp": nn.Fp8DotGeneral, "nanoo": nn.NANOOFp8DotGeneralOp}


def run(state, batches, loss):
    """Yields (batch, loss, state before, gradients, state after) of every step."""
    @jax.jit
    def step(state, batch):
        value, grads = jax.value_and_grad(lambda variables: loss(state.apply_fn, variables, *batch))(state.params)
        return value, grads, state.apply_gradients(grads=grads)

    for batch in batches:
        value, grads, after = step(state, batch)
        yield batch, value, state, grads, after
        state = after


def record(golden, name, info, state, batches, loss, batch_names):
    rows = []
    for batch, value, before, grads, after in run(state, batches, loss):
        rows.append({**flat("before.params", before.params["params"]), **flat("grads", grads["params"]),
                     **flat("owg", after.params[OWG]), **dict(zip(batch_names, batch)), "loss": value})
        state = after
    stacked = {key: np.stack([np.asarray(row[key]) for row in rows]) for key in rows[0]}
    golden.add(name, {**info, "steps": len(rows)}, **stacked, **flat("after.params", state.params["params"]))
    return stacked, state


def check_replay(stacked, prefix, tensors, pair):
    """The recurrences in numpy, on the recorded tensors, give the recorded scales and histories."""
    e4m3, e5m2 = PAIRS[pair]
    for who, values, fmt in zip(("input", "kernel", "output_grad"), tensors, (e4m3, e4m3, e5m2)):
        top = np.float32(fp8_ops.get_fp8_max(FLOAT8[fmt], np.float32))
        histories = stacked[f"{prefix}{who}_amax_history"]
        scale, history = np.float32(1), np.zeros_like(histories[0])
        for step, value in enumerate(values):
            h = history.max()
            scale = np.float32(1) / (top / h if h > 0 else np.float32(1) / scale)
            history = np.roll(history, -1)
            history[0] = np.abs(value).max()
            assert same_bits(np.array([scale]), stacked[f"{prefix}{who}_scale"][step]), (who, step)
            assert same_bits(history, histories[step]), (who, step)


def dense_state(key, x, module, length, tx):
    layer = nn.DenseGeneral(features=32, dot_general_cls=lambda: module(amax_history_length=length))
    return train_state.TrainState.create(apply_fn=layer.apply, params=layer.init(key, x), tx=tx)


def dense_batches(key, steps):
    for _ in range(steps):
        key, random_key = jax.random.split(key)
        yield jax.random.normal(random_key, (16, 16)), jax.random.normal(random_key, (16, 32))


def weighted(apply, variables, x, g):
    return jnp.sum(apply(variables, x) * g)


def dense_cases(golden):
    for pair, module in MODULES.items():
        init_key, x_key, key = jax.random.split(jax.random.key(123), 3)
        x = jax.random.uniform(x_key, (16, 16))
        # The short histories of the longer run go round once.
        for name, steps, length, rate in (("test_fp8_train_state", 5, 1024, 0.1), ("dense_adam", 20, 16, 0.01)):
            state = dense_state(init_key, x, module, length, optax.adam(rate))
            info = {"pair": pair, "optimizer": "adam", "learning_rate": rate, "loss": "sum(y * g)",
                    "layer": "DenseGeneral(32)", "length": length}
            stacked, _ = record(golden, f"{name}.{pair}", info, state, dense_batches(key, steps), weighted, ("x", "g"))
            owg = f"owg.{module.__name__}_0."
            check_replay(stacked, owg, (stacked["x"], stacked["before.params.kernel"], stacked["g"]), pair)


class Mlp(nn.Module):
    """Two Dense with relu between; the two are one when shared."""
    shared: bool = False
    fp8: bool = True

    @nn.compact
    def __call__(self, x):
        options = {"dot_general_cls": lambda: nn.Fp8DotGeneral(amax_history_length=8)} if self.fp8 else {}
        first = nn.Dense(16, name="first", **options)
        second = first if self.shared else nn.Dense(16, name="second", **options)
        return second(nn.relu(first(x)))


def squared(apply, variables, x, target):
    return jnp.mean((apply(variables, x) - target) ** 2)


def mlp_cases(golden):
    keys = jax.random.split(jax.random.key(7), 21)
    batches = [tuple(jax.random.normal(key, (8, 16)) for key in jax.random.split(k)) for k in keys[1:]]
    adam = {"optimizer": "adam", "learning_rate": 0.01}
    sgd = {"optimizer": "sgd", "learning_rate": 0.1, "momentum": 0.9}
    for name, model, options in (("mlp", Mlp(), adam), ("mlp_sgd", Mlp(), sgd), ("mlp_shared", Mlp(shared=True), adam),
                                 ("mlp_plain", Mlp(fp8=False), adam)):
        tx = optax.adam(0.01) if options is adam else optax.sgd(0.1, momentum=0.9)
        state = train_state.TrainState.create(apply_fn=model.apply, params=model.init(keys[0], batches[0][0]), tx=tx)
        if name == "mlp_plain":
            # Without the FP8 collection the optimizer gets the whole dictionary.
            rows = [(value, after) for _, value, _, _, after in run(state, batches, squared)]
            golden.add(name, {"steps": 20, "learning_rate": 0.01, "loss": "mean((y - target)**2)", "batches": "mlp"},
                       loss=np.stack([np.asarray(v) for v, _ in rows]), **flat("after.params", rows[-1][1].params["params"]))
            continue
        info = {"pair": "ocp", **options, "loss": "mean((y - target)**2)", "length": 8}
        if model.shared:
            info["note"] = "one layer used twice: Flax sums the two new scales and the two new histories"
        record(golden, name, info, state, batches, squared, ("x", "target"))


class ByEquation(nn.Module):
    """x (m, k) and a kernel (k, n) give (n, m): JAX multiplies kernel by x, and Flax's input_* is the kernel's state."""

    @nn.compact
    def __call__(self, x):
        kernel = self.param("kernel", nn.initializers.lecun_normal(), (8, 6))
        return nn.Fp8Einsum(amax_history_length=4)("mk,kn->nm", x, kernel)


def flat_state(state):
    return flax.traverse_util.flatten_dict(flax.serialization.to_state_dict(state), sep="/")


def state_cases(golden):
    """States after 0, 3 and 4 steps, with the batch between the last two."""
    x = jnp.zeros((4, 8))
    keys = jax.random.split(jax.random.key(9), 5)
    batches = [tuple(jax.random.normal(key, shape) for key, shape in zip(jax.random.split(k), ((4, 8), (4, 6))))
               for k in keys[1:]]
    schedule = optax.warmup_cosine_decay_schedule(0.0, 0.1, 2, 10)
    optimizers = {"adam": optax.adam(0.01), "sgd_momentum": optax.sgd(0.1, momentum=0.9),
                  "clip_adamw": optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=0.1)),
                  "einsum": optax.sgd(0.1, momentum=0.9)}
    for name, tx in optimizers.items():
        layer = nn.Dense(6, dot_general_cls=lambda: nn.Fp8DotGeneral(amax_history_length=1024 if name == "adam" else 4))
        if name == "einsum":
            layer, batches = ByEquation(), [(x, g.T) for x, g in batches]
        state = train_state.TrainState.create(apply_fn=layer.apply, params=layer.init(keys[0], x), tx=tx)
        after = [state, *(row[-1] for row in run(state, batches, weighted))]
        for step in (0, 3, 4):
            case = f"{name}/{step}"
            tree = flat_state(after[step])
            golden.cases.append({"name": case, "separator": "/", "tensors": sorted(tree)})
            golden.tensors.update({f"{case}/{path}": np.asarray(jnp.asarray(leaf)) for path, leaf in tree.items()})
        golden.cases.append({"name": f"{name}/batch", "tensors": ["x", "g"], "loss": "sum(y * g)"})
        golden.tensors.update({f"{name}/batch/{key}": np.asarray(v) for key, v in zip(("x", "g"), batches[3])})


def main():
    train = Golden("train")
    dense_cases(train)
    mlp_cases(train)
    train.write()
    state = Golden("state")
    state_cases(state)
    state.write()


if __name__ == "__main__":
    main()
