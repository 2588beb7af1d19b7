"""Replicas and requests in virtual time, asking the policies that the live gateway asks."""
