"""Pictures and videos as tokens."""

from ridgeline.physics.law import law
from ridgeline.quantity import Number, ceil


@law
def image_tokens(
    width_px: Number, height_px: Number, patch_px: Number, tokens_per_patch: Number = 1.0
) -> Number:
    """Tokens of a picture: whole patches along each side, the last one padded.

    Source: Dosovitskiy et al. 2020 (ViT); sides rounded up to whole patches.
    """
    return tokens_per_patch * ceil(width_px / patch_px) * ceil(height_px / patch_px)


@law
def video_tokens(
    frames: Number,
    width_px: Number,
    height_px: Number,
    frame_stride: Number,
    pixel_stride: Number,
    tokens_per_patch: Number = 1.0,
) -> Number:
    """Latent tokens of a video: the first frame on its own, then one for each stride of frames.

    Source: Wan 2.1, 2025: (1 + (F-1)/4) x H/16 x W/16 with its autoencoder and patches.
    """
    latent_frames = 1 + ceil((frames - 1) / frame_stride)
    columns, rows = ceil(width_px / pixel_stride), ceil(height_px / pixel_stride)
    return tokens_per_patch * latent_frames * columns * rows


@law
def full_attention_flop(
    layers: Number, hidden: Number, tokens: Number, flop_per_token_token: Number = 4.0
) -> Number:
    """Attention where every token sees every other (diffusion, encoders): 4 s^2 h a layer.

    Source: PaLM appendix B, 2022: QK and PV, 2 FLOP a value each, without a causal half.
    """
    return flop_per_token_token * tokens * tokens * hidden * layers
