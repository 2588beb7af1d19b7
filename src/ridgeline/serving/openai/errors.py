"""OpenAI's error format, shared by the gateway and by Ridgeline's own replicas."""

from http import HTTPStatus
from typing import Any


class ApiError(Exception):
    """An answer to a client that is not 200, in OpenAI's shape.

    `code` is OpenAI's machine-readable word (e.g. "model_not_found"), `param` the request field
    at fault. `headers` are sent along, e.g. Retry-After.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = HTTPStatus(status)
        self.message = message
        self.param = param
        self.code = code
        self.headers = headers or {}

    @property
    def type(self) -> str:
        """OpenAI's class of the error, from the status."""
        if self.status == HTTPStatus.UNAUTHORIZED:
            return "authentication_error"
        if self.status == HTTPStatus.TOO_MANY_REQUESTS:
            return "rate_limit_error"
        return "invalid_request_error" if self.status < HTTPStatus(500) else "server_error"

    def body(self) -> dict[str, Any]:
        """The JSON body: `{"error": {message, type, param, code}}`."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }


def model_not_found(name: str, known: list[str]) -> ApiError:
    """The 404 for a model nobody serves; says which ones are."""
    there = ", ".join(sorted(known)) or "none yet"
    return ApiError(
        404,
        f"The model `{name}` does not exist here. Models served: {there}.",
        param="model",
        code="model_not_found",
    )


def context_too_long(
    prompt_tokens: int | str, wanted_tokens: int | None, limit_tokens: int, *, param: str
) -> ApiError:
    """The 400 for a prompt (and `wanted_tokens` of output) that the context cannot hold.

    `prompt_tokens` may be text such as "more than 8192" where counting was cut short.
    """
    asks = f" and {wanted_tokens} of output were asked for" if wanted_tokens else ""
    remedy = "Shorten the prompt" + (" or lower max_tokens" if wanted_tokens else "")
    return ApiError(
        400,
        f"This model's maximum context length is {limit_tokens} tokens, but the prompt has "
        f"{prompt_tokens} tokens{asks}. {remedy}.",
        param=param,
        code="context_length_exceeded",
    )
