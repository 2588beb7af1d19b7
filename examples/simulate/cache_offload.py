"""A paused conversation's cache: from which bandwidth on loading beats computing it again.

python examples/simulate/cache_offload.py
"""

from ridgeline.serving.simulate.scenarios.cache_offload import offload, turn, with_params
from ridgeline.serving.simulate.scenarios.chunked_prefill import on_nodes

node = with_params(on_nodes("llama-3.1-70b", "h100-sxm", 8, 0.5), 70.6e9, 327_680)
print("70B on 8 h100-sxm at half of their peak; a conversation whose cache is in host memory")
print(f"{'prompt':>8} {'cache':>9} {'formula':>11} {'simulated':>11}   next turn at 5 GB/s")
for tokens in (256, 8_192, 32_768, 131_072):
    one = offload(node, tokens)
    slow = turn(node, tokens, 5e9)
    how = "loaded" if slow.cached_tokens >= tokens else "recomputed"
    print(
        f"{tokens:>8,} {one.cache_bytes / 1e9:>6.2f} GB {one.formula_bytes_per_s / 1e9:>6.2f} GB/s "
        f"{one.simulated_bytes_per_s / 1e9:>6.2f} GB/s   {slow.ttft_s:>6.2f} s, {how}"
    )
