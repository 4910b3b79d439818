"""The chat in a browser: one app process for each page, all on one engine."""
