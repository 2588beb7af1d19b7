"""What the fields of a Hugging Face config.json mean: families with experts, and the table of all.

A new architecture is one function here or in `hf_dense`, and its names in the table.
"""

from collections.abc import Callable
from typing import Any

from ridgeline.catalog.hf_dense import (
    NEEDED,
    Config,
    Part,
    attention_part,
    gemma,
    gemma2,
    gemma3,
    glm,
    gpt2,
    held,
    llama,
    mixed,
    olmo2,
    phi,
    plain,
    qwen2,
    qwen3,
)
from ridgeline.errors import CatalogError


def architecture(config: Config) -> Part:
    """The architecture part of the row. Raises CatalogError for a family that is not known."""
    family = _FAMILIES.get(config.class_name)
    if family is None and not config.class_name:
        family = llama  # no name at all: what its fields say, in the plain shape
    if family is None:
        known = sorted(name for name in _FAMILIES if name[0].isupper())
        told = f'the architecture "{config.class_name}" is not known'
        remedy = f"one of {', '.join(known)}; or write a row by hand"
        raise CatalogError(told, where=f"{config.where}, architectures", remedy=remedy)
    config.check(*NEEDED)
    return family(config)


def _moe(config: Config, row: Part, experts: int, *, layers: int, **known: Any) -> Part:
    wide = config.get("moe_intermediate_size") or row["intermediate"]
    used = config.need("num_experts_per_tok", "experts_per_token", "moe_topk")
    if used > experts:
        told = f"{used} of {experts} experts"
        raise config.complaint("num_experts_per_tok", told, "as many as there are, or fewer")
    return {
        "experts": experts,
        "top_k": used,
        "shared_experts": config.get("n_shared_experts"),
        "expert_intermediate": wide,
        "layers": layers,
        "first_dense_layers": 0,
        **{name: value for name, value in known.items() if value},
    }


def _mixtral(config: Config) -> Part:
    config.check(("num_local_experts",), ("num_experts_per_tok",))
    row = llama(config)
    experts, wide = config.need("num_local_experts"), row["intermediate"]
    moe = _moe(config, row, experts, layers=row["layers"], expert_intermediate=wide)
    return row | {"moe": moe}


def _minimax(config: Config) -> Part:
    row = _mixtral(config)
    norm = "full" if config.get("use_qk_norm", True) else ""
    attention = row["attention"] | held("qk_norm", norm)
    bias = bool(config.get("use_routing_bias", True))
    return row | {"attention": attention, "moe": row["moe"] | held("router_bias", bias)}


def _qwen_moe(config: Config) -> Part:
    """Qwen2 and Qwen3 with experts in every `decoder_sparse_step`-th layer."""
    config.check(("num_experts",), ("num_experts_per_tok",), ("moe_intermediate_size",))
    row = qwen3(config) if "3" in config.class_name else qwen2(config)
    step, dense = config.get("decoder_sparse_step", 1), set(config.get("mlp_only_layers", []))
    sparse = [at for at in range(row["layers"]) if (at + 1) % step == 0 and at not in dense]
    shared = config.get("shared_expert_intermediate_size")
    known = {"shared_experts": 1, "shared_intermediate": shared, "shared_gate": True}
    moe = _moe(
        config,
        row,
        config.need("num_experts"),
        layers=len(sparse),
        **(known if shared else {}),
    )
    return row | {"moe": moe}


def _qwen_hybrid(config: Config) -> Part:
    """Qwen3-Next and Qwen3.5: three layers of gated delta net to one of gated attention."""
    config.check(("linear_num_value_heads",), ("linear_num_key_heads",), ("num_experts",))
    row = plain(config, head_dim=256)
    attention = attention_part(row, qk_norm="per_head", output_gate=True) | {
        "linear_key_heads": config.need("linear_num_key_heads"),
        "linear_key_dim": config.get("linear_key_head_dim", 128),
        "linear_value_heads": config.need("linear_num_value_heads"),
        "linear_value_dim": config.get("linear_value_head_dim", 128),
        "conv_kernel": config.get("linear_conv_kernel_dim", 4),
    }
    every = config.get("full_attention_interval", 4)
    attention = mixed(config, row, attention, capped="gated_deltanet", every=every)
    shared = config.get("shared_expert_intermediate_size")
    known = {"shared_experts": 1, "shared_intermediate": shared, "shared_gate": True}
    moe = _moe(config, row, config.need("num_experts"), layers=row["layers"], **known)
    return row | {"attention": attention | {"kind": "hybrid"}, "moe": moe}


def _gpt_oss(config: Config) -> Part:
    config.check(("num_local_experts", "num_experts"))
    row = plain(config, head_dim=64)
    attention = attention_part(row, qkv_bias=True, o_bias=True, sinks=True) | {
        "window": config.get("sliding_window", 128)
    }
    attention = mixed(config, row, attention, capped="sliding", every=2)
    experts = config.need("num_local_experts", "num_experts")
    moe = _moe(config, row, experts, layers=row["layers"], expert_bias=True, router_bias=True)
    return row | {"attention": attention, "moe": moe}


def _glm_moe(config: Config) -> Part:
    config.check(("n_routed_experts",), ("num_experts_per_tok",), ("moe_intermediate_size",))
    row = plain(config, head_dim=128)
    norm = "per_head" if config.get("use_qk_norm") else ""
    attention = attention_part(row, qkv_bias=bool(config.get("attention_bias")), qk_norm=norm)
    return row | {"attention": attention, "moe": _first_dense(config, row, bias=True)}


