"""Image towers of tiny random CLIP and SigLIP models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sweet.errors import UsageError
from sweet.render.screenshot_images import black_square, read_image
from sweet.render.similarity import cosine
from sweet.render.similarity_models import ImageTower, is_cached, open_similarity
from tests.render.pictures import make_clip, make_siglip, page, plain

MAKE = {"clip": make_clip, "siglip": make_siglip}


@pytest.mark.parametrize("family", ["clip", "siglip"])
def test_embeddings_are_those_of_the_whole_model(
    family: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = MAKE[family](tmp_path / "tiny")
    capfd.readouterr()
    tower = ImageTower(folder, "cpu")
    pictures = [page(0), page(1, height=900), plain("red"), black_square()]
    vectors = tower.embed(pictures)
    assert capfd.readouterr() == ("", "")
    for picture, vector in zip(pictures, vectors, strict=True):
        assert vector == pytest.approx(_whole_model(folder, picture), abs=1e-5)
    assert cosine(vectors[0], vectors[0]) == pytest.approx(1, abs=1e-6)
    assert np.array_equal(vectors[1], tower.embed([pictures[1]])[0]) or vectors[1] == pytest.approx(
        tower.embed([pictures[1]])[0], abs=1e-6
    )


def _whole_model(folder: str, picture: bytes) -> Any:
    """Return the output of the model's own `get_image_features`, scaled to length 1."""
    from transformers import AutoImageProcessor, AutoModel

    automatic: Any = AutoModel
    processors: Any = AutoImageProcessor
    prepared = processors.from_pretrained(folder)(images=[read_image(picture)], return_tensors="pt")
    with torch.inference_mode():
        found = automatic.from_pretrained(folder).eval().get_image_features(**prepared)
    features = getattr(found, "pooler_output", found)[0].numpy()
    return features / np.linalg.norm(features)


def test_the_name_depends_on_weights_and_preprocessing(tmp_path: Path) -> None:
    first = ImageTower(make_clip(tmp_path / "one" / "tiny"), "cpu").name
    assert first.startswith("tiny@")
    assert ImageTower(make_clip(tmp_path / "two" / "tiny"), "cpu").name == first
    assert ImageTower(make_clip(tmp_path / "three" / "tiny", seed=1), "cpu").name != first
    settings = tmp_path / "two" / "tiny" / "preprocessor_config.json"
    settings.write_text(
        json.dumps({**json.loads(settings.read_text()), "do_center_crop": False, "size": {"height": 32, "width": 32}})
    )
    assert ImageTower(str(tmp_path / "two" / "tiny"), "cpu").name != first


def test_open_similarity_accepts_a_directory(tmp_path: Path) -> None:
    folder = make_siglip(tmp_path / "tiny")
    found = open_similarity(folder, "cpu", print)
    assert found.name.startswith("tiny@")
    assert found.choice == folder


def test_other_models_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(UsageError, match="type llama"):
        ImageTower(str(tmp_path), "cpu")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UsageError, match="cannot be loaded"):
        ImageTower(str(tmp_path), "cpu")
    (tmp_path / "config.json").unlink()
    with pytest.raises(UsageError, match=r"no config\.json"):
        ImageTower(str(tmp_path), "cpu")


def test_incomplete_weights_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = Path(make_clip(tmp_path / "tiny"))
    weights = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if "visual_projection" not in name}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UsageError, match=r"incomplete.*visual_projection"):
        ImageTower(str(folder), "cpu")


def test_a_model_without_its_image_processor_is_refused(tmp_path: Path) -> None:
    folder = Path(make_clip(tmp_path / "tiny"))
    (folder / "preprocessor_config.json").unlink()
    with pytest.raises(UsageError, match="cannot be loaded") as caught:
        ImageTower(str(folder), "cpu")
    assert "preprocessor_config.json" in str(caught.value.fix)


def test_a_model_that_was_never_downloaded_is_not_cached() -> None:
    assert not is_cached("nobody/nothing-at-all")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_device_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="CUDA"):
        ImageTower(make_clip(tmp_path / "tiny"), "cuda")
