#!/usr/bin/env python3
"""Times a training step of Flax's Dense 1024x4096 at batch 512 on the CPU: forward and backward, compiled.

Usage: scripts/oracles, then .venv/oracles/bin/python benchmarks/flax_dense.py [--threads 1 2] [--repeat 5]

Prints milliseconds, the least and the middle of the repeats: bf16 (plain dot), fp8 (Fp8DotGeneral, compute type
bf16), fp8_f32 (Fp8DotGeneral, compute type f32). Every number of threads is a process of its own, bound to as many
CPUs. What is timed: gradients of sum(y * g) for the parameters, the FP8 state and the input.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time

INPUTS, OUTPUTS, BATCH = 1024, 4096, 512
KINDS = ("bf16", "fp8", "fp8_f32")


def measure(kinds, repeat):
    import flax.linen as nn
    import jax
    import jax.numpy as jnp

    for kind in kinds:
        dtype = jnp.float32 if kind == "fp8_f32" else jnp.bfloat16
        layer = nn.Dense(OUTPUTS, dtype=dtype, **({} if kind == "bf16" else {"dot_general_cls": nn.Fp8DotGeneral}))
        x = jax.random.normal(jax.random.key(0), (BATCH, INPUTS), dtype)
        g = jax.random.normal(jax.random.key(1), (BATCH, OUTPUTS), dtype)
        variables = layer.init(jax.random.key(2), x)

        @jax.jit
        def step(variables, x, g):
            y, pull = jax.vjp(layer.apply, variables, x)
            return y, pull(g)

        milliseconds = []
        for _ in range(repeat + 1):
            start = time.perf_counter()
            jax.block_until_ready(step(variables, x, g))
            milliseconds.append(1000 * (time.perf_counter() - start))
        timed = milliseconds[1:]  # the first one compiles
        print(f"{len(os.sched_getaffinity(0))} threads, {kind}: {min(timed):.1f} ms, median {statistics.median(timed):.1f}",
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--here", action="store_true", help="measure in this process, on the CPUs it is bound to")
    options = parser.parse_args()
    if options.here:
        return measure(options.kinds, options.repeat)
    cpus = sorted(os.sched_getaffinity(0))
    for threads in options.threads:
        if threads > len(cpus):
            print(f"{threads} threads: skipped, this process may use {len(cpus)} CPUs")
            continue
        flags = "" if threads > 1 else "--xla_cpu_multi_thread_eigen=false"
        subprocess.run([sys.executable, str(pathlib.Path(__file__).resolve()), "--here", "--kinds", *options.kinds,
                        "--repeat", str(options.repeat)], check=True, env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
                       preexec_fn=lambda: os.sched_setaffinity(0, cpus[:threads]))


if __name__ == "__main__":
    main()
