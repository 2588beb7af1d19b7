"""Logits equal transformers' on the same weights, for every family and in both dtypes."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from default_model import SMOLLM2, needs_smollm2
from tiny_models import FAMILIES, tiny_transformer, write_tiny

from ridgeline.errors import ModelError
from ridgeline.serving.engine.architecture import Architecture
from ridgeline.serving.engine.cache import Arena
from ridgeline.serving.engine.model import Model, cache_dtype
from ridgeline.serving.engine.model_files import open_model
from ridgeline.serving.engine.runner import Rows, Runner, use_threads

FP32_TOLERANCE = 5e-5
"""Absolute, on logits of up to 5: sums in another order (5e-6 was measured)."""
BF16_TOLERANCE = 0.02
"""Root of the mean square difference over that of the logits: bf16 keeps eight bits (0.016 was
measured, and 0.017 for transformers itself in bf16)."""


@pytest.fixture(autouse=True, scope="module", params=[None, "portable"])
def _kernels(request) -> Iterator[None]:
    """The fastest kernels of this machine, and those that every machine has; with one thread.

    Tiny products gain nothing from threads, and on a busy machine they wait for each other.
    """
    before = torch.get_num_threads()
    use_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        if request.param:
            patch.setenv("RIDGELINE_KERNELS", request.param)
        yield
    use_threads(before)


def runner_of(path: Path, dtype: str, *, blocks: int = 64) -> Runner:
    files = open_model(path)
    kind = cache_dtype(dtype)
    model = Model(files.architecture, files.tensors(dtype), dtype, cache_dtype=kind)
    return Runner(model, Arena.of_blocks(files.architecture, kind, blocks, 16))


def every_logit(runner: Runner, tokens: list[int]) -> torch.Tensor:
    """Logits after each token, one step a token."""
    table = list(range(-(-len(tokens) // 16)))
    steps = [Rows(tokens[i : i + 1], i, table, samples=True) for i in range(len(tokens))]
    return torch.cat([torch.tensor(runner.run([step], [])) for step in steps])


def last_logits(runner: Runner, tokens: list[int]) -> torch.Tensor:
    table = list(range(-(-len(tokens) // 16)))
    return torch.tensor(runner.run([Rows(tokens, 0, table, samples=True)], [])[0])


@cache
def prompt(length: int) -> tuple[int, ...]:
    return tuple(np.random.default_rng(length).integers(0, 300, length).tolist())


@pytest.fixture(scope="module", params=list(FAMILIES))
def family(request, tmp_path_factory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp(request.param)
    write_tiny(folder / "model", request.param)
    return folder / "model", tiny_transformer(request.param)


def reference(model: Any, tokens: tuple[int, ...]) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([tokens])).logits[0]
    return logits


@pytest.mark.parametrize("length", [1, 15, 100, 300])
def test_fp32_logits_of_a_prompt_equal_transformers(family, length):
    path, model = family
    got = last_logits(runner_of(path, "fp32"), list(prompt(length)))
    assert (got - reference(model, prompt(length))[-1]).abs().max() <= FP32_TOLERANCE


def test_fp32_logits_of_each_decode_step_equal_transformers(family):
    path, model = family
    got = every_logit(runner_of(path, "fp32"), list(prompt(70)))
    assert (got - reference(model, prompt(70))).abs().max() <= FP32_TOLERANCE


def test_bf16_logits_stay_near_transformers_fp32(family):
    path, model = family
    got = every_logit(runner_of(path, "bf16"), list(prompt(70)))
    expected = reference(model, prompt(70))
    wrong = (got - expected).square().mean().sqrt() / expected.square().mean().sqrt()
    assert wrong <= BF16_TOLERANCE


@pytest.mark.parametrize("dtype", ["bf16", "int8"])
def test_logits_are_not_rounded(tmp_path, dtype):
    """Logits of 16 would have steps of 0.125 in bf16: the largest two would often tie."""
    write_tiny(tmp_path / "model", "llama")
    files = open_model(tmp_path / "model")
    model = Model(files.architecture, files.tensors("bf16"), dtype, cache_dtype="bf16")
    runner = Runner(model, Arena.of_blocks(files.architecture, "bf16", 8, 16))
    logits = last_logits(runner, list(prompt(30)))
    assert not torch.equal(logits, logits.bfloat16().float())


def test_an_int8_cache_is_for_models_that_compute_in_fewer_bits():
    assert [cache_dtype(d) for d in ("fp32", "bf16", "int8")] == ["fp32", "bf16", "bf16"]
    assert cache_dtype("bf16", "int8") == "int8"
    with pytest.raises(ModelError, match="keeps keys and values in fp32"):
        cache_dtype("fp32", "int8")


def test_heads_that_no_kernel_can_run_are_refused_with_a_remedy():
    shape = Architecture("llama", 0, 24, 2, 2, 12, 16, 16, 64, 1e4, 1e-5)
    tensors = {"model.embed_tokens.weight": torch.ones(16, 24), "model.norm.weight": torch.ones(24)}
    with pytest.raises(ModelError, match="16") as refused:
        Model(shape, tensors, "fp32", cache_dtype="fp32")
    assert refused.value.remedy


def test_no_wanted_row_gives_no_logits_but_fills_the_cache(family):
    path, _ = family
    runner = runner_of(path, "fp32")
    tokens = list(prompt(40))
    nothing = runner.run([Rows(tokens[:39], 0, [0, 1, 2], samples=False)], [])
    assert nothing.shape == (0, 300)
    got = torch.tensor(runner.run([Rows(tokens[39:], 39, [0, 1, 2], samples=True)], [])[0])
    whole = last_logits(runner_of(path, "fp32"), tokens)
    assert (got - whole).abs().max() <= 1e-4


@needs_smollm2
def test_smollm2_logits_equal_transformers_on_the_dequantised_weights():
    from transformers import LlamaConfig, LlamaForCausalLM

    assert SMOLLM2 is not None
    files = open_model(SMOLLM2)
    a, weights = files.architecture, dict(files.tensors("fp32"))
    config = LlamaConfig(
        vocab_size=a.vocab, hidden_size=a.hidden, intermediate_size=a.ffn, head_dim=a.head_dim,
        num_hidden_layers=a.layers, num_attention_heads=a.heads, num_key_value_heads=a.kv_heads,
        max_position_embeddings=a.context, rms_norm_eps=a.rms_eps, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": a.rope_theta},
    )  # fmt: skip
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    weights.setdefault("lm_head.weight", weights["model.embed_tokens.weight"])
    model.load_state_dict(weights, assign=True)
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    tokens = tuple(files.tokenizer.encode("The capital of France is Paris, and that of Italy is"))
    expected = reference(model.eval(), tokens)
    for dtype in ("fp32", "bf16"):
        model_here = Model(a, files.tensors(dtype), dtype, cache_dtype=dtype)
        runner = Runner(model_here, Arena.of_blocks(a, dtype, 8, 16))
        got = every_logit(runner, list(tokens))
        if dtype == "fp32":
            assert (got - expected).abs().max() <= 1e-3
        assert (got.argmax(-1) == expected.argmax(-1)).float().mean() >= 0.9
        assert files.tokenizer.decode([int(got[-1].argmax())]).strip() == "Rome"
