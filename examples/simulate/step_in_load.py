"""Three times the load at once, a minute until a replica helps: settings, and others' formulas.

python examples/simulate/step_in_load.py
"""

from ridgeline.serving.policy.scale_rules import OURS, RULES
from ridgeline.serving.simulate.scenarios.step_in_load import TUNED, USUAL, played

print(f"{'':22}{'dropped':>9}{'TTFT p99':>10}{'replicas':>10}{'hours':>8}{'idle':>7}")
rows = [("usual settings", USUAL, OURS), ("tuned settings", TUNED, OURS)]
rows += [(f"tuned, {name}", TUNED, rule) for name, rule in RULES.items() if rule is not OURS]
for name, settings, rule in rows:
    one = played(settings, rule)
    print(
        f"{name:22}{one.dropped:>9.2%}{one.waited_p99_s:>8.1f} s{one.most:>10}"
        f"{one.replica_hours:>8.2f}{one.idle:>7.0%}"
    )
