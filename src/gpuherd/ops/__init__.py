"""What an operator runs beside the service: backup, migrate, copy, config, demo, doctor."""
