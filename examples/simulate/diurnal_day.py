"""A day whose peak is three times its mean: fleets sized for it, and one that follows.

python examples/simulate/diurnal_day.py
"""

from ridgeline.serving.simulate.scenarios.diurnal_day import fixed, scaled

rows = (
    ("sized for the peak, no headroom", fixed(3.0, 1.0)),
    ("sized for the peak, 70 % full there", fixed(3.0, 0.7)),
    ("follows, 10 minutes to start one", scaled(3.0, 0.7, 600.0)),
)
for name, day in rows:
    print(
        f"{name:38}{day.utilisation:>6.1%} busy, {day.replica_hours:>6.1f} replica-hours, "
        f"TTFT p99 {day.ttft_p99_s:.1f} s, {day.answered:.2%} answered"
    )
