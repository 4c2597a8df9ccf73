"""Webhooks on their way, and the endpoints they go to."""
