"""Other APIs in front of chat completions: OpenAI's Responses and Anthropic's Messages.

Pure translation: bytes in, bytes out (docs/decisions/0021-dialects.md). The proxy looks up a
request's path in `DIALECTS` and filters what goes in and what comes out.
"""

from ridgeline.serving.gateway.dialects.dialect import Dialect, Stream, Translation
from ridgeline.serving.gateway.dialects.messages import CountDialect, MessagesDialect
from ridgeline.serving.gateway.dialects.responses import ResponsesDialect

__all__ = ["DIALECTS", "Dialect", "Stream", "Translation"]

DIALECTS: dict[str, Dialect] = {
    "/v1/responses": ResponsesDialect(),
    "/v1/messages": MessagesDialect(),
    "/v1/messages/count_tokens": CountDialect(),
}
