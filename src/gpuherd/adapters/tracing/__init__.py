"""Traces for OpenTelemetry. But for `traced_leases`, all of it needs the extra."""
