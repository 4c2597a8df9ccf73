"""Endings: what was agreed about how long an instance may cost money, and when that time is over."""
