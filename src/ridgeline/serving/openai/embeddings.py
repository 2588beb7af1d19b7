"""The body of `POST /v1/embeddings`, and its answer."""

import base64
import struct
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from ridgeline.serving.openai.errors import ApiError
from ridgeline.serving.openai.requests import Amount, Count

#: What OpenAI takes in one request.
MOST_INPUTS = 2048


class EmbeddingRequest(msgspec.Struct, kw_only=True):
    """`POST /v1/embeddings`.

    `input` is a text, a list of texts, a list of token ids, or a list of such lists; the type is
    wider than that since msgspec tells unions of lists apart only by their elements.
    """

    model: str
    input: str | list[str | Amount | list[Amount]]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Count | None = None
    user: str | None = None

    @property
    def base64(self) -> bool:
        """Whether vectors are sent as base64, as OpenAI's own client asks."""
        return self.encoding_format == "base64"

    def texts(self) -> list[str | list[int]]:
        """The inputs, each a text or token ids, none of them empty.

        Raises ApiError 400 where there are none, too many, an empty one, or they are mixed.
        """
        given = self.input
        if isinstance(given, str):
            given = [given]
        if not given:
            raise _wrong("it is empty")
        if all(isinstance(one, int) for one in given):
            return [[one for one in given if isinstance(one, int)]]
        if len({type(one) for one in given}) > 1:
            raise _wrong("it mixes texts, token ids and lists of ids")
        if len(given) > MOST_INPUTS:
            raise _wrong(f"it has {len(given)} inputs, and {MOST_INPUTS} is the most")
        empty = next((place for place, one in enumerate(given) if not one), None)
        if empty is not None:
            raise _wrong(f"input {empty} is empty")
        return [one for one in given if not isinstance(one, int)]


def embedding_answer(
    vectors: Sequence[bytes], *, model: str, prompt_tokens: int, base64_wanted: bool
) -> dict[str, Any]:
    """The answer. `vectors` are little-endian float32, in the order of the inputs."""
    data = [
        {"object": "embedding", "index": index, "embedding": _shown(vector, base64_wanted)}
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens}
    return {"object": "list", "data": data, "model": model, "usage": usage}


def _shown(vector: bytes, base64_wanted: bool) -> str | list[float]:
    if base64_wanted:
        return base64.b64encode(vector).decode()
    return list(struct.unpack(f"<{len(vector) // 4}f", vector))


def _wrong(problem: str) -> ApiError:
    return ApiError(400, f"Invalid value for input: {problem}.", param="input")
