"""A first token within 200 ms for 99 of 100: what may come in, and what it costs.

python examples/simulate/first_token.py
"""

from ridgeline.serving.simulate.scenarios.chunked_prefill import on_nodes
from ridgeline.serving.simulate.scenarios.first_token import budget, kept, linear

node = linear(on_nodes("llama-3.1-70b", "h100-sxm", 8, compute_share=0.36), 70.6e9)
split = budget(node)
print("70B on 8 h100-sxm at 36 % of their peak; 200 ms to the first token")
print(
    f"{split.overhead_s * 1e3:.0f} ms of network, routing and queue leave "
    f"{split.prefill_s * 1e3:.0f} ms: {split.limit_tokens:,} tokens at most"
)
print(f"{'requests/s':>10} {'busy':>6} {'too long':>9} {'refused':>8} {'p99':>7} {'no door':>8}")
for per_s in (2, 4, 8, 16):
    one = kept(node, per_s)
    print(
        f"{one.per_s:>10} {one.busy:>6.0%} {one.refused_long:>9.1%} {one.refused:>8.1%} "
        f"{one.p99_s * 1e3:>4.0f} ms {one.p99_without_s * 1e3:>5.0f} ms"
    )
