"""Domain objects to rows and back, for every store that needs them."""
