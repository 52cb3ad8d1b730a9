"""`sweet data export --to verifiers`, `gymnasium` and `openenv`: tasks, human and scorer as an installable package.

The package has the tasks, and the settings of the dialogues and of their scoring (`sweet.environments.settings`); human
and scorer stay in this program, on which it depends. Of a run, these are the tasks and the settings of its dialogues,
and the scorer of their newest scores; `--tasks` names others.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from sweet.datasets.exporting import DataExportConfig
from sweet.datasets.layout import task_order
from sweet.datasets.metrics import EnvironmentExportMetrics
from sweet.datasets.skeletons import copy_skeleton, new_folder
from sweet.environments.settings import OF_ROLLOUT, PERSONAS, PROMPTS, SETTINGS, TASKS, EnvironmentSettings
from sweet.errors import UsageError
from sweet.hints import option
from sweet.installation import DISTRIBUTION, VERSION
from sweet.rollouts.assignments import plan_humans
from sweet.rollouts.sides import check_human, check_no_tools
from sweet.runs.jsonl import read_jsonl
from sweet.runs.lineage import made_of
from sweet.runs.manifest import Artifact, Attempt, Manifest
from sweet.runs.run import Run
from sweet.stages.artifacts import given_prompts
from sweet.stages.base import Reporter, StageResult
from sweet.stages.meta import RolloutsMeta
from sweet.tasks.base import Task
from sweet.tasks.kind import TaskKind
from sweet.tasks.registry import task_kind
from sweet.tasks.splits import TEST, TRAIN, load_split
from sweet.tasks.trajectory import Trajectory

_SCORED_BY = ("scorer", "tolerance", "similarity")
_PLAYED_BY = ("rollout", "train-online")
"""The stages whose configurations name the simulated human."""


def run_environment_export(
    run: Run | None, config: DataExportConfig, reporter: Reporter
) -> StageResult[EnvironmentExportMetrics]:
    """Write the package into the new directory `config.out`.

    Args:
        run: with the dialogues whose tasks and settings are taken; None where `config.tasks` names the tasks.

    Raises:
        UsageError: the run has no dialogues, a setting does not fit the tasks, or the directory is not empty.
        InputError: a task, or a row of the dialogues, is invalid.
    """
    assert config.out is not None, "check_options"
    rollouts = None if run is None else run.find("rollouts", config.from_, needed_by="data export")
    attempt = None if run is None or rollouts is None else run.manifest().attempt(rollouts.attempt)
    kind = task_kind(config.task or ("code" if run is None else run.manifest().task))
    settings = _settings(kind, run, rollouts, attempt, config)
    prompts, personas = settings.rollout.prompts, settings.rollout.persona_file
    if prompts is not None:
        kind = kind.with_prompts(prompts)
    if settings.rollout.human == "spec":
        kind = kind.with_specifications()
    tasks, source, split = _tasks(kind, run, rollouts, config)
    if split == TEST:
        reporter.warn("These are test tasks: an agent that learns from them cannot be measured by them.")
    check_human(kind, tasks, settings.rollout)
    check_no_tools(kind, tasks, "an agent outside of sweet", "--to", "sweet rollout, or --to published")
    plan_humans(kind, settings.rollout)
    values = _names(config.name or f"{kind.name}-{_plain(Path(source).stem)}", kind, source, split, len(tasks))
    with new_folder(config.out) as folder:
        copy_skeleton(resources.files("sweet.environments") / "templates" / config.to, folder, values)
        package = folder / values["package"]
        (package / SETTINGS).write_text(settings.text(), encoding="utf-8")
        rows = (json.dumps(task.model_dump(mode="json", exclude_defaults=True), ensure_ascii=False) for task in tasks)
        (package / TASKS).write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
        if prompts is not None:
            (package / PROMPTS).mkdir()
            for file in sorted(prompts.glob("*.txt")):
                shutil.copyfile(file, package / PROMPTS / file.name)
        if personas is not None:
            shutil.copyfile(personas, package / PERSONAS)
        files = sum(path.is_file() for path in folder.rglob("*"))
    metrics = EnvironmentExportMetrics(
        tasks=len(tasks),
        package=values["package"],
        distribution=values["distribution"],
        files=files,
        out=str(config.out),
    )
    return StageResult("data export", config.out if run is None else run.path, metrics)


def _settings(
    kind: TaskKind, run: Run | None, rollouts: Artifact | None, attempt: Attempt | None, config: DataExportConfig
) -> EnvironmentSettings:
    """Return the settings; the folder of prompts and the file of personas are those that the dialogues were given."""
    rollout: dict[str, Any] = {"task": kind.name}
    scored: dict[str, Any] = {}
    if run is not None and rollouts is not None and attempt is not None:
        meta = RolloutsMeta.of(rollouts)
        played = attempt.config if attempt.stage in _PLAYED_BY else {}
        recorded = {"max_turns": meta.max_turns, "protocol": meta.protocol, "human": meta.human}
        rollout |= {name: value for name, value in recorded.items() if value is not None}
        rollout |= {name: played[name] for name in OF_ROLLOUT if played.get(name) is not None}
        scored = _scoring(run.manifest(), rollouts)
        rollout |= {"prompts": _prompts(kind, played, meta), "persona_file": _file(played, "persona_file")}
    if config.sim is not None:
        rollout |= {"sim": config.sim, "sim_url": []}
    if config.sim_url:
        rollout["sim_url"] = list(config.sim_url)
    return EnvironmentSettings.model_validate({"rollout": rollout, "eval": scored})


def _scoring(manifest: Manifest, rollouts: Artifact) -> dict[str, Any]:
    """Return the settings of the newest scores of these dialogues; empty without."""
    for scores in made_of(manifest, "scores", rollouts):
        attempt = manifest.attempt(scores.attempt)
        if attempt is not None and attempt.stage == "eval":
            settings = attempt.config
            scoring = {name: settings[name] for name in _SCORED_BY if settings.get(name) is not None}
            return scoring | ({"scorer": "strict"} if scoring.get("scorer") == "both" else {})
    return {}


def _prompts(kind: TaskKind, played: Mapping[str, Any], meta: RolloutsMeta) -> Path | None:
    """Return the folder of the prompts that the dialogues were played with; None for the packaged ones.

    Raises:
        UsageError: they are not there any more, or have changed.
    """
    if meta.prompts_digest is None:
        return None
    folder = _file(played, "prompts")
    if folder is not None and folder.is_dir():
        prompts = given_prompts(kind.with_prompts(folder), folder, meta.max_turns or 1)
        if prompts["prompts_digest"] == meta.prompts_digest:
            return folder
    raise UsageError(
        "The prompts of these dialogues are not there any more, or have changed.",
        where=folder or "the run",
        fix="restore the folder, or --tasks DATASET without the run",
    )


def _file(played: Mapping[str, Any], name: str) -> Path | None:
    value = played.get(name)
    return Path(value) if isinstance(value, str) else None


def _tasks(
    kind: TaskKind, run: Run | None, rollouts: Artifact | None, config: DataExportConfig
) -> tuple[list[Task], str, str]:
    """Return the tasks, their dataset and its split."""
    if config.tasks is not None:
        split = config.split or TRAIN
        return load_split(kind, config.tasks, split).tasks, config.tasks, split
    if run is None or rollouts is None:
        raise UsageError("Neither tasks nor a run are named.", where="--tasks", fix="--tasks DATASET")
    tasks: dict[str, Task] = {}
    for trajectory in read_jsonl(run.file(rollouts), Trajectory):
        tasks.setdefault(trajectory.task_id, trajectory.task)
    meta = RolloutsMeta.of(rollouts)
    names: Sequence[str] = sorted(tasks, key=task_order)
    return [tasks[name] for name in names], meta.tasks or "imported", meta.split or TRAIN


def _names(name: str, kind: TaskKind, source: str, split: str, tasks: int) -> dict[str, str]:
    """Return the values of the placeholders in the templates.

    Raises:
        UsageError: the name cannot be that of a package.
    """
    if name != _plain(name) or len(name) > _LONGEST:
        raise UsageError(
            f"{name!r} cannot be the name of a package.",
            where="--name",
            fix=option("name", _plain(name)[:_LONGEST].strip("-") or "mine"),
        )
    distribution = f"sweet-env-{name}"
    stem = _plain(Path(source).stem) or "file"
    return {
        "distribution": distribution,
        "package": distribution.replace("-", "_"),
        "Class": "".join(part.capitalize() for part in distribution.split("-")),
        "description": f"{tasks} tasks of the kind {kind.name} ({stem}, {split}), with a human who knows the details.",
        "sweet": DISTRIBUTION,
        "version": VERSION,
    }


_LONGEST = 60
"""Characters of a name."""


def _plain(text: str) -> str:
    """Return text as part of a package's name: lower-case ASCII letters and digits, with single hyphens between."""
    words = "".join(letter if letter.isascii() and letter.isalnum() else " " for letter in text.lower()).split()
    return "-".join(words)
