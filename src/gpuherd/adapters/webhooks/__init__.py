"""Webhooks in the Standard Webhooks format."""
