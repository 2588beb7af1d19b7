"""Plans of serving: memory, cache, roofline, latency, capacity, cost. Laws come from `physics`.

Each module registers its topics when it is imported.
"""

from ridgeline.serving.plan import users

__all__ = ["users"]
