"""A day whose peak is three times its mean: fleets sized for it, and one that follows.

python examples/simulate/diurnal_day.py
"""

from ridgeline.serving.simulate.scenarios.diurnal_day import (
    fixed,
    recoverable,
    scaled,
    trough_over_mean,
)

START_S = 600.0
whole, following = fixed(3.0, 0.7), scaled(3.0, 0.7, START_S)
rows = (
    ("sized for the peak, no headroom", fixed(3.0, 1.0)),
    ("sized for the peak, 70 % full there", whole),
    ("follows, 10 minutes to start one", following),
)
for name, day in rows:
    print(
        f"{name:38}{day.utilisation:>6.1%} busy, {day.replica_hours:>6.1f} replica-hours, "
        f"TTFT p99 {day.ttft_p99_s:.1f} s, {day.answered:.2%} answered"
    )
saved = 1 - following.replica_hours / whole.replica_hours
most = recoverable(3.0, trough_over_mean(3.0), START_S)
print(f"won back: {saved:.0%} of the hours, of {most:.0%} by the arithmetic of a large fleet")
print(f"for others' work at the trough: {whole.fewest - following.fewest} of {whole.fewest}")
