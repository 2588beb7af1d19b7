"""How a stream that was cut goes on at another replica, exactly as it would have. Pure.

Ridgeline's engine takes the ids of an answer so far as such (`resume`): chance, penalties, grammar
and stop strings stand where they stood. vLLM knows nothing like it, but a plain completion goes on
where its prompt ends: prompt and answer so far are sent as the prompt's ids. That is exact only
where the next token depends on nothing but the ids before it: greedy, and with none of the fields
that look at the answer alone. Everything else ends with an error event.
"""

from enum import StrEnum

import msgspec

from ridgeline.serving.gateway.calls import Call

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
#: What a greedy completion's next token does not depend on, or depends on in the same way.
_HARMLESS = frozenset(
    {
        "model",
        "prompt",
        "max_tokens",
        "temperature",
        "stream",
        "stream_options",
        "n",
        "best_of",
        "seed",
        "user",
        "top_p",
        "top_k",
        "min_p",
        "ignore_eos",
        "repetition_penalty",
        "cache_salt",
        "priority",
        "return_token_ids",
        "skip_special_tokens",
        "spaces_between_special_tokens",
    }
)
#: OpenAI's default for plain completions, vLLM's too.
_DEFAULT_TOKENS = 16


class Way(StrEnum):
    """What another replica is told."""

    RESUME = "resume"  # the answer's ids, as such
    PROMPT = "prompt"  # prompt and answer as one prompt


def way_of(owner: str, path: str, call: Call, body: bytes) -> Way | None:
    """How replicas of an owner (`owned_by` of their model) could go on; None where none can."""
    if not call.can_go_on:
        return None
    if owner == "ridgeline":
        return Way.RESUME
    if owner == "vllm" and path == "/v1/completions" and call.temperature == 0:
        fields = _fields.decode(body)
        prompt = bytes(fields.get("prompt", b""))
        one = prompt[:1] == b'"' or (prompt[:1] == b"[" and prompt[1:2].isdigit())
        return Way.PROMPT if one and fields.keys() <= _HARMLESS else None
    return None


def body_to_go_on(body: bytes, way: Way, prompt_ids: list[int], ids: list[int]) -> bytes | None:
    """The body for the next replica; None where nothing is left to generate."""
    fields = _fields.decode(body)
    if way is Way.RESUME:
        fields["resume"] = msgspec.Raw(msgspec.json.encode({"token_ids": ids}))
        return msgspec.json.encode(fields)
    most = msgspec.json.decode(fields.get("max_tokens", b"null"), type=int | None)
    left = (_DEFAULT_TOKENS if most is None else most) - len(ids)
    if left < 1 or not prompt_ids:
        return None
    fields["prompt"] = msgspec.Raw(msgspec.json.encode(prompt_ids + ids))
    fields["max_tokens"] = msgspec.Raw(b"%d" % left)
    return msgspec.json.encode(fields)
