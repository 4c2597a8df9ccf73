"""The public shapes of what we know."""
