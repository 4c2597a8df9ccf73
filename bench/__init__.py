"""Benchmarks: each promise about speed and size, measured beside a bare baseline in the same run."""
