#!/usr/bin/env python3
"""Writes a small Llama checkpoint with random BF16 weights; the same bytes for the same options.

    tools/make_checkpoint.py OUTDIR [--seed 1] [--layers 2] ...

The default shapes are ragged against blocks of 128: K and V have 192 rows, the MLP is 688 wide.
Needs the Python standard library only.
"""

import argparse
import array
import json
import os
import random
import shutil
import sys

STANDARD_DEVIATION = 0.02


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("outdir")
    for name, default in [
        ("seed", 1),
        ("hidden", 256),
        ("layers", 2),
        ("vocab", 512),
        ("ffn", 688),
        ("heads", 6),
        ("kv-heads", 3),
        ("head-dim", 64),
    ]:
        parser.add_argument(
            f"--{name}", type=int, default=default, metavar="N", help=f"default {default}"
        )
    return parser.parse_args()


def shapes(args):
    """{tensor name: shape}, in file order."""
    result = {"model.embed_tokens.weight": (args.vocab, args.hidden)}
    for layer in range(args.layers):
        prefix = f"model.layers.{layer}."
        result[prefix + "input_layernorm.weight"] = (args.hidden,)
        result[prefix + "self_attn.q_proj.weight"] = (args.heads * args.head_dim, args.hidden)
        result[prefix + "self_attn.k_proj.weight"] = (args.kv_heads * args.head_dim, args.hidden)
        result[prefix + "self_attn.v_proj.weight"] = (args.kv_heads * args.head_dim, args.hidden)
        result[prefix + "self_attn.o_proj.weight"] = (args.hidden, args.heads * args.head_dim)
        result[prefix + "post_attention_layernorm.weight"] = (args.hidden,)
        result[prefix + "mlp.gate_proj.weight"] = (args.ffn, args.hidden)
        result[prefix + "mlp.up_proj.weight"] = (args.ffn, args.hidden)
        result[prefix + "mlp.down_proj.weight"] = (args.hidden, args.ffn)
    result["model.norm.weight"] = (args.hidden,)
    result["lm_head.weight"] = (args.vocab, args.hidden)
    return result


def bf16_bytes(values):
    """The upper half of each float32: BF16 by truncation, enough for random numbers."""
    floats = array.array("f", values)
    if sys.byteorder == "big":
        floats.byteswap()
    data = floats.tobytes()
    result = bytearray(len(data) // 2)
    result[0::2] = data[2::4]
    result[1::2] = data[3::4]
    return bytes(result)


def write_safetensors(path, tensors, seed):
    header = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in tensors.items():
        end = offset + 2 * element_count(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    gauss = random.Random(seed).gauss
    with open(path, "wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for shape in tensors.values():
            mean, deviation = (
                (1.0, 0.0) if len(shape) == 1 else (0.0, STANDARD_DEVIATION)
            )  # norms: ones
            file.write(bf16_bytes(gauss(mean, deviation) for _ in range(element_count(shape))))


def element_count(shape):
    count = 1
    for size in shape:
        count *= size
    return count


def config(args):
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "head_dim": args.head_dim,
        "hidden_act": "silu",
        "hidden_size": args.hidden,
        "intermediate_size": args.ffn,
        "max_position_embeddings": 2048,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": args.heads,
        "num_hidden_layers": args.layers,
        "num_key_value_heads": args.kv_heads,
        "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "vocab_size": args.vocab,
    }


def write_json(directory, name, value):
    with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2)
        file.write("\n")


def main():
    """A directory named outdir exists only when it is complete: it is written aside and renamed."""
    args = parse_arguments()
    out = os.path.abspath(args.outdir)
    if os.path.exists(out):
        sys.exit(f"make_checkpoint: {out} exists; remove it or name another directory")
    partial = out + ".partial"
    shutil.rmtree(partial, ignore_errors=True)
    os.makedirs(partial)
    write_safetensors(os.path.join(partial, "model.safetensors"), shapes(args), args.seed)
    write_json(partial, "config.json", config(args))
    write_json(partial, "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2})
    write_json(partial, "tokenizer_config.json", {"model_max_length": 2048})
    os.rename(partial, out)


if __name__ == "__main__":
    main()
