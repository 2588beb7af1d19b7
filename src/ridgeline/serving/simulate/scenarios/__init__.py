"""Situations that come up again and again, each simulated whole: typed values in, what came out."""
