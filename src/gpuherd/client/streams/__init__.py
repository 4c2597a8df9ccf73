"""Replies that come bit by bit: the stream of events, and logs."""
