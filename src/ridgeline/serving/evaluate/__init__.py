"""Answers of a running deployment beside a reference, for `ridgeline evaluate` and rollouts."""
