"""Text to token ids and back, on the `tokenizers` package.

Law: decoding goes through bytes. A token is a fixed run of bytes, a text is the UTF-8 reading of
the runs joined, so a stream can be decoded piece by piece and never takes anything back. Called
by the HTTP front; imports no torch.
"""

import codecs
import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import tokenizers

from ridgeline.errors import ModelError

WORD_START = "\u2581"  # SentencePiece's visible space


class Tokenizer:
    """One model's tokenizer.

    `bos_id` is the id that begins a sequence, None where there is none. `adds_bos` says whether
    the model expects it before plain text (a chat template writes it itself). `vocab_size` counts
    the ids that have a text; a model's embedding may be padded beyond it.
    """

    def __init__(
        self, backend: tokenizers.Tokenizer, *, bos_id: int | None, adds_bos: bool, where: str = ""
    ) -> None:
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._bytes_of: dict[int, bytes] = {}
        self._added = {
            index: token.content for index, token in backend.get_added_tokens_decoder().items()
        }
        self._pieces = _pieces(backend, where)
        self.bos_id = bos_id
        self.adds_bos = adds_bos and bos_id is not None
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)
        self.special_ids = frozenset(
            index for index, token in backend.get_added_tokens_decoder().items() if token.special
        )

    @classmethod
    def from_json(
        cls, text: str, *, bos_id: int | None, adds_bos: bool | None = None, where: str = ""
    ) -> "Tokenizer":
        """From the contents of a tokenizer.json; its own post-processor says `adds_bos` if None.

        Raises ModelError where the file is torn or decodes in a way that we do not know.
        """
        try:
            backend = tokenizers.Tokenizer.from_str(text)
        except Exception as error:  # the package raises nothing more precise
            raise ModelError(
                f"not a tokenizer: {error}", where=where, remedy="download the model again"
            ) from error
        if adds_bos is None:
            adds_bos = bos_id in backend.encode("").ids
        return cls(backend, bos_id=bos_id, adds_bos=adds_bos, where=where)

    def to_json(self) -> str:
        """The contents of a tokenizer.json that encodes alike."""
        return str(self._backend.to_str())

    def encode(self, text: str, *, special: bool = True, add_bos: bool = False) -> list[int]:
        """The ids of a text.

        With `special`, texts of special tokens become those tokens; without, they are plain
        text (what a user typed). `add_bos` puts the beginning of a sequence first, unless it is
        there already or the model has none. Lone surrogates become U+FFFD.
        """
        backend = self._backend if special else self._literal
        try:
            # As a batch of one: only batches let other threads run while they are encoded.
            ids: list[int] = backend.encode_batch_fast([text], add_special_tokens=False)[0].ids
        except (UnicodeEncodeError, TypeError):
            clean = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            ids = backend.encode_batch_fast([clean], add_special_tokens=False)[0].ids
        if add_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids.insert(0, self.bos_id)
        return ids

    def decode(
        self, ids: Iterable[int], *, skip_special: bool = True, begins_text: bool = True
    ) -> str:
        """The text of ids; bytes that are not UTF-8 become U+FFFD, unknown ids nothing.

        SentencePiece vocabularies put a space before the first word of a text: it is taken off
        unless `begins_text` is False (the ids continue something).
        """
        text = self.joined_bytes(ids, skip_special=skip_special).decode("utf-8", "replace")
        strips = begins_text and self._pieces.strips_first_space and text.startswith(" ")
        return text[1:] if strips else text

    def joined_bytes(self, ids: Iterable[int], *, skip_special: bool) -> bytes:
        """The bytes of ids, one after the other."""
        if skip_special:
            special = self.special_ids
            return b"".join([self.token_bytes(index) for index in ids if index not in special])
        return b"".join([self.token_bytes(index) for index in ids])

    def token_bytes(self, token_id: int) -> bytes:
        """Exactly the bytes that a token stands for; b"" for an id without a text."""
        found = self._bytes_of.get(token_id)
        if found is None:
            found = self._bytes_of[token_id] = self._spell(token_id)
        return found

    def token_text(self, token_id: int) -> str:
        """The token's bytes as text, U+FFFD for what is not UTF-8 by itself."""
        return self.token_bytes(token_id).decode("utf-8", "replace")

    def token_id(self, text: str) -> int | None:
        """The id of a special or other added token by its text, e.g. "<|im_end|>"."""
        return next((index for index, added in self._added.items() if added == text), None)

    def _spell(self, token_id: int) -> bytes:
        if token_id in self._added:
            return self._added[token_id].encode()
        if not 0 <= token_id < 1 << 31:
            return b""
        piece = self._backend.id_to_token(token_id)
        return b"" if piece is None else self._pieces.to_bytes(piece)

    @cached_property
    def _literal(self) -> tokenizers.Tokenizer:
        """A twin that takes special tokens' texts for plain text; made when first needed."""
        twin = tokenizers.Tokenizer.from_str(self._backend.to_str())
        twin.encode_special_tokens = True
        return twin


