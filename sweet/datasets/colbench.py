"""`sweet data colbench`: fetch the backend tasks of ColBench from the model hub into the user's data folder.

The files are those of the dataset's card. Each is checked row by row before it is put in place, so that a failed
download is never mistaken for the dataset. A row that is no task is left out and named, and the rest is kept.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sweet.datasets.hub import reaching_hub
from sweet.datasets.metrics import ColBenchMetrics
from sweet.datasets.published import read_trajectories
from sweet.errors import InputError, SweetError
from sweet.files import replacing
from sweet.paths import data_folder
from sweet.stages.base import Reporter, StageResult
from sweet.stages.options import HubConfig
from sweet.tasks.files import COLBENCH_SPLITS, downloaded_file, read_tasks
from sweet.tasks.registry import task_kind
from sweet.units import count

DATASET = "facebook/collaborative_agent_bench"
NAMED = 5
"""Rows that were left out and are named."""
TRAJECTORIES = "colbench_code_offline_15k_llama8b.jsonl"


class ColBenchConfig(HubConfig):
    trajectories: bool = False
    """Also fetch the published offline dialogues (hundreds of MB), for sweet data import."""


Download = Callable[..., str]
"""`huggingface_hub.hf_hub_download`, or what takes its place in a test."""


def run_data_colbench(
    config: ColBenchConfig, reporter: Reporter, download: Download | None = None
) -> StageResult[ColBenchMetrics]:
    """Fetch the missing files. The result's `run` is the data folder.

    Raises:
        ServerError: the hub could not be reached, or it is offline and its cache lacks the file.
        SweetError: the hub refused access, or its file is not the dataset.
    """
    if download is None:
        from huggingface_hub import hf_hub_download

        download = hf_hub_download
    folder = data_folder() / "colbench"
    folder.mkdir(parents=True, exist_ok=True)
    metrics: dict[str, int] = {}
    files: list[tuple[str, str, Path, Callable[[Path], Contents]]] = [
        (split, f"backend_tasks/{split}.jsonl", downloaded_file("colbench", split), _tasks) for split in COLBENCH_SPLITS
    ]
    if config.trajectories:
        files.append(("trajectories", TRAJECTORIES, folder / TRAJECTORIES, _trajectories))
    for name, remote, local, read in files:
        if config.force or not local.is_file():
            reporter.say(f"Fetching {remote} of {DATASET}.")
            metrics[name] = _fetch(download, remote, config.revision, local, read, reporter)
        else:
            metrics[name] = read(local).rows
    if config.trajectories:
        reporter.say(f"sweet data import {folder / TRAJECTORIES} RUN imports the dialogues into a run.")
    return StageResult("data colbench", folder, ColBenchMetrics(**metrics))


def _fetch(
    fetch: Download, remote: str, revision: str, local: Path, read: Callable[[Path], Contents], reporter: Reporter
) -> int:
    with reaching_hub(f"{DATASET}, {remote}", again="sweet data colbench"):
        cached = Path(fetch(DATASET, remote, repo_type="dataset", revision=revision))
    try:
        contents = read(cached)
        if not contents.rows:
            raise next(iter(contents.errors), InputError("The file is empty.", path=cached, fix="another --revision"))
    except InputError as error:
        raise SweetError(
            f"The hub's file is invalid: {error.what}",
            where=error.where,
            fix="sweet data colbench --force",
        ) from error
    with replacing(local) as target, cached.open("rb") as source:
        if contents.errors:  # ids derive from the places of rows, which change
            rows = (json.loads(text) | {"id": contents.ids[n]} for n, text in enumerate(source, 1) if n in contents.ids)
            target.writelines(json.dumps(row).encode() + b"\n" for row in rows)
        else:
            shutil.copyfileobj(source, target)
    if contents.errors:
        named = "; ".join(f"{error.where}: {error.what}" for error in contents.errors[:NAMED])
        left_out = f"{count(len(contents.errors), 'row')} of {remote} that are no tasks were left out"
        reporter.warn(f"{left_out}: {named}{' …' if len(contents.errors) > NAMED else ''}")
    return contents.rows


@dataclass(frozen=True)
class Contents:
    """What a file has: valid rows, the ids of its tasks by their lines, and what is wrong with other rows."""

    rows: int
    ids: Mapping[int, str] = field(default_factory=dict)
    errors: Sequence[InputError] = ()


def _tasks(path: Path) -> Contents:
    rows = list(read_tasks(path, task_kind("code").fields))
    errors = [row for _, row in rows if isinstance(row, InputError)]
    ids = {line: row.id for line, row in rows if not isinstance(row, InputError)}
    return Contents(len(ids), ids, errors)


def _trajectories(path: Path) -> Contents:
    return Contents(sum(1 for _ in read_trajectories(path)))
