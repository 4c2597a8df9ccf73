"""Instances: the list, one of them, and a new one."""