class Detokenizer:
    """The text of one stream of tokens, given out as soon as it is final.

    The pieces joined equal `tokenizer.decode` of all ids with `begins_text=False`. Never half a
    character, never a replacement character that a later token would turn into another one.
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, ids: Sequence[int]) -> str:
        """What the new tokens make certain; may be ""."""
        return self._utf8.decode(self._tokenizer.joined_bytes(ids, skip_special=self._skip_special))

    def flush(self) -> str:
        """What was held back, at the end of the stream; the detokenizer is then as new."""
        return self._utf8.decode(b"", final=True)


class _ByteLevelPieces:
    """GPT-2's spelling: every byte is one printable character."""

    strips_first_space = False

    def to_bytes(self, piece: str) -> bytes:
        try:
            return bytes(map(BYTE_OF.__getitem__, piece))
        except KeyError:  # a token written as it is read, as some added ones are
            return piece.encode()


class _SentencePieces:
    """SentencePiece's spelling: ▁ is a space, <0x0A> a single byte."""

    def __init__(self, *, strips_first_space: bool, byte_fallback: bool) -> None:
        self.strips_first_space = strips_first_space
        self._byte_fallback = byte_fallback

    def to_bytes(self, piece: str) -> bytes:
        if self._byte_fallback and len(piece) == 6 and piece.startswith("<0x"):
            return bytes.fromhex(piece[3:5])
        return piece.replace(WORD_START, " ").encode()


def _pieces(backend: tokenizers.Tokenizer, where: str) -> _ByteLevelPieces | _SentencePieces:
    """How tokens spell bytes, read off the decoder's own description."""
    state = json.loads(backend.decoder.__getstate__()) if backend.decoder else {"type": "none"}
    steps: list[dict[str, Any]] = state.get("decoders", [state])
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        return _ByteLevelPieces()
    if kinds == ["Metaspace"]:
        return _SentencePieces(
            strips_first_space=steps[0].get("prepend_scheme") != "never", byte_fallback=False
        )
    spaces = {"type": "Replace", "pattern": {"String": WORD_START}, "content": " "}
    if spaces in steps and set(kinds) <= {"Replace", "ByteFallback", "Fuse", "Strip"}:
        return _SentencePieces(
            strips_first_space="Strip" in kinds, byte_fallback="ByteFallback" in kinds
        )
    raise ModelError(
        f"a tokenizer that decodes by {', '.join(kinds)} is not supported",
        where=where,
        remedy="a model with a byte-level or a SentencePiece-like tokenizer",
    )


def _byte_of() -> dict[str, int]:
    """GPT-2's table: printable Latin-1 stands for itself, the other bytes for U+0100 onwards.

    Source: the encoder published with GPT-2 (Radford et al. 2019).
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(0x100 + index): byte for index, byte in enumerate(others)}


BYTE_OF = _byte_of()
