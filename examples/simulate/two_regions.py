"""Regions that stand in for each other: how full each may be, and what queues when one is lost.

python examples/simulate/two_regions.py
"""

from ridgeline.serving.simulate.scenarios.two_regions import Regions, losses, safe_utilisation

for count, utilisations in ((2, (0.4, 0.5, 0.6, 0.7)), (3, (0.5, 0.66, 0.7))):
    regions = Regions(count)
    print(
        f"{count} regions of {regions.capacity_per_s} requests/s: "
        f"each may be {safe_utilisation(count):.0%} full"
    )
    for one in losses(utilisations, regions, after_s=30.0):
        print(
            f"  at {one.utilisation:.0%}, 30 s after one is lost: {one.waiting} requests wait "
            f"({one.expected:.0f} by the law of flow)"
        )
