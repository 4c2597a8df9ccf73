"""Single requests, and streams: what a caller waits for."""
