"""What several rooms want of torch and of the Hugging Face libraries, which are imported when it is asked for.

A hub id is looked up in the local cache first; the hub is asked once, with a short time-out, only for what the cache
lacks, because the library's own retries take most of a minute to find out that there is no network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweet.device import Device
from sweet.errors import UsageError, first_line
from sweet.hints import Hint, option

if TYPE_CHECKING:
    import torch

HUB_TIMEOUT = 10.0
"""Seconds the hub may take to say whether it knows a model."""


def resolve_device(device: Device) -> torch.device:
    """The torch device meant; UsageError where it is not there."""
    import torch

    there = torch.cuda.is_available()
    if device == "cuda" and not there:
        raise UsageError(
            "torch sees no CUDA device.",
            where=option("device", "cuda"),
            fix=Hint(option("device", "cpu"), " (or: sweet doctor)"),
        )
    return torch.device("cuda" if device == "cuda" or (device == "auto" and there) else "cpu")


def cached_file(model: str, name: str) -> Path | None:
    """A file of a hub id in the local cache; None where it is not there, or the id is none."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(model, name)
    except HFValidationError:
        return None
    return Path(found) if isinstance(found, str) else None


def check_hub_model(model: str, unknown: Callable[[str], UsageError]) -> None:
    """Raise what `unknown` makes of the reason where neither the local cache nor the hub has a model."""
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

    if cached_file(model, "config.json") is not None:
        return
    if constants.HF_HUB_OFFLINE:
        raise unknown("the hub is switched off (HF_HUB_OFFLINE)")
    try:
        HfApi().model_info(model, timeout=HUB_TIMEOUT)
    except (RepositoryNotFoundError, HFValidationError):
        raise unknown("the hub does not know it, or it is private and HF_TOKEN is not set") from None
    except Exception as error:
        raise unknown(f"the hub cannot be reached ({first_line(error)})") from error


@contextmanager
def without_progress_bars() -> Iterator[None]:
    """While it is open, transformers draws no progress bars."""
    from transformers.utils import logging as library

    logging: Any = library
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
