"""A request's prompt as chained block hashes, so that the router can tell who has its beginning.

What a replica computes is the rendered prompt: tools and system text, then every message with its
role, in order. Its text is taken here as the client wrote it, JSON and all, because a longer
conversation repeats its messages byte for byte; nothing is decoded. Only full blocks count, so
the blocks of a conversation are the first blocks of its continuation. Hashes begin with the model,
the tenant and the request's `cache_salt`: nobody shares a block with another tenant.
"""

from dataclasses import dataclass
from itertools import islice

import msgspec
from xxhash import xxh3_64_intdigest

BLOCK_BYTES = 64  # about 16 tokens, the block of most engines
MOST_BLOCKS = 4_096  # 256 KiB of text; what comes after it is not looked at
_LOGGED = 8  # the log has one hash for so many blocks: 512 bytes, about 128 tokens

_NOTHING = msgspec.Raw(b"")


@dataclass(frozen=True, slots=True)
class PromptBlocks:
    """The hashes of a prompt's first blocks, and its whole length: in bytes, and in blocks."""

    hashes: tuple[int, ...]
    text_bytes: int

    @property
    def length(self) -> float:
        """Blocks of the whole prompt, also those that are not hashed."""
        return max(1.0, self.text_bytes / BLOCK_BYTES)


class _Fields(msgspec.Struct):
    """What of a body becomes prompt, in the order in which chat templates render it."""

    tools: msgspec.Raw = _NOTHING
    functions: msgspec.Raw = _NOTHING
    chat_template_kwargs: msgspec.Raw = _NOTHING
    documents: msgspec.Raw = _NOTHING
    system: msgspec.Raw = _NOTHING
    instructions: msgspec.Raw = _NOTHING
    messages: msgspec.Raw = _NOTHING
    input: msgspec.Raw = _NOTHING
    prompt: msgspec.Raw = _NOTHING
    cache_salt: msgspec.Raw = _NOTHING


_fields = msgspec.json.Decoder(_Fields)


def prompt_blocks(body: bytes, model: str, tenant: str) -> PromptBlocks:
    """The blocks of a body that is JSON (`peek` has seen to that)."""
    fields = _fields.decode(body)
    text = _text(fields)
    salt = b"\0".join((model.encode(), tenant.encode(), bytes(fields.cache_salt)))
    return PromptBlocks(chained(text, xxh3_64_intdigest(salt)), len(text))


def chained(text: bytes, seed: int) -> tuple[int, ...]:
    """The hash of each full block, each seeded with the one before it."""
    starts = range(0, len(text) - BLOCK_BYTES + 1, BLOCK_BYTES)
    found: list[int] = []
    for start in islice(starts, MOST_BLOCKS):
        seed = xxh3_64_intdigest(text[start : start + BLOCK_BYTES], seed)
        found.append(seed)
    return tuple(found)


def as_logged(hashes: tuple[int, ...]) -> str:
    """The beginning of a prompt for the log, without its text: 16 hexadecimal digits for each hash.

    A hash stands for all blocks before it too, so that few of them say what prompts have in common.
    """
    return "".join(f"{one:016x}" for one in hashes[_LOGGED - 1 :: _LOGGED])


def _text(fields: _Fields) -> bytes:
    """The parts in order; of messages and prompts without what closes them, for they may go on."""
    head = (
        fields.tools,
        fields.functions,
        fields.chat_template_kwargs,
        fields.documents,
        fields.system,
        fields.instructions,
    )
    parts = [b"\n".join(bytes(part) for part in head)]
    parts += [_open(part) for part in (fields.messages, fields.input, fields.prompt)]
    return b"".join(parts)


def _open(part: msgspec.Raw) -> bytes:
    """A list or a text without what closes it, so that a longer one begins with it."""
    return bytes(part)[:-1].rstrip()
