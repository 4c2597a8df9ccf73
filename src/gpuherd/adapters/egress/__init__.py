"""The guarded door: how we reach hosts that somebody else chose."""
