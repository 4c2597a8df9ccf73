"""The other side of the network, on loopback."""
