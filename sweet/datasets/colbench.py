"""`sweet data colbench`: fetch the backend tasks of ColBench from the model hub into the user's data folder.

The files are those of the dataset's card. Each is checked row by row before it is put in place, so that a failed
download is never mistaken for the dataset.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from sweet.datasets.hub import reaching_hub
from sweet.datasets.metrics import ColBenchMetrics
from sweet.datasets.published import read_trajectories
from sweet.errors import InputError, SweetError
from sweet.files import replacing
from sweet.paths import data_folder
from sweet.stages.base import Reporter, StageResult
from sweet.stages.options import HubConfig
from sweet.tasks.files import COLBENCH_SPLITS, downloaded_file
from sweet.tasks.registry import task_kind

DATASET = "facebook/collaborative_agent_bench"
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
    wanted: list[tuple[str, str, Path, Callable[[Path], int]]] = [
        (split, f"backend_tasks/{split}.jsonl", downloaded_file("colbench", split), _count_tasks)
        for split in COLBENCH_SPLITS
    ]
    if config.trajectories:
        wanted.append(("trajectories", TRAJECTORIES, folder / TRAJECTORIES, _count_trajectories))
    for name, remote, local, count in wanted:
        if config.force or not local.is_file():
            reporter.say(f"Fetching {remote} of {DATASET}.")
            metrics[name] = _fetch(download, remote, config.revision, local, count)
        else:
            metrics[name] = count(local)
    if config.trajectories:
        reporter.say(f"sweet data import {folder / TRAJECTORIES} RUN imports the dialogues into a run.")
    return StageResult("data colbench", folder, ColBenchMetrics(**metrics))


def _fetch(fetch: Download, remote: str, revision: str, local: Path, count: Callable[[Path], int]) -> int:
    with reaching_hub(f"{DATASET}, {remote}", again="sweet data colbench"):
        cached = Path(fetch(DATASET, remote, repo_type="dataset", revision=revision))
    try:
        rows = count(cached)
    except InputError as error:
        raise SweetError(
            f"The hub's file is invalid: {error.what}",
            where=error.where,
            fix="sweet data colbench --force, perhaps with another --revision",
        ) from error
    with replacing(local) as target, cached.open("rb") as source:
        shutil.copyfileobj(source, target)
    return rows


def _count_tasks(path: Path) -> int:
    return len(task_kind("code").load(str(path), "train"))


def _count_trajectories(path: Path) -> int:
    return sum(1 for _ in read_trajectories(path))
