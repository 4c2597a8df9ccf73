"""An instance: its goal, lifecycle, health, attempts, events, and the offers it is judged by."""
