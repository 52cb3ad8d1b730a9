"""Tiny random vision-language models, each in a folder, and screenshots of painted pages."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from PIL import Image

from sweet.learn.trainee import save_model
from tests.learn import builders

FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")

SPECIAL = [
    "<pad>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
]

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for part in m['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Written after what Qwen2-VL's template does."""


def build_tokenizer(template: str = TEMPLATE) -> Any:
    """A byte-level BPE with the placeholders of pictures among its special tokens."""
    return builders.build_tokenizer(template, special=SPECIAL, size=420)


def build_model(tokenizer: Any, family: str = "qwen2_vl", seed: int = 0, width: int = 32, tower: int = 16) -> Any:
    """Two layers of text, `width` wide, and two of vision, `tower` wide."""
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText

    token = tokenizer.convert_tokens_to_ids
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": width // 4,
        "max_position_embeddings": 4096,
        "initializer_range": 0.2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]},
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    vision: dict[str, Any] = {"depth": 2, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2}
    vision |= {"temporal_patch_size": 2, "initializer_range": 0.2}
    if family == "qwen2_vl":
        vision |= {"embed_dim": tower, "hidden_size": width, "mlp_ratio": 2}
    else:
        vision |= {"hidden_size": tower, "intermediate_size": 2 * tower, "out_hidden_size": width}
    if family == "qwen2_5_vl":
        vision |= {"fullatt_block_indexes": [1], "window_size": 16}
    if family == "qwen3_vl":
        vision |= {"num_position_embeddings": 64, "deepstack_visual_indexes": [0, 1]}
    make: Any = AutoModelForImageTextToText.from_config
    torch.manual_seed(seed)
    config = AutoConfig.for_model(
        family,
        text_config=text,
        vision_config=vision,
        image_token_id=token("<|image_pad|>"),
        video_token_id=token("<|video_pad|>"),
        vision_start_token_id=token("<|vision_start|>"),
        vision_end_token_id=token("<|vision_end|>"),
        tie_word_embeddings=True,
    )
    return make(config).eval()


class _Processor:
    """A tokenizer and an image processor, as on the hub in one folder."""

    def __init__(self, tokenizer: Any, processor: Any) -> None:
        self.parts = (tokenizer, processor)

    def save_pretrained(self, folder: Path) -> None:
        for part in self.parts:
            part.save_pretrained(folder)


def make_sighted(folder: Path, family: str = "qwen2_vl", seed: int = 0, width: int = 32) -> str:
    """A tiny random vision-language model, saved: 64 pixels are a token."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    make: Any = Qwen2VLImageProcessorPil
    processor = make(patch_size=4, merge_size=2, temporal_patch_size=2, min_pixels=64, max_pixels=1 << 20)
    tokenizer = build_tokenizer()
    folder.mkdir(parents=True)
    save_model(build_model(tokenizer, family, seed, width), _Processor(tokenizer, processor), folder)
    return str(folder)


def paint(colour: str, width: int = 40, height: int = 24, corner: str | None = None) -> bytes:
    image = Image.new("RGB", (width, height), colour)
    if corner is not None:
        image.paste(corner, (0, 0, width // 2, height // 2))
    found = io.BytesIO()
    image.save(found, "PNG")
    return found.getvalue()


class PaintedScreenshots:
    """Screenshots by page (implements sweet.learn.page_encoder.Screenshots): PNG bytes, or an error text; records the
    requests."""

    def __init__(self, folder: Path, shots: dict[str, bytes | str]) -> None:
        self.requested: list[str] = []
        self.found: dict[str, Path | str] = {}
        for number, (page, shot) in enumerate(shots.items()):
            if isinstance(shot, str):
                self.found[page] = shot
            else:
                self.found[page] = folder / f"{number}.png"
                (folder / f"{number}.png").write_bytes(shot)

    def render_missing(self, pages: Iterable[str]) -> None:
        self.requested.extend(pages)

    def __call__(self, page: str) -> Path | str:
        return self.found[page]
