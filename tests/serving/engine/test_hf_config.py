from typing import Any

import pytest

from ridgeline.errors import ModelError
from ridgeline.serving.engine.architecture import RopeScaling
from ridgeline.serving.engine.hf_config import read_architecture

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 300,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SCALING = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def read(generation: dict[str, Any] | None = None, *, has_head: bool = True, **changes: Any) -> Any:
    config = {**LLAMA, **changes}
    return read_architecture(config, generation or {}, has_head=has_head, where="config.json")


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **SCALING}},  # version 5
        {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **SCALING}},  # version 4
        {"rope_theta": 5e5, "rope_scaling": {"type": "llama3", **SCALING}},
    ],
)
def test_llama3_scaling_is_read_in_every_spelling(rope: dict[str, Any]) -> None:
    architecture = read(**rope)
    assert architecture.rope_theta == 5e5
    assert architecture.rope_scaling == RopeScaling(8.0, 1.0, 4.0, 8192)


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_theta": 2e4},
        {"rope_theta": 2e4, "rope_scaling": None},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 2e4}},
    ],
)
def test_no_scaling_is_read_in_every_spelling(rope: dict[str, Any]) -> None:
    architecture = read(**rope)
    assert (architecture.rope_theta, architecture.rope_scaling) == (2e4, None)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model_type": "gemma3"}, "'gemma3' is not one we can run"),
        ({"model_type": None}, "None is not one we can run"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "SequenceClassification"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "scaling 'yarn'"),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, "scaling 'linear'"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "rotary scaling"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "llama3 rotary scaling"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"num_attention_heads": None}, "num_attention_heads is None"),
        ({"num_hidden_layers": "two"}, "num_hidden_layers is 'two'"),
    ],
)
def test_what_would_change_the_numbers_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ModelError, match=says):
        read(**changes)


@pytest.mark.parametrize(
    ("changes", "context"),
    [
        ({"model_type": "mistral", "sliding_window": 128}, 128),
        ({"model_type": "mistral", "sliding_window": 4096}, 512),
        ({"model_type": "mistral", "sliding_window": None}, 512),
        ({"model_type": "qwen2", "sliding_window": 128, "use_sliding_window": False}, 512),
        ({"model_type": "qwen2", "sliding_window": 128, "use_sliding_window": True}, 128),
    ],
)
def test_context_ends_where_a_window_would_begin_to_slide(
    changes: dict[str, Any], context: int
) -> None:
    assert read(**changes).context == context


@pytest.mark.parametrize(
    ("generation", "config_eos", "ends"),
    [
        ({"eos_token_id": [7, 8]}, 2, (7, 8)),
        ({"eos_token_id": 7}, 2, (7,)),
        ({}, 2, (2,)),
        ({}, [2, 3], (2, 3)),
        ({}, None, ()),
    ],
)
def test_generation_config_has_the_last_word_on_ends(
    generation: dict[str, Any], config_eos: Any, ends: tuple[int, ...]
) -> None:
    assert read(generation, eos_token_id=config_eos).eos_ids == ends


def test_a_model_without_head_weights_is_tied_whatever_its_config_says() -> None:
    assert read(has_head=False).tied_head
    assert not read().tied_head
    assert read(tie_word_embeddings=True).tied_head


def test_head_size_and_kv_heads_have_their_familys_defaults() -> None:
    assert read(num_key_value_heads=None).kv_heads == 4
    assert read(head_dim=None).head_dim == 16
    assert read(head_dim=32).head_dim == 32
    assert read(model_type="qwen3").head_dim == 128
