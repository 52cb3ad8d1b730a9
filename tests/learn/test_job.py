"""A job is read as it was written."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from sweet.learn.components import Example, Objective, TokenTerms
from sweet.learn.estimate import ZeroSettings
from sweet.learn.job import Job
from sweet.learn.loop import LoopSettings
from sweet.learn.lora import LoraSettings
from sweet.learn.sequences import Span, TokenSequence, VisionModel
from sweet.learn.trainee import Start
from sweet.learn.vision_processor import vision_processor
from tests.learn.sighted import make_sighted
from tests.learn.sighted_data import BOUND, sighted_preferences


def test_a_job_round_trips(tmp_path: Path) -> None:
    pool = [TokenSequence((1, 2, 3), (Span(1, 3, 0),)), TokenSequence((1, 2), (Span(1, 2, 0),))]
    job = make_job(tmp_path, pool)
    job.write(tmp_path)
    assert Job.read(tmp_path) == job


def test_images_are_prepared_as_the_command_prepares_them(tmp_path: Path) -> None:
    model = make_sighted(tmp_path / "sighted")
    vision, pool, _ = sighted_preferences(model, tmp_path / "screenshots")
    job = make_job(tmp_path, pool.sequences, vision.model)
    job.write(tmp_path)
    found = Job.read(tmp_path)
    assert found == job
    assert found.vision is not None
    assert found.vision == VisionModel(model, BOUND)
    numbers = {len(sequence.images) for sequence in found.pool}
    assert numbers == {0, 2, 3, 4}
    shown = next(sequence for sequence in found.pool if sequence.images)
    assert shown.spans[0].reach is not None
    picture = shown.images[0]
    assert picture.vision == found.vision
    assert torch.equal(vision_processor(found.vision).patches(picture)[0], vision.patches(picture)[0])


def make_job(folder: Path, pool: list[TokenSequence], vision: VisionModel | None = None) -> Job:
    return Job(
        start=Start("micro", LoraSettings(4, 8, ("q_proj",)), "adapter", head=True),
        output=folder / "model",
        device="cpu",
        zero=ZeroSettings(2),
        settings=LoopSettings(lr=1e-4, epochs=1, batch=2, together=None),
        objective=Objective(0.1, 0.01),
        digest="d",
        resume=False,
        pool=pool,
        examples=[Example("pair", (0,), (1,), group="dialogue 1", terms=(TokenTerms((-1.0, -math.inf)),))],
        heldout=[Example("apart", (1,), (0,), goals=(1.0, 0.25))],
        vision=vision,
    )
