"""Copying a whole database to another server."""
