"""A job is read as it was written."""

from __future__ import annotations

from pathlib import Path

from sweet.learn.data import Example, Objective
from sweet.learn.job import Job
from sweet.learn.loop import LoopSettings
from sweet.learn.lora import LoraSettings
from sweet.learn.tokens import Span, TokenSequence
from sweet.learn.trainee import Start
from sweet.learn.zero import ZeroSettings


def test_a_job_round_trips(tmp_path: Path) -> None:
    pool = [TokenSequence((1, 2, 3), (Span(1, 3, 0),)), TokenSequence((1, 2), (Span(1, 2, 0),))]
    job = Job(
        start=Start("micro", LoraSettings(4, 8, ("q_proj",)), "adapter", head=True),
        output=tmp_path / "model",
        device="cpu",
        zero=ZeroSettings(2),
        settings=LoopSettings(lr=1e-4, epochs=1, batch=2, grouped=True),
        objective=Objective(0.1, 0.01),
        digest="d",
        resume=False,
        pool=pool,
        examples=[Example("pair", (0,), (1,), group="dialogue 1")],
        heldout=[Example("apart", (1,), (0,), goals=(1.0, 0.25))],
    )
    job.write(tmp_path / "job.pt")
    assert Job.read(tmp_path / "job.pt") == job
