"""Heat and coolant: flow that carries a load off, and how fast metal warms when it does not.

Temperatures enter as differences only, in kelvins.
"""

from ridgeline.physics.law import law
from ridgeline.quantity import Number, choose, log


@law
def coolant_m3_per_s(
    heat_w: Number,
    rise_k: Number,
    coolant_j_per_kg_k: Number = 4186.0,
    coolant_kg_per_m3: Number = 1000.0,
) -> Number:
    """Flow that takes so much heat up with so much rise in temperature.

    Source: heat balance P = m c dT, with water's heat capacity and density.
    """
    return heat_w / (coolant_j_per_kg_k * coolant_kg_per_m3 * rise_k)


@law
def heat_capacity_j_per_k(
    water_kg: Number,
    metal_kg: Number,
    water_j_per_kg_k: Number = 4186.0,
    metal_j_per_kg_k: Number = 385.0,
) -> Number:
    """What a cold plate and the coolant in it take up for each kelvin; the metal is copper.

    Source: heat capacities of water and copper at 25 C.
    """
    return water_kg * water_j_per_kg_k + metal_kg * metal_j_per_kg_k


@law
def heating_k_per_s(
    heat_w: Number, capacity_j_per_k: Number, carried_share: Number = 0.0
) -> Number:
    """How fast it warms when the coolant carries off only a share of what it did.

    Source: heat balance C dT/dt = P - what is carried off.
    """
    return heat_w * (1 - carried_share) / capacity_j_per_k


@law
def warm_up_s(margin_k: Number, rate_k_per_s: Number, decay_per_s: Number = 0.0) -> Number:
    """Time until so many kelvins are gained; unlimited where it settles below.

    With heat still carried off in proportion to the temperature the curve is
    `rate/decay (1 - exp(-decay t))`; without, a straight line.

    Source: first-order heat balance, solved for t.
    """
    straight = margin_k / rate_k_per_s
    part = straight * decay_per_s
    reached, flows = part < 1, decay_per_s > 0
    inside = choose(reached, part, 0, why="limit in reach")
    steepness = choose(flows, decay_per_s, 1 / straight, why="coolant flowing")
    curved = -log(1 - inside) / steepness
    time = choose(flows, curved, straight, why="coolant flowing")
    return choose(reached, time, straight * float("inf"), why="limit in reach")
