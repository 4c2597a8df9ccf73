"""Secrets: what is kept sealed, and opened only for a create call."""
