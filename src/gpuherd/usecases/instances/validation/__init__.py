"""What is wrong with a request beside its form."""
