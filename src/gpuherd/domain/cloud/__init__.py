"""What the cloud sells and runs, and what our lists of it prove."""
