"""Tables, progress and times on a terminal."""
