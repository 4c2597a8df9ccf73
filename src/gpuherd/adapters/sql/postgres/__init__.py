"""What only PostgreSQL needs.

Reconnecting, commit outcomes, its clock, notifications, the event watermark.
"""
