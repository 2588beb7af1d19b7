"""config.json files: a family's count is that of the real model, built small without memory."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgeline.catalog.hf_config import row_of
from ridgeline.catalog.models import model
from ridgeline.errors import CatalogError

SMALL = {
    "vocab_size": 512, "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 2, "max_position_embeddings": 256,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
LEFT_OUT = object()
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 96}
LATENT = {
    "q_lora_rank": 48, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
    "v_head_dim": 16, "n_routed_experts": 8, "n_shared_experts": 1, "first_k_dense_replace": 1,
    "num_key_value_heads": 8, "n_group": 2, "topk_group": 1,
}  # fmt: skip
FAMILIES = {
    "llama": ("LlamaForCausalLM", {}),
    "llama, tied": ("LlamaForCausalLM", {"tie_word_embeddings": True}),
    "llama, biases": ("LlamaForCausalLM", {"attention_bias": True, "mlp_bias": True}),
    "llama, one KV head": ("LlamaForCausalLM", {"num_key_value_heads": 1}),
    "mistral, sliding": ("MistralForCausalLM", {"sliding_window": 64}),
    "phi 3": ("Phi3ForCausalLM", {}),
    "phi 2": ("PhiForCausalLM", {"num_key_value_heads": 8}),
    "gpt 2": (
        "GPT2LMHeadModel",
        dict.fromkeys(["hidden_size", "num_hidden_layers", "num_attention_heads"], LEFT_OUT)
        | dict.fromkeys(["intermediate_size", "num_key_value_heads"], LEFT_OUT)
        | {"max_position_embeddings": LEFT_OUT}
        | {"n_embd": 128, "n_layer": 4, "n_head": 8, "n_positions": 64},
    ),
    "qwen 2": ("Qwen2ForCausalLM", {}),
    "qwen 2, tied": ("Qwen2ForCausalLM", {"tie_word_embeddings": True}),
    "qwen 3": ("Qwen3ForCausalLM", {"head_dim": 24}),
    "olmo 2": ("Olmo2ForCausalLM", {}),
    "granite": ("GraniteForCausalLM", {}),
    "gemma": ("GemmaForCausalLM", {"head_dim": 32}),
    "gemma 2": ("Gemma2ForCausalLM", {"head_dim": 32}),
    "gemma 3": ("Gemma3ForCausalLM", {"head_dim": 32, "num_hidden_layers": 7}),
    "glm": ("GlmForCausalLM", {"head_dim": 16, "attention_bias": True}),
    "glm 4": ("Glm4ForCausalLM", {"head_dim": 16, "attention_bias": True}),
    "mixtral": ("MixtralForCausalLM", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen 2 moe": (
        "Qwen2MoeForCausalLM",
        EXPERTS | {"num_experts": 4, "shared_expert_intermediate_size": 64},
    ),
    "qwen 3 moe": ("Qwen3MoeForCausalLM", EXPERTS | {"num_experts": 4, "head_dim": 24}),
    "qwen 3 moe, sparse": (
        "Qwen3MoeForCausalLM",
        EXPERTS | {"num_experts": 4, "decoder_sparse_step": 2, "mlp_only_layers": [1]},
    ),
    "qwen 3 next": (
        "Qwen3NextForCausalLM",
        EXPERTS
        | {"num_experts": 4, "head_dim": 32, "shared_expert_intermediate_size": 64}
        | {"linear_num_key_heads": 2, "linear_num_value_heads": 4}
        | {"linear_key_head_dim": 16, "linear_value_head_dim": 16},
    ),
    "gpt-oss": (
        "GptOssForCausalLM",
        {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16},
    ),
    "glm 4 moe": (
        "Glm4MoeForCausalLM",
        EXPERTS
        | {"n_routed_experts": 4, "n_shared_experts": 1, "head_dim": 16, "use_qk_norm": True}
        | {"first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "attention_bias": True},
    ),
    "minimax m2": (
        "MiniMaxM2ForCausalLM",
        {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16},
    ),
    "deepseek 2": ("DeepseekV2ForCausalLM", EXPERTS | LATENT),
    "deepseek 3": ("DeepseekV3ForCausalLM", EXPERTS | LATENT),
    "deepseek 3, queries not squeezed": (
        "DeepseekV3ForCausalLM",
        EXPERTS | LATENT | {"q_lora_rank": None},
    ),
    "glm 5": (
        "GlmMoeDsaForCausalLM",
        EXPERTS | LATENT | {"index_n_heads": 4, "index_head_dim": 16, "index_topk": 32},
    ),
    "llama 4": (
        "Llama4ForCausalLM",
        {"num_local_experts": 4, "num_experts_per_tok": 1, "intermediate_size_mlp": 224}
        | {"head_dim": 16, "interleave_moe_layer_step": 2},
    ),
}  # fmt: skip


def real_parameters(class_name: str, fields: dict) -> int:
    """What transformers builds from the same fields: no memory is taken."""
    import torch
    import transformers

    made = getattr(transformers, class_name)
    config = made.config_class(**fields)
    with torch.device("meta"):
        built = made(config)
    biases = {name: one for name, one in built.named_buffers() if "correction_bias" in name}
    kept = {id(one): one.numel() for one in [*built.parameters(), *biases.values()]}
    return sum(kept.values())


def written(tmp_path, fields, name="config.json"):
    path = tmp_path / name
    path.write_text(json.dumps(fields))
    return path


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_counted_as_the_real_model(tmp_path, family):
    class_name, more = FAMILIES[family]
    fields = {name: value for name, value in (SMALL | more).items() if value is not LEFT_OUT}
    row = row_of(written(tmp_path, {"architectures": [class_name], **fields}))
    assert row["params_total"] == real_parameters(class_name, fields)


@given(
    heads=st.sampled_from([1, 2, 4, 8]),
    groups=st.sampled_from([1, 2, 4]),
    width=st.sampled_from([8, 12, 16]),
    layers=st.integers(1, 3),
    experts=st.integers(2, 5),
    tied=st.booleans(),
    bias=st.booleans(),
    class_name=st.sampled_from(["LlamaForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM"]),
)
@settings(max_examples=25, deadline=None)
def test_whatever_its_sizes_a_model_is_counted_as_the_real_one(
    tmp_path_factory, heads, groups, width, layers, experts, tied, bias, class_name
):
    fields = SMALL | {
        "num_attention_heads": heads * groups, "num_key_value_heads": heads, "head_dim": width,
        "num_hidden_layers": layers, "tie_word_embeddings": tied, "attention_bias": bias,
        "num_experts": experts, "num_experts_per_tok": 2, "moe_intermediate_size": 40,
    }  # fmt: skip
    path = tmp_path_factory.mktemp("made")
    row = row_of(written(path, {"architectures": [class_name], **fields}))
    assert row["params_total"] == real_parameters(class_name, fields)


# Configs as published, by what the catalog says of the same model.

PUBLISHED = {
    "llama-3.1-70b": {
        "architectures": ["LlamaForCausalLM"], "hidden_size": 8192, "intermediate_size": 28672,
        "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
        "vocab_size": 128256, "max_position_embeddings": 131072, "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    },
    "qwen3-32b": {
        "architectures": ["Qwen3ForCausalLM"], "hidden_size": 5120, "intermediate_size": 25600,
        "num_hidden_layers": 64, "num_attention_heads": 64, "num_key_value_heads": 8,
        "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16", "sliding_window": None,
    },
    "qwen3-235b-a22b": {
        "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 4096, "intermediate_size": 12288,
        "num_hidden_layers": 94, "num_attention_heads": 64, "num_key_value_heads": 4,
        "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960,
        "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 1536,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "torch_dtype": "bfloat16",
    },
    "deepseek-v3": {
        "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 7168,
        "intermediate_size": 18432, "num_hidden_layers": 61, "num_attention_heads": 128,
        "num_key_value_heads": 128, "vocab_size": 129280, "max_position_embeddings": 163840,
        "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "n_routed_experts": 256, "num_experts_per_tok": 8,
        "n_shared_experts": 1, "moe_intermediate_size": 2048, "first_k_dense_replace": 3,
        "moe_layer_freq": 1, "torch_dtype": "bfloat16", "num_nextn_predict_layers": 1,
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    },
    "gpt-oss-120b": {
        "architectures": ["GptOssForCausalLM"], "hidden_size": 2880, "intermediate_size": 2880,
        "num_hidden_layers": 36, "num_attention_heads": 64, "num_key_value_heads": 8,
        "head_dim": 64, "vocab_size": 201088, "max_position_embeddings": 131072,
        "num_local_experts": 128, "num_experts_per_tok": 4, "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * 18, "torch_dtype": "bfloat16",
        "quantization_config": {
            "quant_method": "mxfp4",
            "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"],
        },
    },
    "gemma-3-27b": {
        "architectures": ["Gemma3ForConditionalGeneration"], "torch_dtype": "bfloat16",
        "text_config": {
            "hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 62,
            "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128,
            "vocab_size": 262208, "max_position_embeddings": 131072, "sliding_window": 1024,
        },
        "vision_config": {
            "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
            "patch_size": 14, "image_size": 896,
        },
    },
    "gemma-2-9b": {
        "architectures": ["Gemma2ForCausalLM"], "hidden_size": 3584, "intermediate_size": 14336,
        "num_hidden_layers": 42, "num_attention_heads": 16, "num_key_value_heads": 8,
        "head_dim": 256, "vocab_size": 256000, "max_position_embeddings": 8192,
        "sliding_window": 4096, "torch_dtype": "bfloat16",
    },
    "llama-4-maverick": {
        "architectures": ["Llama4ForConditionalGeneration"], "torch_dtype": "bfloat16",
        "text_config": {
            "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
            "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8,
            "head_dim": 128, "vocab_size": 202048, "max_position_embeddings": 1048576,
            "num_local_experts": 128, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2,
            "attention_chunk_size": 8192,
        },
    },
    "qwen3-next-80b-a3b": {
        "architectures": ["Qwen3NextForCausalLM"], "hidden_size": 2048, "intermediate_size": 5120,
        "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2,
        "head_dim": 256, "vocab_size": 151936, "max_position_embeddings": 262144,
        "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512, "linear_num_key_heads": 16,
        "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4, "full_attention_interval": 4, "torch_dtype": "bfloat16",
    },
    "kimi-k2.5": {
        "architectures": ["KimiK25ForConditionalGeneration"], "num_hidden_layers": 61,
        "hidden_size": 7168, "num_attention_heads": 64, "num_key_value_heads": 64,
        "intermediate_size": 18432, "vocab_size": 163840, "max_position_embeddings": 262144,
        "n_routed_experts": 384, "n_shared_experts": 1, "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048, "first_k_dense_replace": 1, "kv_lora_rank": 512,
        "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "torch_dtype": "bfloat16",
        "quantization_config": {
            "quant_method": "compressed-tensors", "ignore": ["re:.*self_attn.*", "lm_head"],
            "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32}}},
        },
    },
    "mistral-7b-v0.1": {
        "architectures": ["MistralForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "vocab_size": 32000, "max_position_embeddings": 32768, "sliding_window": 4096,
        "torch_dtype": "bfloat16",
    },
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_config_gives_the_model_of_the_catalog(tmp_path, name):
    read, ours = model(str(written(tmp_path, PUBLISHED[name]))), model(name)
    for value in ("params", "active_params", "layers", "head_dim", "context_tokens"):
        assert getattr(read, value).value == getattr(ours, value).value, value
    for context in (1, 1000, 200_000):
        assert read.cache_bytes(context).value == ours.cache_bytes(context).value
        assert read.prefill_flop(context).value == ours.prefill_flop(context).value
    assert read.weights_bytes("native").value == ours.weights_bytes("native").value


# What a config says of itself, and what is refused.

LLAMA = {"architectures": ["LlamaForCausalLM"], **SMALL}


def test_a_row_is_named_after_its_address_its_folder_or_by_hand(tmp_path):
    folder = tmp_path / "My-Model"
    folder.mkdir()
    assert row_of(written(folder, LLAMA))["id"] == "my-model"
    assert row_of(written(folder, LLAMA), named="Other")["id"] == "other"
    assert row_of(written(folder, LLAMA, "tiny.json"))["id"] == "tiny"
    addressed = row_of(written(folder, LLAMA | {"_name_or_path": "me/Tiny-1B"}))
    assert (addressed["id"], addressed["hub"]) == ("tiny-1b", "me/Tiny-1B")
    assert "hub" not in row_of(written(folder, LLAMA | {"_name_or_path": "/data/x"}))


def test_a_row_says_where_and_when_it_was_read(tmp_path):
    path = written(tmp_path, LLAMA)
    assert row_of(path)["source"] == str(path)
    assert row_of(path)["read_on"]
    assert row_of(path, source="the hub", read_on="2026-11-30")["source"] == "the hub"


@pytest.mark.parametrize(
    ("quantised", "types"),
    [
        ({"quant_method": "fp8"}, ("fp8", "bf16", "fp8")),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, ("int4", "bf16", "int4")),
        ({"quant_method": "awq", "bits": 4, "group_size": 32}, ("int4-g32", "bf16", "int4-g32")),
        ({"quant_method": "gptq", "bits": 8}, ("int8", "bf16", "int8")),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, ("int4", "bf16", "int4")),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, ("nvfp4", "bf16", "nvfp4")),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, ("fp8", "bf16", "fp8")),
        ({"quant_method": "mxfp4"}, ("mxfp4", "bf16", "bf16")),
    ],
)
def test_quantised_weights_keep_the_type_of_what_is_not(tmp_path, quantised, types):
    row = row_of(written(tmp_path, LLAMA | {"quantization_config": quantised}))
    assert tuple(row["native_dtypes"].values()) == types


def test_without_a_name_plain_fields_are_taken_as_they_are(tmp_path):
    row = row_of(written(tmp_path, SMALL))
    assert row["params_total"] == row_of(written(tmp_path, LLAMA))["params_total"]


def test_a_family_is_known_by_its_type_too(tmp_path):
    row = row_of(written(tmp_path, SMALL | {"model_type": "qwen3", "head_dim": 24}))
    assert row["attention"]["qk_norm"] == "per_head"


@pytest.mark.parametrize(
    ("changes", "where", "problem"),
    [
        ({"architectures": ["MambaForCausalLM"]}, "architectures", '"MambaForCausalLM" is not'),
        ({"hidden_size": None}, "config.json", "needs hidden_size or n_embd or d_model"),
        (
            {"hidden_size": None, "num_hidden_layers": None, "vocab_size": None},
            "config.json",
            "num_hidden_layers or n_layer or num_layers, hidden_size or n_embd or d_model, vocab",
        ),
        ({"intermediate_size": None}, "config.json", "needs intermediate_size"),
        ({"hidden_size": "128"}, "hidden_size", "'128' is no number"),
        ({"hidden_size": 128.5}, "hidden_size", "128.5 is no number"),
        ({"vocab_size": 0}, "vocab_size", "0 is no number"),
        ({"vocab_size": True}, "vocab_size", "True is no number"),
        ({"num_attention_heads": 7}, "head_dim", "7 heads do not divide 128"),
        ({"torch_dtype": "int3"}, "torch_dtype", '"int3" is not known'),
        (
            {"quantization_config": {"quant_method": "quip", "bits": 2}},
            "quantization_config",
            '"quip" with 2 bits',
        ),
        (
            {"architectures": ["DeepseekV3ForCausalLM"]},
            "config.json",
            "kv_lora_rank, qk_rope_head_dim, qk_nope_head_dim, v_head_dim, n_routed_experts",
        ),
        (
            {
                "architectures": ["DeepseekV3ForCausalLM"],
                **EXPERTS,
                **LATENT,
                "q_lora_rank": LEFT_OUT,
            },
            "q_lora_rank",
            "squeezed",
        ),
        ({"architectures": ["MixtralForCausalLM"]}, "config.json", "num_local_experts"),
        ({"layer_types": 7}, "layer_types", "7 is not a list"),
        ({"layer_types": ["full_attention", "bogus"]}, "layer_types", "'bogus' is no kind"),
        ({"layer_types": ["full_attention"]}, "layer_types", "has 1 for"),
        ({"num_key_value_heads": 3}, "num_key_value_heads", "3 do not divide"),
        ({"num_hidden_layers": 10**26}, "num_hidden_layers", "too many"),
        ({"num_hidden_layers": 10_001}, "num_hidden_layers", "too many"),
        ({"hidden_size": 10**12}, "hidden_size", "too many"),
        ({"intermediate_size": -5}, "intermediate_size", "-5 is no size"),
        ({"head_dim": "64"}, "head_dim", "'64' is not a whole number"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings", "'yes' is not true or false"),
        ({"torch_dtype": ["bf16"]}, "torch_dtype", "['bf16'] is not text"),
        ({"architectures": 7}, "config.json", "of another type"),
        ({"quantization_config": [1]}, "config.json", "of another type"),
        (
            {
                "architectures": ["MixtralForCausalLM"],
                "num_local_experts": 4,
                "num_experts_per_tok": 5,
            },
            "num_experts_per_tok",
            "5 of 4 experts",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(tmp_path, changes, where, problem):
    fields = {name: value for name, value in (LLAMA | changes).items() if value is not LEFT_OUT}
    with pytest.raises(CatalogError) as raised:
        row_of(written(tmp_path, fields))
    assert problem in raised.value.problem
    assert where in raised.value.where
    assert raised.value.remedy


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "No such file"),
        ("{", "it is no JSON"),
        ("[1]", "holds no fields"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        (b"\xff\xfe{}", "not UTF-8"),
        (f'{{"num_hidden_layers": {"9" * 6000}}}', "6000 digits"),
    ],
    ids=lambda case: str(case)[:12],
)
def test_a_file_that_is_no_config_is_refused(tmp_path, text, problem):
    path = tmp_path / "config.json"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(CatalogError, match=problem):
        model(str(path))


@pytest.mark.parametrize("named", ['""', "a b/c", "-x", "x.json", "é"])
def test_a_name_that_nobody_can_type_is_refused(tmp_path, named):
    with pytest.raises(CatalogError, match="no name of a model") as raised:
        row_of(written(tmp_path, LLAMA), named=named)
    assert raised.value.remedy


def test_a_topic_takes_the_path_of_a_config_for_a_model(tmp_path):
    from ridgeline.topics import Parameter, typed

    kind = Parameter("model", "llama-3.1-70b", "")
    path = str(written(tmp_path, PUBLISHED["qwen3-32b"]))
    assert typed(kind, path, is_given=True).kv_bytes_per_token().value == 262_144
