"""A machine to log in to that is this computer."""
