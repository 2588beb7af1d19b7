"""OpenAI's wire format: what requests may say and how errors look.

Shared by the gateway and by Ridgeline's own replicas. Nothing here knows a socket, a tokenizer
or a model: bytes come in, a checked value or an `ApiError` goes out.
"""

from ridgeline.serving.openai.errors import ApiError, context_too_long, model_not_found
from ridgeline.serving.openai.reading import read
from ridgeline.serving.openai.requests import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    Generating,
    TokenizeRequest,
)

__all__ = [
    "ApiError",
    "ChatRequest",
    "CompletionRequest",
    "DetokenizeRequest",
    "Generating",
    "TokenizeRequest",
    "context_too_long",
    "model_not_found",
    "read",
]
