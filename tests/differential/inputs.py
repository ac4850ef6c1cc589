"""Named, seeded matrices that quantization rules find hard. All values are finite."""

import ml_dtypes
import numpy as np

SOURCE_DTYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}


def gaussian(rng, shape):
    return rng.standard_normal(shape) * 0.02


def heavy_tailed(rng, shape):
    return rng.standard_t(2, shape) * 0.02


def wide(rng, shape):
    """Magnitudes over 60 powers of two, so that some blocks meet each rule's floor."""
    return np.ldexp(rng.standard_normal(shape), rng.integers(-40, 20, shape))


def tiny(rng, shape):
    """Around the amax where 448 / amax overflows, down to the smallest float32."""
    rows = np.linspace(-149, -112, shape[-2]).astype(int)[:, None]
    return np.ldexp(rng.uniform(-2, 2, shape), np.broadcast_to(rows, shape))


def huge(rng, shape):
    return np.ldexp(rng.uniform(-1, 1, shape), 127)


def zeros(rng, shape):
    """Blocks of zeros, of negative zeros, and of one value among zeros."""
    values = np.zeros(shape)
    values[..., ::2] = -0.0
    values[..., 0, 0] = rng.standard_normal()
    return values


def code_midpoints(rng, shape):
    """Many values halfway between two codes once scaled: amax is 448 in every block."""
    values = rng.integers(-448 * 8, 448 * 8, shape) / 8.0
    values[..., ::4, ::4] = 448.0
    return values


GENERATORS = {
    f.__name__: f for f in (gaussian, heavy_tailed, wide, tiny, huge, zeros, code_midpoints)
}


def make(name, shape, dtype, seed):
    """A finite array of the source dtype; what would overflow in it becomes its largest value."""
    values = GENERATORS[name](np.random.default_rng(seed), shape).astype(np.float32)
    limit = np.float32(ml_dtypes.finfo(dtype).max)
    return np.clip(values, -limit, limit).astype(dtype)
