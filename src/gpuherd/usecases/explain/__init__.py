"""Why an instance is as it is."""
