"""Image prewarm: which tasks there are, one more, one less."""
