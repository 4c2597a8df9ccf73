"""What is needed to tell a tracing system how one rental went."""
