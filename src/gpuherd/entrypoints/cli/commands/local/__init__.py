"""The commands that work on this host and its database, not over HTTP."""
