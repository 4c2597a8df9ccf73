"""The commands about instances."""
