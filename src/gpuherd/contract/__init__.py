"""The public JSON, once, as pydantic models: request bodies, replies, webhooks and server-sent events.

One module a subject. A field is one line: its name (camelCase on the wire), its type, and its
description in `/openapi.json`. The order of the fields is the order on the wire."""
