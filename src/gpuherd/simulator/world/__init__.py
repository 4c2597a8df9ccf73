"""The simulated cloud itself: stock, machines, time."""
