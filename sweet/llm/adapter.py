"""Reads LoRA adapters in the layout of `peft`: a folder with adapter_config.json, which names the base model.

Only the configuration is read here, without torch. `sweet.llm.pretrained` merges an adapter into its base for the
embedded engine; `sweet.llm.vllm` serves it with its base.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sweet.errors import UsageError, place_and_problem
from sweet.model_files import check_model_files
from sweet.regular import check_tree

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
LARGEST_RANK = 1 << 14
"""That of matrices as large as those of the largest models."""


class _Written(BaseModel):
    """The fields of adapter_config.json that are used."""

    model_config = ConfigDict(extra="ignore")

    peft_type: str = "LORA"
    base_model_name_or_path: str | None = None
    r: int = Field(default=8, ge=1, le=LARGEST_RANK)
    rank_pattern: dict[str, Annotated[int, Field(ge=1, le=LARGEST_RANK)]] = Field(default_factory=dict)
    use_dora: bool = False
    bias: str = "none"
    modules_to_save: list[str] | None = None


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter.

    Attributes:
        path: its folder.
        base: its base model: a directory or a hub id.
        rank: the highest rank of its matrices.
        own_tokenizer: whether its folder has a tokenizer; trainers save one there, peft itself does not.
        is_plain: whether it has only matrices of LoRA, so that a second adapter can be added to it as further rows and
            columns.
    """

    path: Path
    base: str
    rank: int
    own_tokenizer: bool = False
    is_plain: bool = True


def find_adapter(name: str) -> Adapter | None:
    """Return the adapter in the directory `name`; None if that is not an adapter.

    The files of a directory that looks like a model are checked, because libraries open them by their paths.

    Raises:
        UsageError: its configuration is invalid, or its base does not exist.
        InputError: a file in the directory is not a regular file, or in a run a link.
    """
    folder = Path(name).expanduser()
    path = folder / CONFIG
    if any(map(os.path.lexists, (path, folder / "config.json"))):
        check_tree(folder)
    if not path.is_file() or (folder / "config.json").is_file():
        return None
    check_model_files(folder)
    try:
        written = _Written.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise UsageError(
            f"The adapter {name} cannot be read: {place_and_problem(error)}.",
            where=path,
            fix="save the adapter again with peft",
        ) from error
    if written.peft_type != "LORA":
        raise UsageError(
            f"The adapter {name} has the type {written.peft_type}; only LoRA is supported.",
            where=path,
            fix="merge it into its base with peft and name the merged model",
        )
    base = _base(name, written.base_model_name_or_path, folder)
    return Adapter(
        folder,
        base,
        max([written.r, *written.rank_pattern.values()]),
        own_tokenizer=any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json")),
        is_plain=not written.use_dora and written.bias == "none" and not written.modules_to_save,
    )


def _base(name: str, written: str | None, folder: Path) -> str:
    if not written:
        raise UsageError(
            f"The adapter {name} does not name its base model.",
            where=f"{folder / CONFIG}, base_model_name_or_path",
            fix="write the base's directory or hub id there",
        )
    # A relative path was relative to where the training ran; otherwise try the folder of the adapter.
    for candidate in (Path(written).expanduser(), folder / written):
        if candidate.is_dir():
            return str(candidate)
    if written.startswith((".", "/", "~")) or written.count("/") > 1:
        raise UsageError(
            f"The base of the adapter {name} does not exist: {written}.",
            where=f"{folder / CONFIG}, base_model_name_or_path",
            fix="write the base's current directory or hub id there",
        )
    return written
