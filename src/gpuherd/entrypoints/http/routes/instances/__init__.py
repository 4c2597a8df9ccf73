"""Instances: wishes, plans, operations, leases."""
