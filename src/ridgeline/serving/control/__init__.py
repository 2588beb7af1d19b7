"""The loops that look, ask a policy, write down and act."""
