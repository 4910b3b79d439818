"""The engine: one model, many requests, in this process or in one of its own. Front ends hold an Engine."""
