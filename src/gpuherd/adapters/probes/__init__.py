"""Probes: how we ask the user's program whether it answers."""
