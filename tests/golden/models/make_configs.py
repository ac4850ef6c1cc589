#!/usr/bin/env python3
"""Makes config_defaults.json and rope.json beside this file, with Transformers and PyTorch.

config_defaults.json: what the configuration classes take where config.json is silent.
rope.json: rotary frequencies and tables from the models' own rotary modules, in f32. f32 values are
written as their bits.

Usage: scripts/oracles, then .venv/oracles/bin/python tests/golden/models/make_configs.py
"""

import json
import pathlib

import torch
import transformers
from transformers import LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

HERE = pathlib.Path(__file__).resolve().parent
VERSIONS = {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]}
POSITIONS = [0, 1, 10, 5000, 100000]

BASE = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512,
        "num_attention_heads": 8, "num_hidden_layers": 1, "vocab_size": 32, "intermediate_size": 64}


def case(name, rope, sequence_length=None, **top):
    """`rope`: rope_scaling as older files have it. `sequence_length`: of the call, for dynamic."""
    return name, {**BASE, **top, **({"rope_scaling": rope} if rope else {})}, sequence_length


CASES = [
    case("default", None, rope_theta=10000.0, max_position_embeddings=4096),
    case("default, theta 1e6, head_dim 80", None, rope_theta=1000000.0, head_dim=80),
    case("linear", {"type": "linear", "factor": 2.5}, rope_theta=10000.0),
    case("dynamic, within", {"type": "dynamic", "factor": 2.0}, 2048, max_position_embeddings=2048),
    case("dynamic, one more", {"type": "dynamic", "factor": 2.0}, 2049, max_position_embeddings=2048),
    case("dynamic, beyond", {"type": "dynamic", "factor": 4.0}, 100001, rope_theta=500000.0,
         max_position_embeddings=4096),
    case("dynamic, head_dim 4", {"type": "dynamic", "factor": 4.0}, 9000, head_dim=4,
         max_position_embeddings=4096),
    case("llama3 (3.1)", {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                          "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
         rope_theta=500000.0, max_position_embeddings=131072, head_dim=128),
    case("llama3 (3.2)", {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
                          "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
         rope_theta=500000.0, max_position_embeddings=131072, head_dim=64),
    case("yarn", {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
         rope_theta=1000000.0, max_position_embeddings=131072, head_dim=128),
    case("yarn, mscale (MDL-04)",
         {"type": "yarn", "factor": 64.0, "mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 32.0,
          "beta_slow": 1.0, "original_max_position_embeddings": 4096},
         rope_theta=10000.0, max_position_embeddings=262144, head_dim=64),
    case("yarn, mscales differ",
         {"type": "yarn", "factor": 64.0, "mscale": 1.0, "mscale_all_dim": 0.707,
          "original_max_position_embeddings": 4096},
         rope_theta=10000.0, max_position_embeddings=262144),
    case("yarn, one mscale is none", {"type": "yarn", "factor": 64.0, "mscale": 0.707,
                                      "mscale_all_dim": 0, "original_max_position_embeddings": 4096},
         max_position_embeddings=262144),
    case("yarn, attention_factor, not truncated",
         {"type": "yarn", "factor": 16.0, "attention_factor": 1.25, "truncate": False,
          "beta_fast": 24.0, "beta_slow": 2.0, "original_max_position_embeddings": 4096},
         max_position_embeddings=65536),
    case("yarn, factor from lengths", {"type": "yarn", "factor": None,
                                       "original_max_position_embeddings": 4096},
         max_position_embeddings=10240),
    case("yarn, original length beside it", {"type": "yarn", "factor": 4.0},
         max_position_embeddings=65536, original_max_position_embeddings=16384),
    case("yarn, original length from the config", {"type": "yarn", "factor": 4.0},
         max_position_embeddings=4096),
    case("yarn, all in one place", {"type": "yarn", "factor": 4.0, "beta_fast": 1.0, "beta_slow": 1.0,
                                    "original_max_position_embeddings": 7},
         max_position_embeddings=28),
]


def bits(tensor):
    return tensor.to(torch.float32).contiguous().view(torch.int32).flatten().tolist()


def rope_case(name, config, sequence_length):
    rotary = LlamaRotaryEmbedding(LlamaConfig(**json.loads(json.dumps(config))))
    probe = torch.zeros(1, dtype=torch.float32)
    half = rotary.inv_freq.numel()
    if sequence_length is not None:  # a token whose position is the last of such a sequence
        rotary(probe, torch.tensor([[sequence_length - 1]]))
    tables = []
    for position in POSITIONS if sequence_length is None else [sequence_length - 1]:
        cos, sin = rotary(probe, torch.tensor([[position]]))
        assert torch.equal(cos[0, 0, :half], cos[0, 0, half:])
        tables.append({"position": position, "cos": bits(cos[0, 0, :half]), "sin": bits(sin[0, 0, :half])})
    scaling = torch.tensor(float(rotary.attention_scaling), dtype=torch.float32)
    return {"name": name, "config": config, "sequence_length": sequence_length or 1,
            "inv_freq": bits(rotary.inv_freq), "attention_scaling": bits(scaling)[0], "tables": tables}


def defaults():
    keys = ["hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
            "intermediate_size", "vocab_size", "max_position_embeddings", "rms_norm_eps",
            "tie_word_embeddings", "bos_token_id", "eos_token_id"]
    result = {}
    for cls in (LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config):
        config = cls()
        entry = {key: getattr(config, key) for key in keys}
        entry["head_dim"] = getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)
        entry["attention_bias"] = getattr(config, "attention_bias", None)
        entry["rope_theta"] = config.rope_parameters["rope_theta"]
        window = getattr(config, "sliding_window", None)
        types = getattr(config, "layer_types", None)
        entry["sliding_window"] = window if types is None or "sliding_attention" in types else None
        result[cls.model_type] = entry
    return result


def main():
    torch.set_num_threads(1)
    (HERE / "config_defaults.json").write_text(
        json.dumps({"made_with": VERSIONS, "families": defaults()}, indent=1) + "\n")
    text = ",\n".join(json.dumps(rope_case(*c)) for c in CASES)
    (HERE / "rope.json").write_text(
        f'{{"made_with": {json.dumps(VERSIONS)}, "cases": [\n{text}\n]}}\n')


if __name__ == "__main__":
    main()
