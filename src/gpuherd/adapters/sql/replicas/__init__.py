"""Leader leases and shared limits, in SQL."""
