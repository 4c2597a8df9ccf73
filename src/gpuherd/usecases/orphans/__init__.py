"""Machines that no instance has: judged, collected, adopted."""
