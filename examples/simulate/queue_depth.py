"""Scaling by the queue's depth: five failures, and each gone with its fix.

python examples/simulate/queue_depth.py
"""

from ridgeline.serving.policy.scale import Settings, Step
from ridgeline.serving.simulate.scenarios.queue_depth import (
    CUT,
    EARLY,
    ELSEWHERE,
    EMPTY,
    OVERSHOOT,
    climb_s,
    cut,
    early,
    elsewhere,
    empty,
    overshoot,
)

ROWS = (
    ("empty: one answer runs, cut", empty, EMPTY),
    ("overshoot: replicas for six requests, two each", overshoot, OVERSHOOT),
    ("early: longest wait (s) while one loads", early, EARLY),
    ("elsewhere: replicas for eight, queued in front", elsewhere, ELSEWHERE),
    ("cut: of two streams when one replica goes", cut, CUT),
)
print(f"{'':50}{'fails':>8}{'fixed':>8}")
for name, play, failure in ROWS:
    print(f"{name:50}{play(failure.broken):>8.3g}{play(failure.fixed):>8.3g}")
settings = Settings(2, 12, 4.0, Step(2, 120.0))
print(f"from 2 to 12 at 2 in 120 s, a start of 120 s: {climb_s(settings, 12, 120.0):.0f} s")
