"""Network volumes: which there are, one more, one less."""
