"""Which job is needed, running it, retrying it, and the sweep that loses none."""
