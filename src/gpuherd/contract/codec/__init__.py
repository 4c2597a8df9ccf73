"""How the contract's dataclasses become JSON, come out of it, and become JSON Schema."""
