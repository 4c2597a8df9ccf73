"""Traces for OpenTelemetry. What has `otlp` in its name needs the extra."""
