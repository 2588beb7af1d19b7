"""An embedding model, loaded: requests become token ids, ids become vectors.

Imported in the thread that loads, since torch takes seconds. Called by `embedding_front`.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from ridgeline.serving.engine.encoder import Encoder
from ridgeline.serving.engine.encoder_files import EncoderShape, read_shape, read_tokenizer
from ridgeline.serving.openai import ApiError, context_too_long


class EmbeddingModel:
    """One model of one folder. `stages_s` says what its start took, from `began_s`."""

    def __init__(self, folder: Path, *, longest: int, threads: int, began_s: float) -> None:
        self.shape: EncoderShape = read_shape(folder, longest=longest)
        self._tokenizer = read_tokenizer(folder)
        if threads:
            torch.set_num_threads(threads)
        self.threads = torch.get_num_threads()
        self._encoder = Encoder.load(folder, self.shape)
        loaded_s = time.monotonic()
        # Ready only after a real vector.
        self.vectors([self.ids("ready?", param="input")])
        self.stages_s = {"load": loaded_s - began_s, "warm-up": time.monotonic() - loaded_s}

    def ids(self, text: str | list[int], *, param: str) -> list[int]:
        """A text's token ids; ids that were sent are taken as they are.

        Raises ApiError 400 where they are too many (nothing is ever cut), or not in the vocabulary.
        """
        if isinstance(text, str):
            # As a batch of one: only batches let other threads run while they are encoded.
            ids: list[int] = self._tokenizer.encode_batch_fast([_clean(text)])[0].ids
        else:
            ids = text
        if len(ids) > self.shape.longest:
            raise context_too_long(len(ids), None, self.shape.longest, param=param)
        if max(ids) >= self.shape.vocab:
            problem = f"token {max(ids)} is not one of the model's {self.shape.vocab}"
            raise ApiError(400, f"Invalid value for {param}: {problem}.", param=param)
        return ids

    def vectors(self, texts: Sequence[Sequence[int]]) -> list[bytes]:
        """The texts' vectors as little-endian float32."""
        told_BH = self._encoder.embed(texts).contiguous().numpy()
        if sys.byteorder == "big":
            told_BH = told_BH.byteswap()
        return [row.tobytes() for row in told_BH]


def _clean(text: str) -> str:
    """Lone surrogates, which JSON may carry, become U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
