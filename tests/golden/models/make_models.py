#!/usr/bin/env python3
"""Makes the tiny random models beside this file with Transformers, and what it computes with them.

NAME/config.json, NAME/model.safetensors, NAME/generation_config.json: as save_pretrained() writes them.
expected/NAME.safetensors: "logits" F64 (positions, vocabulary), of a run in f64.
expected/NAME.json:
  tokens, positions  the sequence, and those of its positions whose logits are kept
  f32_error          at each of these, the largest distance of Transformers' f32 run from the f64 run
  prompt, greedy     a prompt and its greedy continuation in f32
  greedy_gap         at each step, the f64 run's distance between its two best logits

The f64 run takes the weights of the file and the f32 angles of the rotary tables, and does all else in
f64: Transformers' own norms and softmax would go to f32 on the way.

Usage: scripts/oracles, then .venv/oracles/bin/python tests/golden/models/make_models.py
"""

import json
import pathlib
import shutil

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

HERE = pathlib.Path(__file__).resolve().parent
EXPECTED = HERE / "expected"
VOCABULARY = 160
LENGTH = 96
POSITIONS = [0, *range(5, LENGTH, 6)]
PROMPT = 20
GREEDY = 60

COMMON = {"vocab_size": VOCABULARY, "num_hidden_layers": 2, "max_position_embeddings": 256,
          "bos_token_id": 1, "eos_token_id": None, "pad_token_id": None}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0,
        "original_max_position_embeddings": 32}
MODELS = {
    "llama3": (torch.bfloat16, LlamaConfig(
        **COMMON, hidden_size=96, intermediate_size=96, num_attention_heads=6, num_key_value_heads=2,
        rms_norm_eps=1e-5, rope_parameters=LLAMA3)),
    "llama_tied": (torch.bfloat16, LlamaConfig(
        **COMMON, hidden_size=80, intermediate_size=88, num_attention_heads=5, num_key_value_heads=5,
        tie_word_embeddings=True)),
    "llama_yarn": (torch.float32, LlamaConfig(
        **COMMON, hidden_size=64, intermediate_size=40, num_attention_heads=4, num_key_value_heads=1,
        attention_bias=True, mlp_bias=True, rope_parameters=YARN)),
    "mistral": (torch.bfloat16, MistralConfig(
        **COMMON, hidden_size=64, intermediate_size=96, num_attention_heads=4, num_key_value_heads=2,
        sliding_window=24)),
    "qwen2": (torch.bfloat16, Qwen2Config(
        **COMMON, hidden_size=64, intermediate_size=72, num_attention_heads=4, num_key_value_heads=2,
        use_sliding_window=True, sliding_window=24, max_window_layers=1)),
    "qwen3": (torch.bfloat16, Qwen3Config(
        **COMMON, hidden_size=64, intermediate_size=96, num_attention_heads=4, num_key_value_heads=2,
        head_dim=32)),
}


def fill(model, seed):
    """Random parameters of such a size that the next token is neither certain nor arbitrary."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
        if "norm" in name:
            value = 1 + 0.2 * noise
        elif name.endswith("bias"):
            value = 0.3 * noise
        elif "embed_tokens" in name or "lm_head" in name:
            value = noise * 3 / parameter.shape[1] ** 0.5
        else:
            value = noise * 1.5 / parameter.shape[1] ** 0.5
        parameter.data.copy_(value)


def in_f64(model):
    """The model with all arithmetic after the rotary angles in f64."""
    model = model.double()
    for module in model.modules():
        kind = type(module).__name__
        if kind.endswith("RMSNorm"):
            def norm(x, module=module):
                scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + module.variance_epsilon)
                return module.weight * (x * scale)
            module.forward = norm
        elif kind.endswith("RotaryEmbedding"):
            inv_freq = module.inv_freq.float()
            assert torch.equal(inv_freq.double(), module.inv_freq.double())

            def rotary(x, position_ids, inv_freq=inv_freq, scaling=module.attention_scaling):
                angles = (position_ids[..., None].float() * inv_freq).double()
                angles = torch.cat((angles, angles), dim=-1)
                return angles.cos() * scaling, angles.sin() * scaling
            module.forward = rotary
    return model


def logits_of(model, tokens):
    return model(torch.tensor([tokens]), use_cache=False).logits[0]


def make(name, dtype, config, seed):
    directory = HERE / name
    shutil.rmtree(directory, ignore_errors=True)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    fill(model, seed)
    model.to(dtype).save_pretrained(directory)

    generator = torch.Generator().manual_seed(seed + 1000)
    tokens = torch.randint(VOCABULARY, (LENGTH,), generator=generator).tolist()
    prompt = torch.randint(VOCABULARY, (PROMPT,), generator=generator).tolist()
    f32 = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    f64 = in_f64(AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval())

    exact = logits_of(f64, tokens)
    assert exact.dtype == torch.float64
    error = (logits_of(f32, tokens).double() - exact).abs().max(-1).values
    greedy = f32.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, PROMPT),
                          max_new_tokens=GREEDY, do_sample=False, pad_token_id=0)[0, PROMPT:].tolist()
    steps = logits_of(f64, prompt + greedy)[PROMPT - 1:-1]
    best = steps.topk(2).values
    gap = best[:, 0] - best[:, 1]
    certain = gap > 2 * error.max()
    assert len(greedy) == GREEDY
    assert torch.equal(steps.argmax(-1)[certain], torch.tensor(greedy)[certain])

    save_file({"logits": exact[POSITIONS].contiguous()}, EXPECTED / f"{name}.safetensors")
    expected = {"made_with": {"transformers": transformers.__version__,
                              "torch": torch.__version__.split("+")[0]},
                "tokens": tokens, "positions": POSITIONS, "f32_error": error[POSITIONS].tolist(),
                "prompt": prompt, "greedy": greedy, "greedy_gap": gap.tolist()}
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in expected.items())
    (EXPECTED / f"{name}.json").write_text("{\n" + lines + "\n}\n")
    probability = exact.softmax(-1).max(-1).values
    print(f"{name}: f32 error {error.max():.2e}, logits std {exact.std():.2f}, best token's probability "
          f"{probability.mean():.2f}, smallest gap {gap.min():.2e}, "
          f"{len(set(greedy))} different tokens of {GREEDY}")


def main():
    EXPECTED.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    for seed, (name, (dtype, config)) in enumerate(MODELS.items()):
        make(name, dtype, config, seed)


if __name__ == "__main__":
    main()
