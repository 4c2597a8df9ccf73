"""Goes to the machine itself, through the ssh of this computer."""
