"""What callers see of the simulated world: lists, products, metrics, bills, logs; true without a fault."""
