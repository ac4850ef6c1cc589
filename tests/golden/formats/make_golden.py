#!/usr/bin/env python3
"""Writes the golden tables of this folder with ml_dtypes 0.6.0 (and numpy).

    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install ml-dtypes==0.6.0
    /tmp/golden/bin/python tests/golden/formats/make_golden.py

bf16_to_<format>.txt   all 65,536 bf16 inputs, as runs: "first-input code" in hexadecimal; the code holds up to the next
                       line's input. Inputs in the order of their bits. The default cast: nearest even, not saturating.
<format>_to_f32.txt    all codes: "code f32-bits". NaN as ml_dtypes gives it.
"""
import pathlib

import ml_dtypes
import numpy as np

FORMATS = {
    "e4m3fn": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "e8m0fnu": ml_dtypes.float8_e8m0fnu,
    "e2m1fn": ml_dtypes.float4_e2m1fn,
}


def main():
    assert ml_dtypes.__version__ == "0.6.0", ml_dtypes.__version__
    folder = pathlib.Path(__file__).parent
    header = f"# ml_dtypes {ml_dtypes.__version__}, make_golden.py\n"
    inputs = np.arange(65536, dtype=np.uint16).view(ml_dtypes.bfloat16)
    for name, dtype in FORMATS.items():
        with np.errstate(all="ignore"):
            codes = inputs.astype(dtype).view(np.uint8)
        starts = np.flatnonzero(np.concatenate(([True], codes[1:] != codes[:-1])))
        lines = [f"{i:04x} {codes[i]:02x}\n" for i in starts]
        (folder / f"bf16_to_{name}.txt").write_text(header + "".join(lines))

        count = 16 if name == "e2m1fn" else 256
        values = np.arange(count, dtype=np.uint8).view(dtype).astype(np.float32).view(np.uint32)
        lines = [f"{code:02x} {bits:08x}\n" for code, bits in enumerate(values)]
        (folder / f"{name}_to_f32.txt").write_text(header + "".join(lines))


if __name__ == "__main__":
    main()
