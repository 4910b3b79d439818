"""An OpenAI-compatible HTTP server over an engine (extra `serve`: Starlette and uvicorn)."""
