"""The health of the application: rounds of probes, and the job that makes them."""
