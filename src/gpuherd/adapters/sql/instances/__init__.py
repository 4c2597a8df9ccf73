"""Instances with their leases and what the cloud's lists showed, in SQL."""
