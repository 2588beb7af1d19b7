"""Little's law, and a burst that drains or does not, by what overload wastes.

python examples/simulate/overload_waste.py
"""

from ridgeline.serving.simulate.scenarios.overload_waste import burst, in_flight, left, waste_of

simulated, expected = in_flight(50.0, 20.0)
print(f"50 a second, 20 s each: {simulated} in flight ({expected:,.0f} by Little's law)")
for load, waste in ((0.9, 0.0), (0.9, 0.05), (0.9, 0.12), (0.7, 0.12)):
    one = burst(load, waste)
    said = "drains" if one.drains else "does not drain"
    print(
        f"{load:.0%} load, {waste:.0%} wasted beyond the slots: {one.before} in flight before the "
        f"burst, {one.after} later: {said}"
    )
for load, share, retries in ((0.9, 0.10, 1), (0.9, 0.12, 1), (0.9, 0.06, 2), (0.7, 0.12, 1)):
    two = left(load, share, retries)
    said = "drains" if two.drains else "does not drain"
    print(
        f"{load:.0%} load, {share:.0%} leave and ask again {retries}x, "
        f"{waste_of(share, retries):.1%} wasted: {two.before} before, {two.after} later: {said}"
    )
