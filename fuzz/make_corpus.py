#!/usr/bin/env python3
"""Writes the hand-made seeds of fuzz/corpus: what real models have, cut down, and each known kind of damage.

Usage: fuzz/make_corpus.py    (inputs that a fuzzer found stay beside them)
"""

import json
import pathlib
import struct

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus"
BYTES = {"F64": 8, "I64": 8, "C64": 8, "F32": 4, "BF16": 2, "F16": 2, "U16": 2, "F8_E4M3": 1, "F8_E5M2": 1,
         "F8_E8M0": 1, "I8": 1, "U8": 1, "BOOL": 1, "F4": 0.5}


def compact(value):
    return json.dumps(value, separators=(",", ":"))


def container(header, data=b"", length=None):
    """A file of this header text; `length` where it is not declared as it is."""
    text = header.encode() if isinstance(header, str) else header
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def model(tensors, metadata=None, spaces=0, data=True):
    """tensors: [(name, dtype, shape)], one after the other."""
    header, at = {}, 0
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, dtype, shape in tensors:
        size = BYTES[dtype]
        for extent in shape:
            size *= extent
        header[name] = entry(dtype, shape, at, at + int(size))
        at += int(size)
    return container(compact(header) + " " * spaces, bytes(at) if data else b"")


def one(dtype, shape, begin, end, data):
    return container(compact({"a": entry(dtype, shape, begin, end)}), bytes(data))


def pair(first, second, data):
    return container('{"a":%s,"b":%s}' % (compact(first), compact(second)), bytes(data))


