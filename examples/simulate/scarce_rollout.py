"""A new version where no accelerator is free: Kubernetes' rolling update, and Ridgeline's rollout.

python examples/simulate/scarce_rollout.py
"""

from ridgeline.serving.policy.rolling import Rolling
from ridgeline.serving.policy.rollout import Plan
from ridgeline.serving.simulate.scenarios.scarce_rollout import BLUE_GREEN, Update, updates


def told(one: Update) -> str:
    """How it ended."""
    if one.done_s is not None:
        return f"done after {one.done_s:.0f} s, {one.most_devices} in use at most"
    return f"stuck at {one.stuck_s:.0f} s" if one.stuck_s is not None else one.said


SIZES = [(4, 0), (3, 0), (3, 1)]
WAYS = (
    ("rolling update, as it is by default", Rolling(), SIZES),
    ("blue-green", BLUE_GREEN, [(4, 0), (4, 4)]),
    ("Ridgeline's rollout", Plan(), [(4, 0), (4, 4)]),
)
for name, how, sizes in WAYS:
    print(name)
    for one in updates(sizes, how):
        print(f"  {one.replicas} replicas, {one.free} accelerators free: {told(one)}")
