"""What must hold of a schedule: evidence, invariants, those about money, and what was reached at all."""
