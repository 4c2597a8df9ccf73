"""Novita's HTTP API, as its documents describe it."""
