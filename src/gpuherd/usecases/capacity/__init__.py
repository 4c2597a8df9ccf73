"""The line of those who wait for capacity."""
