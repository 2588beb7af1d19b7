"""A BERT encoder on torch: token ids in, one vector a text out.

Shapes: B texts, T tokens of the longest, H hidden, N heads, D hidden a head. Everything is
float32: a text's vector is the same to 1e-6 whatever texts are computed beside it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import embedding, gelu, layer_norm, linear, scaled_dot_product_attention

from ridgeline.errors import ModelError
from ridgeline.serving.engine.encoder_files import EncoderShape


class Encoder:
    """The model of one folder, ready to compute."""

    def __init__(self, shape: EncoderShape, weights: Mapping[str, Tensor]) -> None:
        self._shape = shape
        self._weights = weights

    @classmethod
    def load(cls, folder: Path, shape: EncoderShape) -> "Encoder":
        """Read the weights. Raises ModelError where they are missing or torn."""
        file = folder / "model.safetensors"
        try:
            weights = {_plain(name): value.float() for name, value in load_file(file).items()}
        except (OSError, SafetensorError) as error:
            raise ModelError(
                f"the weights cannot be read: {error}",
                where=str(file),
                remedy="download the model again",
            ) from error
        _check(shape, weights, str(file))
        return cls(shape, weights)

    @torch.inference_mode()
    def embed(self, texts: Sequence[Sequence[int]]) -> Tensor:
        """The texts' vectors, B×H. Each text has 1 to `longest` ids below `vocab`."""
        longest = max(map(len, texts))
        ids_BT = torch.zeros(len(texts), longest, dtype=torch.long)
        real_BT = torch.zeros(len(texts), longest, dtype=torch.bool)
        for row, ids in enumerate(texts):
            ids_BT[row, : len(ids)] = torch.tensor(ids, dtype=torch.long)
            real_BT[row, : len(ids)] = True
        x_BTH = self._read(ids_BT)
        for layer in range(self._shape.layers):
            x_BTH = self._layer(f"encoder.layer.{layer}", x_BTH, real_BT)
        return self._pool(x_BTH, real_BT)

    def _read(self, ids_BT: Tensor) -> Tensor:
        words_BTH = embedding(ids_BT, self._weights["embeddings.word_embeddings.weight"])
        places_TH = self._weights["embeddings.position_embeddings.weight"][: ids_BT.shape[1]]
        kind_H = self._weights["embeddings.token_type_embeddings.weight"][0]
        return self._norm("embeddings.LayerNorm", words_BTH + places_TH + kind_H)

    def _layer(self, name: str, x_BTH: Tensor, real_BT: Tensor) -> Tensor:
        told_BTH = self._attend(f"{name}.attention", x_BTH, real_BT)
        x_BTH = self._norm(f"{name}.attention.output.LayerNorm", x_BTH + told_BTH)
        inner = gelu(self._linear(f"{name}.intermediate.dense", x_BTH))
        out_BTH = self._linear(f"{name}.output.dense", inner)
        return self._norm(f"{name}.output.LayerNorm", x_BTH + out_BTH)

    def _attend(self, name: str, x_BTH: Tensor, real_BT: Tensor) -> Tensor:
        texts, longest, hidden = x_BTH.shape
        q_BNTD, k_BNTD, v_BNTD = (
            self._linear(f"{name}.self.{part}", x_BTH)
            .view(texts, longest, self._shape.heads, -1)
            .transpose(1, 2)
            for part in ("query", "key", "value")
        )
        mask = real_BT[:, None, None, :]
        out_BNTD = scaled_dot_product_attention(q_BNTD, k_BNTD, v_BNTD, attn_mask=mask)
        out_BTH = out_BNTD.transpose(1, 2).reshape(texts, longest, hidden)
        return self._linear(f"{name}.output.dense", out_BTH)

    def _pool(self, x_BTH: Tensor, real_BT: Tensor) -> Tensor:
        if self._shape.pooling == "cls":
            v_BH = x_BTH[:, 0]
        else:
            real_BT1 = real_BT[:, :, None].float()
            v_BH = (x_BTH * real_BT1).sum(1) / real_BT1.sum(1)
        return torch.nn.functional.normalize(v_BH, dim=1) if self._shape.normalizes else v_BH

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return linear(x, self._weights[f"{name}.weight"], self._weights[f"{name}.bias"])

    def _norm(self, name: str, x: Tensor) -> Tensor:
        weight, bias = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        return layer_norm(x, (self._shape.hidden,), weight, bias, self._shape.eps)


def _plain(name: str) -> str:
    """Weights saved with a head on top carry a prefix."""
    return name.removeprefix("bert.")


def _check(shape: EncoderShape, weights: Mapping[str, Tensor], where: str) -> None:
    """Raises ModelError where the weights do not fit the config; the last layer stands for all."""
    words = weights.get("embeddings.word_embeddings.weight")
    last = f"encoder.layer.{shape.layers - 1}.output.dense.weight"
    if words is None or words.shape != (shape.vocab, shape.hidden) or last not in weights:
        raise ModelError(
            "the weights do not fit config.json", where=where, remedy="download the model again"
        )
