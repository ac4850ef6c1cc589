"""The quantization rules, written from their formulas in numpy: independent of Octavo's code.

Everything is computed in float32, each operation rounded once. Real value = code x scale.
"""

import ml_dtypes
import numpy as np

F32 = np.float32
E4M3_MAX = F32(448)
FLT_MAX = np.finfo(F32).max
DEEPGEMM_FLOOR = F32(1e-4)
RULES = ("transformers", "deepseek", "deepgemm")
SCALE_FORMATS = ("float", "ue8m0")


def block_view(matrix, block):
    """Yields (grid row, grid column, view of the block); edge blocks are smaller."""
    rows, cols = matrix.shape
    for i in range(0, rows, block[0]):
        for j in range(0, cols, block[1]):
            yield i // block[0], j // block[1], matrix[i : i + block[0], j : j + block[1]]


def ue8m0_byte(scale):
    """The exponent byte of the next power of two that is not below scale, within 1..254."""
    bits = int(np.array(scale, F32).view(np.uint32))
    return min(max((bits >> 23) + ((bits & 0x7FFFFF) != 0), 1), 254)


def scale_and_divisor(amax, rule):
    """(scale, how codes are made): ("multiply", q) or ("divide", s)."""
    with np.errstate(over="ignore", divide="ignore"):
        if rule == "deepgemm":
            amax = max(amax, DEEPGEMM_FLOOR)
        if amax == 0:
            return F32(1), ("multiply", F32(1))
        # torch evaluates `448 / tensor` as reciprocal times 448: two roundings.
        q = (F32(1) / amax) * E4M3_MAX if rule == "transformers" else E4M3_MAX / amax
        if np.isinf(q):
            s = F32(1) / FLT_MAX
            return s, (("divide", s) if rule == "deepseek" else ("multiply", FLT_MAX))
        if rule == "transformers":
            return F32(1) / q, ("multiply", q)
        s = amax / E4M3_MAX
        return s, (("divide", s) if rule == "deepseek" else ("multiply", F32(1) / s))


def quantize_matrix(source, rule, block, scale_fmt):
    """(codes uint8, scales): scales are float32, or uint8 exponent bytes for ue8m0."""
    matrix = source.astype(F32)
    grid = tuple(-(-size // step) for size, step in zip(matrix.shape, block))
    codes = np.empty(matrix.shape, np.uint8)
    scales = np.empty(grid, F32 if scale_fmt == "float" else np.uint8)
    code_blocks = block_view(codes, block)
    for (i, j, values), (_, _, out) in zip(block_view(matrix, block), code_blocks):
        scale, (operation, factor) = scale_and_divisor(np.abs(values).max(), rule)
        if scale_fmt == "ue8m0":
            byte = ue8m0_byte(scale)
            scales[i, j] = byte
            operation, factor = "multiply", np.ldexp(F32(1), 127 - byte).astype(F32)
        else:
            scales[i, j] = scale
        scaled = values * factor if operation == "multiply" else values / factor
        clamped = np.clip(scaled, -E4M3_MAX, E4M3_MAX)
        out[...] = clamped.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    return codes, scales


def over_matrices(function, *arrays):
    """Applies a function of 2-D arrays to every matrix of the leading dimensions."""
    leading = arrays[0].shape[:-2]
    results = [function(*(array[index] for array in arrays)) for index in np.ndindex(*leading)]
    if isinstance(results[0], tuple):
        return tuple(np.stack(parts).reshape(*leading, *parts[0].shape) for parts in zip(*results))
    return np.stack(results).reshape(*leading, *results[0].shape)


def quantize(source, rule, block, scale_fmt):
    return over_matrices(lambda matrix: quantize_matrix(matrix, rule, block, scale_fmt), source)


def scale_values(scales):
    """float32 scales from float32 or from ue8m0 bytes (2^-127 is a denormal and kept)."""
    if scales.dtype == np.uint8:
        return np.ldexp(F32(1), scales.astype(np.int32) - 127).astype(F32)
    return scales.astype(F32)


def dequantize_matrix(codes, scales, block):
    values = codes.view(ml_dtypes.float8_e4m3fn).astype(F32)
    spread = np.repeat(np.repeat(scale_values(scales), block[0], 0), block[1], 1)
    with np.errstate(over="ignore"):
        return values * spread[: values.shape[0], : values.shape[1]]


def dequantize(codes, scales, block, dtype=ml_dtypes.bfloat16):
    """code x scale in float32, then rounded once to dtype."""
    product = over_matrices(lambda c, s: dequantize_matrix(c, s, block), codes, scales)
    with np.errstate(over="ignore"):
        return product.astype(dtype)
