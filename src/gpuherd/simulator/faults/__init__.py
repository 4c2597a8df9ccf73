"""What can go wrong in the simulated cloud."""
