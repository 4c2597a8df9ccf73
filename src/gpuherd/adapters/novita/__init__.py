"""Novita behind the cloud port: transport, their JSON, their errors, and the operations on top."""
