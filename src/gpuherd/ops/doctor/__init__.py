"""The doctor: asks the world, and judges the answers apart from the asking."""
