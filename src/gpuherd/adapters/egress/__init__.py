"""Egress.

HTTP and TCP to hosts that users chose, without being turned against our own network (SSRF).
"""
