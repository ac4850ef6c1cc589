#!/usr/bin/env python3
"""Makes optim.safetensors and optim.json: optimizers and schedules of optax, step by step.

Usage: scripts/oracles, then .venv/oracles/bin/python tests/golden/flax/make_optim.py

All start from start.params and get gradients.<leaf> (steps, ...); <case>.params.<leaf> (steps, ...) are the parameters
after each step, <case>.state what the optimizer keeps after the last.
"""

from golden import Golden, flat, normals

import flax.serialization
import jax
import jax.numpy as jnp
import numpy as np
import optax

STEPS = 20
SHAPES = {"kernel": (3, 4), "bias": (4,), "scale": (1,)}


def matrices(params):
    return jax.tree.map(lambda p: p.ndim > 1, params)


OPTIMIZERS = {
    "sgd": (optax.sgd(0.1), {"learning_rate": 0.1}),
    "sgd_momentum": (optax.sgd(0.1, momentum=0.9), {"learning_rate": 0.1, "momentum": 0.9}),
    "sgd_nesterov": (optax.sgd(0.1, momentum=0.9, nesterov=True), {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True}),
    "adam": (optax.adam(0.1), {"learning_rate": 0.1, "b1": 0.9, "b2": 0.999, "eps": 1e-8}),
    "adam_options": (optax.adam(0.01, b1=0.8, b2=0.95, eps=1e-5, eps_root=1e-6),
                     {"learning_rate": 0.01, "b1": 0.8, "b2": 0.95, "eps": 1e-5, "eps_root": 1e-6}),
    "adam_nesterov": (optax.adam(0.01, nesterov=True), {"learning_rate": 0.01, "nesterov": True}),
    "adamw": (optax.adamw(0.1), {"learning_rate": 0.1, "weight_decay": 1e-4}),
    "adamw_decay": (optax.adamw(0.1, weight_decay=0.1), {"learning_rate": 0.1, "weight_decay": 0.1}),
    "adamw_mask": (optax.adamw(0.1, weight_decay=0.1, mask=matrices),
                   {"learning_rate": 0.1, "weight_decay": 0.1, "decays": ["kernel"]}),
    "adamw_schedule": (optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 0.1, 5, 15, 0.01), weight_decay=0.1),
                       {"learning_rate": "warmup_cosine", "weight_decay": 0.1}),
    "clip_sgd": (optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1)), {"learning_rate": 0.1, "clip": 1.0}),
    "clip_loose": (optax.chain(optax.clip_by_global_norm(100.0), optax.sgd(0.1)), {"learning_rate": 0.1, "clip": 100.0}),
    "clip_adamw": (optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(0.01)),
                   {"learning_rate": 0.01, "weight_decay": 1e-4, "clip": 0.5}),
    "multi_steps_sgd": (optax.MultiSteps(optax.sgd(0.1), 4), {"learning_rate": 0.1, "every": 4}),
    "multi_steps_adam": (optax.MultiSteps(optax.adam(0.1), 3), {"learning_rate": 0.1, "every": 3}),
    "multi_steps_sum": (optax.MultiSteps(optax.sgd(0.1), 4, use_grad_mean=False),
                        {"learning_rate": 0.1, "every": 4, "use_grad_mean": False}),
}
SCHEDULES = {
    "constant": (optax.constant_schedule(0.1), {"value": 0.1}),
    "cosine_decay": (optax.cosine_decay_schedule(0.1, 15), {"init": 0.1, "decay_steps": 15, "alpha": 0.0}),
    "cosine_decay_alpha": (optax.cosine_decay_schedule(0.1, 15, 0.1), {"init": 0.1, "decay_steps": 15, "alpha": 0.1}),
    "warmup_cosine": (optax.warmup_cosine_decay_schedule(0.0, 0.1, 5, 15, 0.01),
                      {"init": 0.0, "peak": 0.1, "warmup_steps": 5, "decay_steps": 15, "end": 0.01}),
    "warmup_cosine_from": (optax.warmup_cosine_decay_schedule(0.02, 0.1, 1, 20),
                           {"init": 0.02, "peak": 0.1, "warmup_steps": 1, "decay_steps": 20, "end": 0.0}),
    "linear": (optax.linear_schedule(0.1, 0.01, 12), {"init": 0.1, "end": 0.01, "transition_steps": 12}),
    "linear_begin": (optax.linear_schedule(0.0, 0.1, 8, 4), {"init": 0.0, "end": 0.1, "transition_steps": 8, "begin": 4}),
}


def main():
    golden = Golden("optim")
    rng = np.random.default_rng(41)
    start = {name: normals(rng, shape) for name, shape in SHAPES.items()}
    gradients = {name: normals(rng, (STEPS, *shape)) for name, shape in SHAPES.items()}
    gradients["kernel"][3] = 0
    gradients["bias"][5] *= 1e3
    gradients["scale"][:] *= 1e-6
    golden.add("start", {}, params=start)
    golden.add("gradients", {"steps": STEPS}, **gradients)
    norms = [optax.global_norm({name: g[step] for name, g in gradients.items()}) for step in range(STEPS)]
    golden.add("global_norm", {"op": "global_norm", "of": "gradients, per step"}, norm=np.stack(norms))
    clipped = [optax.clip_by_global_norm(1.0).update({n: jnp.asarray(g[step]) for n, g in gradients.items()},
                                                     optax.EmptyState())[0] for step in range(STEPS)]
    golden.add("clip_by_global_norm", {"op": "clip_by_global_norm", "max_norm": 1.0},
               **{name: np.stack([np.asarray(c[name]) for c in clipped]) for name in SHAPES})
    for name, (schedule, info) in SCHEDULES.items():
        golden.add(f"schedule.{name}", {"schedule": name, **info},
                   values=np.stack([np.asarray(schedule(jnp.int32(step)), np.float32) for step in range(STEPS + 5)]))
    for name, (tx, info) in OPTIMIZERS.items():
        params = jax.tree.map(jnp.asarray, start)
        state = tx.init(params)
        update = jax.jit(tx.update)
        rows = []
        for step in range(STEPS):
            updates, state = update({n: g[step] for n, g in gradients.items()}, state, params)
            params = optax.apply_updates(params, updates)
            rows.append(params)
        tree = flax.serialization.to_state_dict(state)
        golden.add(name, {"optimizer": name, **info},
                   params={leaf: np.stack([np.asarray(row[leaf]) for row in rows]) for leaf in SHAPES},
                   **{key: np.asarray(value) for key, value in flat("state", tree).items() if value is not None})
    golden.write()


if __name__ == "__main__":
    main()
