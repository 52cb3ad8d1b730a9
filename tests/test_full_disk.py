"""A full disk is recognised in the exceptions of the libraries that write models and checkpoints."""

# ruff: noqa: PT012 - what is expected to raise is an attempt, with what is done in it

from __future__ import annotations

import errno
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from sweet.errors import AGAIN, ServerError, SweetError, UsageError
from sweet.full_disk import full_disk
from sweet.learn.engine import save_atomically
from sweet.learn.launcher import error_fields
from sweet.learn.trainee import save_model
from sweet.llm.pretrained import load_model, load_tokenizer
from sweet.online.config import TrainOnlineConfig
from sweet.rollouts.config import RolloutConfig
from sweet.runs.run import Run
from sweet.training.config import TrainCriticConfig
from tests.runs.conftest import Settings

TENSORS = {"a": torch.zeros(100_000)}


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """The system refuses to let any file of this process grow beyond a size, as a full disk would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def _model(folder: Path) -> None:
    tokenizer = load_tokenizer("micro")
    save_model(load_model("micro", "cpu", tokenizer=tokenizer), tokenizer, folder)


WRITERS: tuple[Callable[[Path], object], ...] = (
    lambda folder: save_atomically(TENSORS, folder / "checkpoint"),
    lambda folder: save_file(TENSORS, folder / "weights"),
    lambda folder: load_tokenizer("micro").save_pretrained(folder),
    _model,
)


@pytest.mark.parametrize("write", WRITERS)
def test_a_stage_that_cannot_write_says_so(tmp_path: Path, write: Callable[[Path], object]) -> None:
    run = Run.create(tmp_path / "run")
    with (
        pytest.raises(SweetError, match="largest size that is allowed: File too large") as raised,
        run.attempt("train-critic", Settings()) as attempt,
    ):
        folder = attempt.start_artifact("critic", suffix="").path
        with largest_file(4096):
            write(folder)
    assert raised.value.fix is not None
    assert "ulimit -f" in raised.value.fix
    assert raised.value.__cause__ is not None
    recorded = run.manifest().attempts[0]
    assert recorded.status == "failed"
    assert "largest size" in (recorded.error or "")
    assert not list(folder.glob("*.part")), "what was begun does not fill the disk"


@pytest.mark.parametrize(
    "error",
    [
        lambda: OSError(errno.ENOSPC, ""),
        lambda: OSError(errno.EIO, ""),
        lambda: ServerError("It is away.", fix=f"start it, then {AGAIN}"),
    ],
    ids=["full disk", "faulty disk", "server"],
)
@pytest.mark.parametrize(
    ("stage", "config", "then"),
    [
        ("train-critic", TrainCriticConfig(lr=1e-4), "go on: sweet train-critic {run} --resume"),
        ("train-online", TrainOnlineConfig(algorithm="grpo"), "go on: sweet train-online {run} --resume"),
        ("train-critic", TrainCriticConfig(lr=1e-4, resume=True), "run the same command again"),
        ("rollout", RolloutConfig(), "run the same command again"),
    ],
)
def test_a_training_is_gone_on_with_and_not_begun_again(
    stage: str, config: Any, then: str, error: Callable[[], Exception], tmp_path: Path
) -> None:
    run, then = Run.create(tmp_path / "run"), then.format(run=tmp_path / "run")
    with pytest.raises(SweetError) as raised, run.attempt(stage, config):
        raise error()
    assert raised.value.fix is not None
    assert raised.value.fix.endswith(f", then {then}")
    assert (run.manifest().attempts[0].error or "").endswith(f", then {then}")


def test_a_full_device() -> None:
    with pytest.raises((OSError, RuntimeError)) as raised, Path("/dev/full").open("wb") as file:
        torch.save(TENSORS, file)
    found = full_disk(raised.value, Path("run"))
    assert found is not None
    assert (found.what, found.where) == ("The disk is full: No space left on device.", "run")
    assert error_fields(raised.value)["what"] == found.what


def _raised(error: Exception, cause: BaseException) -> Exception:
    error.__context__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (OSError(errno.ENOSPC, "", "/full/file"), "The disk is full"),
        (OSError(errno.EDQUOT, ""), "The disk quota is used up"),
        (ValueError("I/O error: No space left on device (os error 28)"), "The disk is full"),
        (ExceptionGroup("two", [ValueError(), OSError(errno.ENOSPC, "")]), "The disk is full"),
        (_raised(RuntimeError("unexpected pos 64"), OSError(errno.ENOSPC, "")), "The disk is full"),
        (OSError(errno.EACCES, ""), None),
        (ValueError("No space left on device"), None),
        (ValueError("(os error 2)"), None),
        (_raised(UsageError("It is said already."), OSError(errno.ENOSPC, "")), None),
    ],
)
def test_what_is_a_full_disk(error: Exception, what: str | None) -> None:
    found: Any = full_disk(error)
    assert (None if found is None else found.what.partition(":")[0]) == what