def _first_dense(config: Config, row: Part, *, bias: bool) -> Part:
    """Experts in all layers but the first few."""
    first = config.get("first_k_dense_replace", 0)
    if first > row["layers"]:
        told = f"{first} of {row['layers']} layers"
        raise config.complaint("first_k_dense_replace", told, "fewer than layers")
    layers = (row["layers"] - first) // config.get("moe_layer_freq", 1)
    experts = config.need("n_routed_experts")
    moe = _moe(config, row, experts, layers=layers, router_bias=bias)
    return moe | {"first_dense_layers": first}


def _deepseek(config: Config) -> Part:
    """DeepSeek V2 and V3, Kimi K2, GLM-5: latent attention, with an indexer where there is one."""
    latents = ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
    config.check(*((name,) for name in (*latents, "n_routed_experts", "moe_intermediate_size")))
    if "q_lora_rank" not in config.values:
        told = "it must say whether queries are squeezed"
        raise config.complaint("q_lora_rank", told, "a number, or null where they are not")
    row = plain(config, head_dim=1)
    rope, nope = config.need("qk_rope_head_dim"), config.need("qk_nope_head_dim")
    row["head_dim"] = rope + nope
    attention = {
        "kind": "mla",
        **held("q_lora_rank", config.get("q_lora_rank")),
        "kv_lora_rank": config.need("kv_lora_rank"),
        "qk_nope_dim": nope,
        "qk_rope_dim": rope,
        "v_head_dim": config.need("v_head_dim"),
    }
    if config.get("index_n_heads"):
        names = {"heads": "index_n_heads", "dim": "index_head_dim", "top_k": "index_topk"}
        attention["indexer"] = {ours: config.need(theirs) for ours, theirs in names.items()}
    has_bias = "V2" not in config.class_name and config.class_name != "deepseek_v2"
    return row | {"attention": attention, "moe": _first_dense(config, row, bias=has_bias)}


def _llama4(config: Config) -> Part:
    config.check(("num_local_experts",), ("intermediate_size_mlp",))
    row = plain(config, head_dim=128)
    wide = row["intermediate"]
    row["intermediate"] = config.need("intermediate_size_mlp")
    attention = attention_part(row) | {"window": config.get("attention_chunk_size", 8192)}
    every = config.get("no_rope_layer_interval", 4)
    attention = mixed(config, row, attention, capped="chunked", every=every)
    layers = row["layers"] // config.get("interleave_moe_layer_step", 1)
    known = {"shared_experts": 1, "expert_intermediate": wide}
    moe = _moe(config, row, config.need("num_local_experts"), layers=layers, **known)
    return row | {"attention": attention, "moe": moe}


_FAMILIES: dict[str, Callable[[Config], Part]] = {
    "LlamaForCausalLM": llama, "llama": llama,
    "MistralForCausalLM": llama, "mistral": llama,
    "Phi3ForCausalLM": llama, "phi3": llama,
    "GraniteForCausalLM": llama, "granite": llama,
    "SmolLM3ForCausalLM": llama, "smollm3": llama,
    "Olmo2ForCausalLM": olmo2, "olmo2": olmo2,
    "Qwen2ForCausalLM": qwen2, "qwen2": qwen2,
    "Qwen3ForCausalLM": qwen3, "qwen3": qwen3,
    "GemmaForCausalLM": gemma, "gemma": gemma,
    "Gemma2ForCausalLM": gemma2, "gemma2": gemma2,
    "Gemma3ForCausalLM": gemma3, "gemma3_text": gemma3,
    "Gemma3ForConditionalGeneration": gemma3, "gemma3": gemma3,
    "PhiForCausalLM": phi, "phi": phi,
    "GPT2LMHeadModel": gpt2, "gpt2": gpt2,
    "GlmForCausalLM": glm, "glm": glm,
    "Glm4ForCausalLM": glm, "glm4": glm,
    "MixtralForCausalLM": _mixtral, "mixtral": _mixtral,
    "MiniMaxM2ForCausalLM": _minimax, "minimax_m2": _minimax,
    "Qwen2MoeForCausalLM": _qwen_moe, "qwen2_moe": _qwen_moe,
    "Qwen3MoeForCausalLM": _qwen_moe, "qwen3_moe": _qwen_moe,
    "Qwen3NextForCausalLM": _qwen_hybrid, "qwen3_next": _qwen_hybrid,
    "Qwen3_5MoeForConditionalGeneration": _qwen_hybrid, "qwen3_5_moe": _qwen_hybrid,
    "GptOssForCausalLM": _gpt_oss, "gpt_oss": _gpt_oss,
    "Glm4MoeForCausalLM": _glm_moe, "glm4_moe": _glm_moe,
    "GlmMoeDsaForCausalLM": _deepseek, "glm_moe_dsa": _deepseek,
    "DeepseekV2ForCausalLM": _deepseek, "deepseek_v2": _deepseek,
    "DeepseekV3ForCausalLM": _deepseek, "deepseek_v3": _deepseek,
    "DeepseekV32ForCausalLM": _deepseek, "deepseek_v32": _deepseek,
    "KimiK25ForConditionalGeneration": _deepseek, "kimi_k2": _deepseek,
    "Llama4ForCausalLM": _llama4, "llama4_text": _llama4,
    "Llama4ForConditionalGeneration": _llama4, "llama4": _llama4,
}  # fmt: skip
