"""Speculation across a fleet: until which batch it pays, and a draft that goes bad.

python examples/simulate/fleet_speculation.py
"""

from ridgeline.serving.policy.acceptance_alarm import Expected
from ridgeline.serving.simulate.guesses import Guessing
from ridgeline.serving.simulate.scenarios.fleet_speculation import (
    formula,
    gains,
    silent_drop,
    simulated,
    weights_only,
)

on, guessing = weights_only("h100-sxm"), Guessing(0.7)
law, run = formula(on, guessing), simulated(on, guessing)
print("4 guesses on an h100-sxm, each holds with 0.7 where all before it did; bf16, weights only")
print(f"{'':>22} {'formula':>8} {'simulated':>10}")
print(f"{'checking is free up to':>22} {law.free_batch:>8.1f} {run.free_batch:>10}")
print(f"{'it gains up to':>22} {law.break_even_batch:>8.1f} {run.break_even_batch:>10}")
print(f"\n{'batch':>5} {'in every step':>14} {'our switch':>11}")
for batch, every, measured in gains(on, guessing, (1, 16, 59, 118, 164, 200, 300)):
    print(f"{batch:>5} {every:>13.2f}x {measured:>10.2f}x")

alarms, (before_s, after_s) = silent_drop(on, 0.7, 0.4, at_s=30.0, expected=Expected(0.7))
print(
    f"\nfour replicas; after 30 s guesses hold with 0.4: no error, but a token takes "
    f"{before_s * 1e3:.2f} ms, then {after_s * 1e3:.2f}"
)
for alarm in alarms:
    print(f"alarm at {alarm.at_s:.1f} s, {alarm.replica}: {alarm.said}")
