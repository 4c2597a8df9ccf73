"""Machines that no instance has: verdicts, orders, adoption, and how records and cloud compare."""
