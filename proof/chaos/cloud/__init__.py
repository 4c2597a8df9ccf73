"""What the cloud of a schedule does to us: other accounts, copies, ids used again, and calls recorded."""
