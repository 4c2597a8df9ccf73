"""What the server tells, as frozen dataclasses."""
