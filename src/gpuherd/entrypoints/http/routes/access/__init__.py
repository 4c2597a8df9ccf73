"""Keys, and the audit log."""
