"""Helpers for torch and the Hugging Face libraries, which are imported on first use.

A hub id is looked up in the local cache first. Only if the cache lacks it, the hub is asked once with a short time-out,
because the library's own retries take most of a minute when there is no network.
"""

from __future__ import annotations

import re
import shlex
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from sweet import collector
from sweet.device import Device
from sweet.errors import UsageError, first_line
from sweet.gpus import keep_off_held_gpus
from sweet.model_files import LARGEST, check_model_files
from sweet.suggestions import did_you_mean

if TYPE_CHECKING:
    import torch

HUB_TIMEOUT = 10.0
"""Seconds that the hub may take to say whether it has a model."""

LOGIN = "accept the model's licence on its page of huggingface.co, then hf auth login, or set HF_TOKEN"
"""How a gated model is made available."""

_LONGEST_REASON = 600
"""Characters of a library's message that are shown."""
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")

_SAVING = threading.Lock()
_LOOK_FOR_CONTAINERS = "unwrap_model"
"""The library's function that does so."""


class UnknownModel(UsageError):
    """Neither a directory nor the hub has a model of this name."""


def resolve_device(device: Device) -> torch.device:
    """The torch device for an option value.

    Raises:
        UsageError: `cuda` was requested and torch sees no CUDA device; or servers of other commands hold all of them.
    """
    import torch

    cuda: Any = torch.cuda
    if device != "cpu" and not cuda.is_initialized():
        keep_off_held_gpus()
    available = cuda.is_available()
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


def cached_models() -> list[str]:
    """Return the ids of the hub's models in the local cache."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return ["/".join(path.name.split("--")[1:]) for path in sorted(Path(HF_HUB_CACHE).glob("models--*"))]


def locate_model(name: str, path: str, *, where: str, fix: str, known: Iterable[str] = ()) -> str:
    """The directory or hub id to load a model from, after checking that it exists.

    Args:
        name: of the model, as the user gave it; path: a directory or hub id.
        where, fix: of the errors.
        known: further names, of which one is suggested where it is similar.

    Raises:
        UnknownModel: neither this machine nor the hub has it.
        UsageError: the path is that of something else.
    """
    local = Path(path).expanduser()
    if local.is_dir():
        if not (local / "config.json").is_file():
            raise UsageError(f"The directory {name} is not a model: it has no config.json.", where=where, fix=fix)
        if name not in known:
            check_model_files(local)
        return str(local)
    if local.exists():
        if local.suffix == ".gguf":
            own = f"python examples/convert_model.py {shlex.quote(name)} FOLDER, in the checkout of sweet"
            fix = f"{own}; or only play it, at the address of a llama-server (docs/small-models.md)"
        raise UsageError(f"{name} is a file; a model is a directory in Hugging Face layout.", where=where, fix=fix)
    if not _HUB_ID.fullmatch(path) or path.startswith("."):
        beside = local.parent.iterdir() if local.parent.is_dir() else ()
        meant = did_you_mean(str(local), map(str, beside))
        raise UnknownModel(f"There is no model directory {name}.{meant}", where=where, fix=fix)
    if cached_file(path, "config.json") is None and (why := not_on_the_hub(path)) is not None:
        what = f"There is no model {name!r}: no such directory, not in the local cache, and {why}."
        what += did_you_mean(name, [*known, *cached_models()])
        raise UnknownModel(what, where=where, fix=fix)
    config = cached_file(path, "config.json")
    if config is None:  # what is checked is downloaded before the weights are
        from huggingface_hub import snapshot_download

        with loading_errors(name, where=where, fix=fix):
            config = Path(snapshot_download(path, allow_patterns=[f"*{end}" for end in LARGEST])) / "config.json"
    check_model_files(config.parent)
    return path


def not_on_the_hub(model: str) -> str | None:
    """Return why a model cannot be downloaded from the hub; None if it can."""
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

    if constants.HF_HUB_OFFLINE:
        return "the hub is switched off (HF_HUB_OFFLINE)"
    try:
        HfApi().model_info(model, timeout=HUB_TIMEOUT)
    except (RepositoryNotFoundError, HFValidationError):
        return "the hub does not know it, or it is private and HF_TOKEN is not set"
    except Exception as error:
        return f"the hub cannot be reached ({first_line(error)})"
    return None


def is_gated(reason: str) -> bool:
    """Whether the message of an error of the hub's libraries says that a model is gated."""
    return re.search(r"gated repo|access to model \S+ is restricted", reason, re.IGNORECASE) is not None


@contextmanager
def loading_errors(name: str, *, where: str, fix: str) -> Iterator[None]:
    """Hide the progress bars of transformers, and raise its errors as a UsageError. It imports modules while it
    loads."""
    try:
        with without_progress_bars(), collector.paused():
            yield
    except UsageError:
        raise
    except Exception as error:
        reason = shorten(str(error), _LONGEST_REASON) or type(error).__name__
        fix = LOGIN if is_gated(reason) else fix
        raise UsageError(f"The model {name} cannot be loaded: {reason}", where=where, fix=fix) from error


def check_complete(report: Mapping[str, Any], name: str, where: str) -> None:
    """Check what `from_pretrained` reports: it initialises missing weights randomly and only warns.

    Raises:
        UsageError: weights are missing.
    """
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise UsageError(
            f"The weights of {name} are incomplete: {len(missing)} tensors are missing, the first is {missing[0]}.",
            where=where,
            fix="save or download the model again",
        )


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
