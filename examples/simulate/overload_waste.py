"""Little's law, and a burst that drains or does not, by what overload wastes.

python examples/simulate/overload_waste.py
"""

from ridgeline.serving.simulate.scenarios.overload_waste import burst, in_flight

simulated, expected = in_flight(50.0, 20.0)
print(f"50 a second, 20 s each: {simulated} in flight ({expected:,.0f} by Little's law)")
for load, waste in ((0.9, 0.0), (0.9, 0.05), (0.9, 0.12), (0.7, 0.12)):
    one = burst(load, waste)
    said = "drains" if one.drains else "does not drain"
    print(
        f"{load:.0%} load, {waste:.0%} wasted beyond the slots: {one.before} in flight before the "
        f"burst, {one.after} later: {said}"
    )
