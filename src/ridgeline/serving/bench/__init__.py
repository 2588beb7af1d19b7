"""The load generator: open and closed loops, percentiles, goodput, knees, and honest refusals."""
