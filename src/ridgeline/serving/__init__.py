"""The serving floor: models behind an OpenAI-compatible API."""
