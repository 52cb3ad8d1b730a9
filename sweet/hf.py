"""Helpers for torch and the Hugging Face libraries, which are imported on first use.

A hub id is looked up in the local cache first. Only if the cache lacks it, the hub is asked once with a short time-out,
because the library's own retries take most of a minute when there is no network.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweet.device import Device
from sweet.errors import UsageError, first_line

if TYPE_CHECKING:
    import torch

HUB_TIMEOUT = 10.0
"""Seconds that the hub may take to say whether it has a model."""


_SAVING = threading.Lock()
_LOOK_FOR_CONTAINERS = "unwrap_model"
"""The library's function that does so."""


class UnknownModel(UsageError):
    """Neither a directory nor the hub has a model of this name."""


def resolve_device(device: Device) -> torch.device:
    """The torch device for an option value.

    Raises:
        UsageError: `cuda` was requested and torch sees no CUDA device.
    """
    import torch

    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise UsageError(
            "torch sees no CUDA device.",
            where="--device cuda",
            fix="--device cpu (or: sweet doctor)",
        )
    return torch.device("cuda" if device == "cuda" or (device == "auto" and available) else "cpu")


def save_plain(model: Any, folder: Path, **options: Any) -> None:
    """Write a model that is in no container of other libraries, as its `save_pretrained`.

    The library looks for such containers, and imports DeepSpeed for that if it is installed: that takes a second. A
    version of it that looks for them in another way does so here, too.
    """
    from transformers import modeling_utils

    library: Any = modeling_utils
    with _SAVING:
        look_for_containers = getattr(library, _LOOK_FOR_CONTAINERS, None)
        if look_for_containers is not None:
            setattr(library, _LOOK_FOR_CONTAINERS, lambda model, **_: model)
        try:
            model.save_pretrained(folder, **options)
        finally:
            if look_for_containers is not None:
                setattr(library, _LOOK_FOR_CONTAINERS, look_for_containers)


def cached_file(model: str, name: str) -> Path | None:
    """The path of a hub model's file in the local cache; None if it is not cached, or `model` is not a hub id."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(model, name)
    except HFValidationError:
        return None
    return Path(found) if isinstance(found, str) else None


def check_hub_model(model: str, unknown: Callable[[str], UsageError]) -> None:
    """Check that the local cache or the hub has a model; otherwise raise the error that `unknown` returns."""
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
    """Switch off the progress bars of transformers in this context."""
    from transformers.utils import logging as library

    logging: Any = library
    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()
