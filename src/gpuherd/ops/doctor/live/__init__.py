"""First contact: everything that the code assumes about Novita, checked on the real service."""
