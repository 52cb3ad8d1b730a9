"""Pictures that look a little like pages, drawn without a browser, and tiny random models to embed them with."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from sweet.render.photo import PHOTO_FILE, photo_rule


def png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def save_photo(folder: Path, width: int = 1200, height: int = 800) -> str:
    """Save a stand-in for the photograph, red on its left half and blue on its right; return its picture rule."""
    image = Image.new("RGB", (width, height), "#cc2020")
    ImageDraw.Draw(image).rectangle((width // 2, 0, width, height), fill="#2020cc")
    folder.mkdir(parents=True, exist_ok=True)
    image.save(folder / PHOTO_FILE, "JPEG", quality=95)
    return photo_rule(folder)


def plain(colour: str, width: int = 320, height: int = 240) -> bytes:
    return png(Image.new("RGB", (width, height), colour))


def page(seed: int = 0, accent: str = "#2266cc", height: int = 480, shift: int = 0) -> bytes:
    """Draw a page with a header, lines of "text" and one to three boxes, placed by the seed; `shift` moves it down."""
    rng = random.Random(seed)
    image = Image.new("RGB", (640, height), "white")
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, shift, 640, shift + rng.randint(40, 80)), fill=accent)
    for _ in range(rng.randint(6, 12)):
        x, y, width = rng.randint(0, 300), rng.randint(100, height - 20) + shift, rng.randint(60, 300)
        for letter in range(x, x + width, 7):
            draw.rectangle((letter, y, letter + 4, y + rng.randint(5, 10)), fill="#333333")
    for _ in range(rng.randint(1, 3)):
        x, y = rng.randint(0, 400), rng.randint(80, height - 120) + shift
        draw.rectangle((x, y, x + rng.randint(60, 200), y + rng.randint(40, 100)), fill=rng.choice(["#eeeeee", accent]))
    return png(image)


def make_clip(folder: Path, seed: int = 0) -> str:
    """Save a tiny random CLIP in the hub's layout, with both towers and the image processor, and return its path."""
    import torch
    from transformers import CLIPConfig, CLIPModel

    text, vision = _towers()
    torch.manual_seed(seed)
    make: Any = CLIPModel
    model = make(CLIPConfig(text_config=text, vision_config=vision, projection_dim=12))
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    processor: Any = CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    return _save(model, processor, folder)


def make_siglip(folder: Path, seed: int = 0) -> str:
    """Save a tiny random SigLIP, and return its path."""
    import torch
    from transformers import SiglipConfig, SiglipModel

    text, vision = _towers()
    torch.manual_seed(seed)
    make: Any = SiglipModel
    model = make(SiglipConfig(text_config=text, vision_config=vision))
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

    return _save(model, SiglipImageProcessorPil(size={"height": 32, "width": 32}), folder)


def _towers() -> tuple[dict[str, Any], dict[str, Any]]:
    size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    marks = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    return {**size, **marks, "vocab_size": 10}, {**size, "image_size": 32, "patch_size": 8}


def _save(model: Any, processor: Any, folder: Path) -> str:
    from transformers.utils import logging

    library: Any = logging
    library.disable_progress_bar()
    try:
        model.save_pretrained(folder)
        processor.save_pretrained(folder)
    finally:
        library.enable_progress_bar()
    return str(folder)
