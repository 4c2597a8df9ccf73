"""Counts and times in memory, shown in Prometheus' text format."""