def linear(name, rows, cols, scale="weight_scale_inv", scale_dtype="F32"):
    return [(name + ".weight", "F8_E4M3", [rows, cols]),
            (name + "." + scale, scale_dtype, [-(-rows // 128), -(-cols // 128)])]


def headers():
    pt = {"format": "pt"}
    layer = "model.layers.3."
    deepseek = linear(layer + "self_attn.kv_a_proj_with_mqa", 576, 7168)
    deepseek += [(layer + "self_attn.kv_a_layernorm.weight", "BF16", [512]),
                 (layer + "mlp.gate.e_score_correction_bias", "F32", [256])]
    deepseek += linear(layer + "mlp.experts.0.gate_proj", 2048, 7168)
    qwen = [("model.embed_tokens.weight", "BF16", [8, 4])] + linear("model.layers.0.self_attn.q_proj", 8, 4)
    f32 = entry("F32", [2], 0, 8)
    sound = model([("a", "F32", [2]), ("b", "BF16", [4])], pt)
    yield "real_deepseek", model(deepseek, pt, data=False)
    yield "real_qwen", model(qwen, pt)
    yield "real_ue8m0", model(linear("layers.0.attn.wq_a", 130, 2, "scale", "F8_E8M0"), pt)
    yield "stf01_length_all_ones", container("{}", length=2**64 - 1)
    yield "stf01_length_2_63", container("{}", length=2**63)
    yield "stf01_length_file", container("{}  ", length=12)
    yield "stf01_length_file_less_7", container("{}  ", length=5)
    yield "stf01_length_0", container("{}", length=0)
    yield "stf01_length_1", container("{}", length=1)
    yield "stf01_seven_bytes", bytes(7)
    yield "stf02_pointer", (b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"5" * 64 +
                            b"\nsize 5234139343\n")
    yield "stf02_pointer_cut", b"version https://git-lfs.github.com/spec/v1\nsize 5\xe8\x84"
    yield "stf03_cut_half", sound[:len(sound) // 2]
    yield "stf03_cut_at_data", sound[:-16]
    yield "stf03_cut_last_byte", sound[:-1]
    yield "stf04_key_twice", container('{"a":%s,"a":%s}' % (compact(f32), compact(entry("F32", [2], 8, 16))), bytes(16))
    yield "stf04_key_twice_escaped", container(r'{"a":%s,"\u0061":%s}' % (compact(f32), compact(f32)), bytes(8))
    yield "stf04_metadata_twice", container('{"__metadata__":{"x":"1"},"__metadata__":{"x":"2"}}')
    yield "stf04_metadata_key_twice", container('{"__metadata__":{"x":"1","x":"2"}}')
    yield "stf04_field_twice", container('{"a":{"dtype":"U8","dtype":"I8","shape":[],"data_offsets":[0,1]}}', b"1")
    yield "stf05_same_bytes", pair(f32, f32, 8)
    yield "stf05_overlap", pair(f32, entry("F32", [2], 4, 12), 12)
    yield "stf06_shape_too_large", one("F32", [1000, 1000], 0, 4, 4)
    yield "stf06_bytes_too_many", one("F32", [32, 8], 0, 65536, 64)
    yield "stf06_backwards", one("F32", [2], 8, 0, 8)
    yield "stf06_beyond_the_end", one("F32", [2], 8, 16, 8)
    yield "stf06_overflow", one("F32", [2**32, 2**32], 0, 4, 4)
    yield "stf06_empty_times_huge", one("F32", [0, 2**64 - 1], 0, 0, 0)
    yield "stf06_offset_near_2_64", one("U8", [1], 2**64 - 2, 2**64 - 1, 1)
    for name, offsets in {"three_offsets": "[0,4,8]", "negative": "[-4,0]", "fraction": "[0,4.0]",
                          "text": '"0,4"'}.items():
        yield "stf06_" + name, container('{"a":{"dtype":"F32","shape":[1],"data_offsets":%s}}' % offsets, bytes(4))
    yield "stf07_e8m0", model([("s", "F8_E8M0", [3])])
    yield "stf07_f4", model([("w", "F4", [2, 8])])
    yield "stf07_f4_odd", one("F4", [2, 3], 0, 3, 3)
    for spaces in range(8):
        yield f"stf08_{spaces}_spaces", model([("a", "F32", [1]), ("b", "BF16", [3])], pt, spaces)
    yield "stf09_empty_header", container("{}")
    yield "stf09_metadata_only", container('{"__metadata__":{}}')
    yield "stf09_scalar_and_empty", model([("e", "F32", [0]), ("f", "BF16", [2, 0]), ("s", "F32", []),
                                          ("g", "I8", [0])])
    yield "stf11_dtypes", model([(d, d, [1]) for d in ("I64", "F64", "C64", "U16", "F16", "F8_E5M2", "BOOL", "U8")])
    yield "stf11_unknown_dtype", one("F9", [1], 0, 1, 1)
    yield "hole", pair(f32, entry("F32", [1], 12, 16), 16)
    yield "trailing_bytes", sound + b"more"
    yield "name_escapes", container('{"\\n\\u001b[2J\\u009b\\ud83d\\ude00":%s}' % compact(f32), bytes(8))
    yield "name_empty", container('{"":%s}' % compact(f32), bytes(8))
    yield "lone_surrogate", container('{"\\ud800":%s}' % compact(f32), bytes(8))
    yield "not_utf8", container(b'{"\xff":' + compact(f32).encode() + b"}", bytes(8))
    yield "deep", container('{"a":' + "[" * 1100 + "]" * 1100 + "}")
    yield "extra_field", container('{"a":{"x":[{}],"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"1")
    yield "entry_is_a_list", container('{"a":[]}')
    yield "shape_of_text", container('{"a":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}}', b"1")


def indices():
    names = {"lm_head.weight": "model-00160-of-000163.safetensors",
             "model.layers.61.mlp.shared_experts.down_proj.weight": "model-00160-of-000163.safetensors",
             "model.layers.61.mlp.shared_experts.down_proj.weight_scale_inv": "model-00161-of-000163.safetensors"}
    yield "real_deepseek", json.dumps({"metadata": {"total_size": 1369062772000}, "weight_map": names}, indent=2)
    yield "idx05_list", "[]"
    yield "idx05_null", "null"
    yield "idx05_no_map", "{}"
    yield "idx05_map_is_a_list", '{"weight_map": []}'
    yield "idx05_map_is_empty", '{"weight_map": {}}'
    yield "idx05_value_is_a_number", '{"weight_map": {"a": 1}}'
    yield "idx05_empty", ""
    yield "idx05_bom", b'\xef\xbb\xbf{"weight_map": {"a": "model.safetensors"}}'
    yield "idx05_bom_only", b"\xef\xbb\xbf"
    yield "idx05_half", '{"weight_map": {"a": "model.saf'
    yield "idx06_other_names", '{"weight_map": {"a": "consolidated-00001-of-00003.safetensors"}}'
    yield "one_spelling", '{"weight_map": {"a": "./m.safetensors", "b": "sub//m.safetensors", "c": "x/./m"}}'
    for name, file in {"up": "../m", "up_inside": "a/../../m", "absolute": "/etc/m", "empty": "", "dot": ".",
                       "folder": "sub/", "nul": "m\\u0000n", "escape": "\\u001b[2J", "backslash": "..\\\\m"}.items():
        yield "path_" + name, '{"weight_map": {"a": "%s"}}' % file
    yield "key_twice", '{"weight_map": {"a": "x", "a": "y"}}'
    yield "key_twice_same", '{"weight_map": {"a": "x", "\\u0061": "./x"}}'
    yield "map_twice", '{"weight_map": {"a": "x"}, "weight_map": {"b": "y"}}'
    yield "size_is_text", '{"metadata": {"total_size": "12"}, "weight_map": {"a": "x"}}'
    yield "size_negative", '{"metadata": {"total_size": -1}, "weight_map": {"a": "x"}}'
    yield "metadata_is_a_list", '{"metadata": [], "weight_map": {"a": "x"}}'
    yield "not_utf8", b'{"weight_map": {"a": "\xff"}}'
    yield "deep", "[" * 1100 + "]" * 1100


def configs():
    fp8 = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}
    plain = {"architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16", "rms_norm_eps": 1e-06}

    def quantized(**changes):
        return json.dumps({**plain, "quantization_config": {**fp8, **changes}}, indent=2)

    skip = ["lm_head", "model.layers.0.mlp.gate", "re:.*norm", "model.layers.1.*"]
    yield "plain", json.dumps(plain, indent=2)
    yield "real_deepseek", quantized()
    yield "real_ue8m0", quantized(scale_fmt="ue8m0")
    yield "real_qwen", quantized(modules_to_not_convert=skip[:2])
    yield "real_minimax", quantized(fmt="float8_e4m3fn", modules_to_not_convert=["gate", "lm_head"])
    yield "real_devstral", quantized(activation_scheme="static", weight_block_size=None)
    yield "real_text_config", json.dumps({"text_config": {**plain, "quantization_config": fp8},
                                          "torch_dtype": "bfloat16"})
    yield "real_modelopt", json.dumps({"quantization": {"quant_algo": "FP8", "exclude_modules": skip}})
    for key in ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules"):
        yield "cfg03_" + key, quantized(**{key: skip})
    yield "cfg01_short_name", quantized(modules_to_not_convert=["linear_attn.in_proj_qkv"])
    yield "cfg02_prefix", quantized(modules_to_not_convert=["model.language_model.layers.0.mlp"])
    yield "cfg04_groups", json.dumps({**plain, "quantization_config": {
        "quant_method": "compressed-tensors", "ignore": ["lm_head"],
        "config_groups": {"FP8_DYNAMIC": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float"}}}}})
    yield "cfg13_method", quantized(quant_method="modelopt")
    for name, block in {"text": "128", "one": [128], "three": [1, 2, 3], "zero": [0, 128], "negative": [-1, 128],
                        "fraction": [128.5, 128], "huge": [2**63, 2**64], "object": {}}.items():
        yield "block_" + name, quantized(weight_block_size=block)
    yield "skip_of_numbers", quantized(modules_to_not_convert=[1, None, ["a"], "b"])
    yield "section_is_text", '{"quantization_config": "fp8", "quantization": []}'
    yield "section_is_null", '{"quantization_config": null, "text_config": null}'
    yield "python_literals", '{"a": NaN, "b": [Infinity, -Infinity], "torch_dtype": "NaN"}'
    yield "no_members", "{}"
    yield "no_members_but_space", " { \n } "
    yield "one_line", '{"torch_dtype":"bfloat16","a":{"b":{"b":1}},"quantization_config":{}}'
    yield "nested", '{"a": {"b": {"torch_dtype": 1, "b": [ ]} , "c": 0}, "b": {"b": {}}}'
    yield "members_twice", '{"b": 1, "a": {"b": {}}, "b": 2, "a": {"b": {"b": "}"}}, "b": 3}'
    yield "last_of_path_is_no_object", '{"text_config": {"b": 1}, "text_config": 5}'
    yield "strings_with_braces", r'{"a": {"b": {"x\"}": "{[\\"}}, "torch_dtype": "}\"," , "b": "\u007d"}'
    yield "key_with_escape", r'{"torch\u005fdtype": "x", "b": 1e400}'
    yield "numbers", '{"a": 1e-05, "b": 12345678901234567890123, "c": -0.0, "torch_dtype": 1E5}'
    yield "bom", b'\xef\xbb\xbf{"torch_dtype": "bfloat16"}'
    yield "nul", b'{"a": 1}\x00'
    yield "not_utf8", b'{"a": "\xff"}'
    yield "lone_surrogate", r'{"a": "\ud800"}'
    yield "list", "[1]"
    yield "empty", ""
    yield "half", '{"quantization_config": {"quant_method": "fp8"'
    yield "deep", '{"a":' + "[" * 2000 + "]" * 2000 + "}"


def chat_templates():
    golden = CORPUS.parent.parent / "tests" / "golden" / "chat_templates"
    for path in sorted((golden / "templates").glob("*.jinja")):
        yield path.stem, path.read_bytes()
    # The small ones together: one seed of a few hundred would be read over and over.
    snippets = [s["template"] for s in json.loads((golden / "snippets.json").read_text())["snippets"]]
    for i in range(0, len(snippets), 7):
        yield f"snippet_{i:03}", snippets[i]
    yield "not_utf8", b"\xff{{ 1 }}"
    yield "deep", "{{ " + "[" * 500
    yield "namespace_in_itself", "{% set n = namespace() %}{% set n.n = n %}{{ n.n.n is sameas n }}{{ n }}"
    yield "loop_in_itself", "{% set n = namespace() %}{% for i in [1] %}{% set n.l = loop %}{{ loop.changed(n) }}{% endfor %}{{ n.l.last }}"
    yield "loop_kept", ("{% set n = namespace(c=1, l=1) %}{% for i in range(200) %}{% for j in [1] %}{% set n.c = loop %}{% endfor %}"
                        "{% set x = n.c.changed(n.l) %}{% set x = n.c.changed(n.c) %}{% set n.l = n.c %}{% endfor %}")
    yield "macro_in_namespace", "{% set n = namespace() %}{% for i in [1] %}{% macro m() %}{{ i }}{{ n.m }}{% endmacro %}{% set n.m = m %}{% endfor %}{{ n.m() }}"


def tokenizers():
    vocab = {"a": 0, "b": 1, "c": 2, "ab": 3, "aa": 4, "aab": 5, "<unk>": 6, "\u2581": 7, "\u2581a": 8, "1": 9, "<0x0A>": 10}
    model = {"type": "BPE", "vocab": vocab, "merges": ["a b", ["a", "a"], ["a", "ab"], "\u2581 a"], "unk_token": "<unk>"}

    def document(**parts):
        return json.dumps({"version": "1.0", "model": {**model, **parts.pop("model", {})}, **parts})

    def sequence(key, *steps):
        return {"type": "Sequence", key: list(steps)}

    def split(pattern, behavior="Isolated", invert=False):
        return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}

    def replace(pattern, content):
        return {"type": "Replace", "pattern": {"String": pattern}, "content": content}

    def added(content, **flags):
        return {"id": 11, "content": content, "special": True, **flags}

    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                                         {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}}
    digits = {"type": "Digits", "individual_digits": True}
    yield "plain", document()
    yield "byte_level", document(pre_tokenizer=sequence("pretokenizers", digits, byte_level), decoder=byte_level,
                                 added_tokens=[added("<s>"), added("<|x|>", lstrip=True, rstrip=True)])
    yield "llama", document(
        normalizer=sequence("normalizers", {"type": "Prepend", "prepend": "\u2581"}, replace(" ", "\u2581")),
        post_processor=template, model={"byte_fallback": True, "fuse_unk": True},
        decoder=sequence("decoders", replace("\u2581", " "), {"type": "ByteFallback"}, {"type": "Fuse"},
                         {"type": "Strip", "content": " ", "start": 1, "stop": 1}))
    yield "metaspace", document(pre_tokenizer=metaspace, decoder=metaspace)
    yield "splits", document(pre_tokenizer=sequence(
        "pretokenizers", split("\\s+(?!\\S)|\\p{L}+"), split("[^\\S]", "Removed"), split("a", "MergedWithNext"),
        split("b", "MergedWithPrevious", True), split("c", "Contiguous"), split("", "Isolated"), {"type": "Punctuation"},
        {"type": "Whitespace"}, {"type": "WhitespaceSplit"}))
    yield "forms", document(normalizer=sequence("normalizers", *({"type": form} for form in (
        "NFC", "NFD", "NFKC", "NFKD", "Lowercase")), {"type": "Strip", "strip_left": True, "strip_right": True}))
    yield "affixes", document(model={"continuing_subword_prefix": "b", "end_of_word_suffix": "b", "merges": ["a bb"],
                                     "vocab": {**vocab, "bb": 20}})
    yield "ignore_merges", document(model={"ignore_merges": True, "merges": []})
    yield "added", document(normalizer={"type": "Lowercase"}, added_tokens=[
        added("aa", single_word=True), added("AB", normalized=True), added(" ", rstrip=True), added("aa", lstrip=True),
        added(""), added("\n\n")])
    yield "backtracking", document(pre_tokenizer=split("(?:(?:a|aa)+)+[cd]"))
    yield "empty_matches", document(normalizer={"type": "Replace", "pattern": {"Regex": ""}, "content": "ab"},
                                    decoder={"type": "Replace", "pattern": {"Regex": "x*"}, "content": "y"})
    yield "growth", document(normalizer=sequence("normalizers", *[replace("a", "a" * 200)] * 4))
    yield "id_huge", document(model={"vocab": {"a": 2**32 - 1}})
    yield "id_negative", document(model={"vocab": {"a": -1}})
    yield "id_twice", document(model={"vocab": {"a": 1, "b": 1}, "merges": []})
    yield "merge_unknown", document(model={"merges": ["a z"]})
    yield "merge_of_three", document(model={"merges": ["a b c"]})
    yield "unknown_missing", document(model={"unk_token": "missing"})
    yield "unigram", document(model={"type": "Unigram", "vocab": [["a", -1.0]]})
    yield "step_unknown", document(pre_tokenizer={"type": "BertPreTokenizer"})
    yield "regex_unknown", document(pre_tokenizer=split("[a&&b]"))
    yield "regex_broken", document(pre_tokenizer=split("(a"))
    yield "regex_deep", document(pre_tokenizer=split("(" * 500 + ")" * 500))
    nested = digits
    for _ in range(200):
        nested = sequence("pretokenizers", nested)
    yield "nested", document(pre_tokenizer=nested)
    yield "template_twice", document(post_processor={**template, "single": [{"Sequence": {"id": "A"}}] * 2})
    yield "deep", '{"model":' + "[" * 3000 + "]" * 3000 + "}"
    yield "not_utf8", b'{"model": "\xff"}'
    yield "nul_in_token", document(model={"vocab": {**vocab, "\0": 30}, "merges": []}, added_tokens=[added("\0")])
    yield "empty", ""
    yield "half", document()[:100]


def main():
    for target, seeds in {"safetensors_header": headers(), "index": indices(), "config": configs(),
                          "chat_template": chat_templates(), "tokenizer": tokenizers()}.items():
        directory = CORPUS / target
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in seeds:
            (directory / name).write_bytes(content.encode() if isinstance(content, str) else content)


if __name__ == "__main__":
    main()
