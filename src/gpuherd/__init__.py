"""A control plane for rented GPU instances: remember the goal, look at the cloud, take one step, repeat."""

__version__ = "0.2.0"
