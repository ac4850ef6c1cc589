"""A small Llama checkpoint from tools/make_checkpoint.py."""

import pathlib
import subprocess
import sys

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "make_checkpoint.py"
BLOCK_MULTIPLES = ["--heads", "4", "--kv-heads", "2", "--head-dim", "64", "--ffn", "512"]
SKIPPED = ("lm_head", "embed_tokens", "norm")


def small_model(directory, options=()):
    path = pathlib.Path(directory) / "source"
    subprocess.run([sys.executable, str(TOOL), str(path), *options], check=True)
    return path
