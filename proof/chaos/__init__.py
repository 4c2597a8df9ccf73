"""The seeded simulation: the real use cases on a store in memory and a cloud that lies, dies and lags.

One seed is one schedule: what users ask for, which faults strike, when the process is killed.
`python -m proof.chaos` runs many of them, and `replay SEED` shows one."""
