"""Endpoints, deliveries, signatures and their retry schedule."""
