"""Who may do what: keys, callers, secrets, the audit trail."""
