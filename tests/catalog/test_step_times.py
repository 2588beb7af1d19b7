"""Fitted step times: which row is taken, and which is refused."""

from typing import Any

import pytest

from ridgeline.catalog.rows import overlay
from ridgeline.catalog.step_times import KEY, step_coefficients
from ridgeline.errors import CatalogError
from ridgeline.physics.step_time import NAMES

WORDS = {
    "dtype": "bf16",
    "version": "1.0",
    "model": "llama-3.1-8b",
    "accelerator": "h100-sxm",
    "engine": "vllm",
}


def row(**changes: Any) -> dict[str, Any]:
    one = {"value": 0.5, "low": 0.4, "high": 0.6}
    return {
        "id": "mine",
        **WORDS,
        "coefficients": dict.fromkeys(NAMES, one),
        "points": 3,
        "median_error": 0.05,
        "source": "a test",
        "read_on": "2026-11-30",
    } | changes


def test_the_words_of_a_row_are_those_of_the_key():
    assert tuple(WORDS) == KEY


def test_the_most_specific_row_is_taken():
    with overlay({"step_times": [row()]}):
        exact = WORDS | {"version": "2.0"}
        assert step_coefficients("dense", **WORDS).id == "mine"
        assert step_coefficients("dense", **exact).id != "mine"
        assert step_coefficients("moe", engine="vllm").id != "mine"


def test_a_coefficient_comes_with_its_interval_and_its_source():
    with overlay({"step_times": [row()]}):
        fitted = step_coefficients("dense", **WORDS)
    one = getattr(fitted.coefficients, NAMES[0])
    assert (one.value, one.interval, one.source) == (0.5, (0.4, 0.6), "a test")
    assert (fitted.points, fitted.median_error) == (3, 0.05)


@pytest.mark.parametrize(
    "change", [{"coefficients": {"bandwidth_share": {"value": 1}}}, {"colour": "red"}]
)
def test_a_row_with_a_coefficient_too_few_or_unknown_is_refused(change: dict[str, Any]):
    with pytest.raises(CatalogError), overlay({"step_times": [row(**change)]}):
        step_coefficients("dense", **WORDS)


def test_what_is_fitted_for_nobody_is_told_with_the_remedy():
    with pytest.raises(CatalogError, match="no step time is fitted") as caught:
        step_coefficients("neither")
    assert "calibrate" in caught.value.remedy
