"""A function with 14 GB of weights, from nothing to its first token.

python examples/simulate/function_start.py
"""

from ridgeline.serving.simulate.scenarios.function_start import CHAINS, start

STARTS_PER_S = 0.5
for name, stages in CHAINS.items():
    one = start(stages, STARTS_PER_S)
    parts = ", ".join(f"{stage} {seconds:.2g}" for stage, seconds in stages.items())
    print(f"{name}: {one.first_token_s:.2f} s simulated, {one.chain_s:.2f} s in all ({parts})")
    print(f"  {one.pool} warm for {STARTS_PER_S:g} starts/s")
