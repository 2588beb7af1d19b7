"""The floor of nodes, fabric and plant: how many, how wired, how powered, how kept alive."""
