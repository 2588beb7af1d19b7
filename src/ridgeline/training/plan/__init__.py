"""Plans of training: memory, layouts, communication, data, cost. Laws come from `physics`.

Each module registers its topics when it is imported.
"""
