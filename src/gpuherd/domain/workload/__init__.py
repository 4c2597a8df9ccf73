"""What runs on a machine: the image, its command, ports and environment."""
