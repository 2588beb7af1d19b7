"""Numerics that engine and training share: plain reference code, and fast code tested on it."""
