"""Encryption of what the database keeps and must not be able to read."""
