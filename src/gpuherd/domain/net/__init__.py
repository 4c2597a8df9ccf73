"""Which addresses may be reached, and what an error page tells."""
