"""Signing in, keys, and the audit log."""
