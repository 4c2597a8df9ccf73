"""What happened: recorded with its webhooks, and streamed."""
