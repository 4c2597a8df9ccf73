"""The hardened HTTP server around the service.

Protocol, signals, stall watchdog, waiting for the database.
"""
