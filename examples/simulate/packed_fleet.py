"""Twenty models on nine accelerators: who stays, who is loaded on demand, what it costs.

python examples/simulate/packed_fleet.py
"""

from ridgeline.serving.plan.residents import Machines, first_fit, pack
from ridgeline.serving.simulate.scenarios.packed_fleet import GB, fleet, started

HOUR_S = 3600
machines = Machines(9, 72 * GB, answer_s=2.0)
models = fleet(2)
packed, plain = pack(models, machines), first_fit(models, machines)
print(f"{len(models)} models of {sum(one.weights_bytes for one in models) / GB:.0f} GB in all")
print(f"{machines.count} accelerators with room for {machines.room_bytes / GB:.0f} GB each")
for number, some in enumerate(packed.resident):
    print(f"  {number}: " + ", ".join(f"{one.name} ({one.weights_bytes / GB:.0f})" for one in some))
print(
    f"  {packed.shared} shared by {len(packed.on_demand)}, each loaded when asked for and "
    f"stopped after {packed.keep_s:.0f} s of quiet"
)
print(
    f"starts an hour: {packed.starts_per_s * HOUR_S:.1f} expected; first-fit in the order given "
    f"{plain.starts_per_s * HOUR_S:.1f}"
)
found = started(packed, machines, days=1)
print(
    f"simulated for a day: {found.per_s * HOUR_S:.1f} an hour, "
    f"of which {found.waited} of {found.starts} waited for an accelerator"
)
