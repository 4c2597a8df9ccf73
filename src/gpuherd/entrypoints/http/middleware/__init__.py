"""What every request passes through."""
