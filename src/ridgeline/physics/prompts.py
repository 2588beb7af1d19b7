"""Prompts: how many tokens fit a budget of arithmetic, and which bandwidth beats recomputing."""

from math import inf

from ridgeline.physics.law import law
from ridgeline.quantity import Number, choose, largest, sqrt


@law
def affordable_tokens(budget_flop: Number, forward_flop_per_token: Number) -> Number:
    """Prompt tokens that a budget allows, attention scores apart.

    Source: Kaplan et al. 2020, 2N a token.
    """
    return budget_flop / forward_flop_per_token


@law
def affordable_causal_tokens(
    budget_flop: Number, forward_flop_per_token: Number, attention_flop_per_token_token: Number
) -> Number:
    """Prompt tokens that a budget allows where attention grows with their square.

    The positive root of a s^2 + b s = budget, written so that a small `a` loses no digits.

    Source: PaLM appendix B, 2022.
    """
    linear = forward_flop_per_token
    root = sqrt(linear**2 + 4 * attention_flop_per_token_token * budget_flop)
    return 2 * budget_flop / (linear + root)


@law
def break_even_bytes_per_s(cache_bytes: Number, recompute_s: Number) -> Number:
    """Bandwidth above which loading a cache is faster than computing it again.

    Source: bytes over the time of a prefill.
    """
    return cache_bytes / recompute_s


@law
def prefill_queue_s(rate_hz: Number, service_s: Number) -> Number:
    """Mean wait behind other prompts that arrive at random and take equally long.

    Without end where prompts arrive faster than they are done.

    Source: M/D/1 queue, Pollaczek-Khinchine.
    """
    busy = rate_hz * service_s
    wait = busy * service_s / (2 * (1 - busy))
    return choose(busy < 1, wait, service_s * inf, why="less than fully busy")


@law
def interfered_s(step_s: Number, prefill_share: Number) -> Number:
    """A decode step where prompts take a share of the same device's time.

    Source: processor sharing; DistServe 2024 on the interference of both phases.
    """
    return choose(
        prefill_share < 1, step_s / (1 - prefill_share), step_s * inf, why="prompts leave time"
    )


@law
def split_break_even_hz(prefill_s: Number, transfer_s: Number, decode_s: Number) -> Number:
    """Requests a second on one node above which a separate prefill pool saves each of them time.

    Together, prompts stretch the decoding of a request by ρ/(1-ρ), ρ = rate x prefill; apart,
    its cache travels once. Both are equal at ρ = transfer / (transfer + decode).

    Source: processor sharing; DistServe 2024, Splitwise 2024.
    """
    return transfer_s / (transfer_s + decode_s) / prefill_s


@law
def decode_steps(output_tokens: Number, tokens_per_step: Number = 1.0) -> Number:
    """Steps that a sequence is decoded in: each gives it one token, more with speculation.

    Source: autoregressive decoding.
    """
    return output_tokens / tokens_per_step


@law
def promised_load_hz(step_s: Number, promised_s: Number, prefill_s: Number) -> Number:
    """Requests a second on one node up to which prompts leave each step within a promise.

    The inverse of `interfered_s`: step / (1 - ρ) = promise at ρ = 1 - step / promise. None where
    the step alone takes longer than promised.

    Source: processor sharing; DistServe 2024.
    """
    return largest(within=1 - step_s / promised_s, none=0) / prefill_s


@law
def pool_ratio(prefill_s: Number, decode_s: Number, batch: Number) -> Number:
    """Prefill nodes for each decode node so that both are as busy: what a request takes of each.

    A decode node works on so many sequences at once.

    Source: work of both pools in balance; DistServe 2024, Splitwise 2024.
    """
    return prefill_s * batch / decode_s
