"""Prefill and decode on nodes of their own: how many of each, and from which load.

python examples/simulate/prefill_pools.py
"""

from ridgeline.serving.fake.timing import machine
from ridgeline.serving.simulate.scenarios.prefill_pools import (
    Mix,
    Node,
    balanced_ratio,
    best,
    crossover,
    splits,
)
from ridgeline.serving.simulate.setup import Link

NODES, GB = 20, 1e9
node = Node(machine("llama-3.1-70b", "h100-sxm", tensor_parallel=8, engine="vllm"), Link(50 * GB))
mix = Mix()
print(f"llama-3.1-70b on nodes of 8 h100-sxm, links of {node.link.bytes_per_s / GB:.0f} GB/s")
print(f"prompts of {mix.prompt_tokens:,}, answers of {mix.output_tokens}, {mix.batch} at once")
ratio = balanced_ratio(node, mix)
share = ratio / (1 + ratio)
print(f"by arithmetic {ratio:.2f} to 1: {NODES * share:.1f} of {NODES} nodes prefill")
found = splits(node, mix, NODES, range(9, 17))
for one in found:
    mark = "  <- most" if one is best(found) else ""
    print(f"  {one.prefill:2} + {one.decode:2}  {one.per_s:6.1f} requests/s{mark}")
long = Mix(8192, 512)
cross = crossover(node, long)
print(
    f"prompts of {long.prompt_tokens:,}: apart is faster from {cross.simulated_per_s:.3f} "
    f"requests/s a node on (formula: {cross.formula_per_s:.3f})"
)
