"""Egress.

How we reach hosts that somebody else chose, without being turned against our own network (SSRF).
"""
