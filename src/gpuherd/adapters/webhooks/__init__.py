"""Webhooks in the Standard Webhooks format, and notices for people by chat and mail."""
