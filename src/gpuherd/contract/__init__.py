"""The public JSON, once: replies, webhooks, server-sent events, the client's models and the OpenAPI schemas.

One module a subject. A field is one line: its name (camelCase on the wire), its type, and a comment that is
its description in `/openapi.json`. The order of the fields is the order on the wire."""
