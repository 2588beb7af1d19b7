"""Warm slots for functions: 2 starts a second, 30 s to refill one.

python examples/simulate/warm_slots.py
"""

from ridgeline.serving.simulate.scenarios.warm_slots import mean_slots, served, slots_for

RATE, REFILL_S, WARM_S = 2.0, 30.0, 0.8
print(f"by Little's law {mean_slots(RATE, REFILL_S)} are in refill on average")
for slots in (mean_slots(RATE, REFILL_S), 70, slots_for(RATE, REFILL_S, 0.99)):
    pool = served(slots, RATE, REFILL_S, warm_s=WARM_S)
    print(
        f"{slots} slots: {pool.in_refill:.1f} in refill, {pool.late:.1%} of starts find none, "
        f"p99 {pool.p99_start_s:.2f} s"
    )
