"""Succession: instances that take over from one another."""
