"""An instance: its goal, lifecycle, health, attempts, events, and the offers and orphans it is judged by."""
