"""What the simulated cloud charges, for what, and how its prices and its stock move."""
