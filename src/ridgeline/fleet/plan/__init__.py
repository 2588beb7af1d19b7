"""Plans of the fleet: fabrics, power, cooling, spares, bills of material. Laws from `physics`.

Each module registers its topics when it is imported.
"""
