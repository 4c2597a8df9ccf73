"""What ends by itself in a schedule: leases, silence, idleness, budgets, and what was seen of it."""
