"""What may stand where the cursor is: runs, artifacts, models, files, names.

Everything here is read by a shell and put into the user's command line, so nothing is offered that a shell would read
as anything but a plain word: a file, an id or a model whose name holds other characters is left to be typed. Whatever
goes wrong, there is nothing to offer. No run is locked, changed or trusted: of a manifest, which may be anybody's, only
the artifacts' ids are taken, if they look like ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from sweet.cli.declaration import ArgumentSpec, Declaration, OptionSpec
from sweet.paths import RUNS
from sweet.runs.stages import STAGES

Values = Mapping[str, Any]
"""The arguments and options that are given so far, by field name."""
Complete = Callable[[Values, str], list[str]]
Source = Callable[[Values, str], Iterable[str]]

HARMLESS = re.compile(r"[\w./:@%+=-]+")
"""Words that every shell takes as they are. A leading hyphen would make an option of one."""
ID = re.compile(r"[a-z]+(?:-[a-z]+)*-[1-9][0-9]{0,8}")
LARGEST_MANIFEST = 16 * 2**20
"""Bytes; a larger one is not read while somebody waits."""
MOST = 200
"""Words that are offered at most."""


def of_option(command: Declaration, option: OptionSpec) -> Complete:
    """What completes an option's value."""
    return _safely(_source(command, option))


def of_argument(command: Declaration, argument: ArgumentSpec) -> Complete:
    """What completes an argument."""
    if command.name == "compare":
        return _safely(_comparable)
    return _safely(lambda _, typed: _paths(typed) if argument.metavar == "FILE" else _runs(typed))


def _source(command: Declaration, option: OptionSpec) -> Source:
    if option.choices:
        return lambda _, __: option.choices
    if kind := _artifact_kind(command.name, option.key):
        return lambda values, _: _artifacts(_given_run(values), kind)
    if option.key in _SERVERS:
        return lambda values, typed: [*_models(values, _SERVERS[option.key]), *_checkpoints(typed)]
    if option.key == "compare":
        return _comparable
    return _BY_KEY.get(option.key) or (
        (lambda _, typed: _paths(typed)) if option.metavar == "PATH" else lambda _, __: ()
    )


_SERVERS = {"agent": "agent_url", "sim": "sim_url", "judge-model": "judge_url"}
"""Options that name a model, and the field of the addresses it is served at."""

_FROM = {stage.name: stage.reads[0] for stage in STAGES if stage.reads} | {
    "view": "rollouts",
    "data export": "rollouts",
}
"""The kind of artifact that `--from` of a command names by default."""


def _artifact_kind(command: str, key: str) -> str | None:
    if key == "from":
        return _FROM.get(command)
    return {"critic": "critic", "rollouts": "rollouts", "replies": "candidates"}.get(key)


def _safely(source: Source) -> Complete:
    def complete(values: Values, incomplete: str) -> list[str]:
        try:
            words = (word for word in dict.fromkeys(source(values, incomplete)) if word.startswith(incomplete))
            return list(islice(filter(is_harmless, words), MOST))
        except Exception:  # while somebody types there is nobody to tell
            return []

    return complete


def is_harmless(word: str) -> bool:
    """Whether a shell takes a word as it is."""
    return HARMLESS.fullmatch(word) is not None and word.isprintable() and not word.startswith(("-", "=", "@", "%"))


def _runs(typed: str) -> Iterator[str]:
    """The runs under `runs/`, and below the folder that is being typed the runs and the folders that lead on."""
    if not typed or str(RUNS).startswith(typed) or typed.startswith(f"{RUNS}/"):
        found = [path for path in _entries(RUNS) if str(path).startswith(typed) and _is_run(path)]
        yield from sorted(map(str, found), reverse=True)
    for word, path in _below(typed):
        if path.is_dir():
            yield word if _is_run(path) else f"{word}/"


def _paths(typed: str) -> Iterator[str]:
    for word, path in _below(typed):
        yield f"{word}/" if path.is_dir() else word


def _checkpoints(typed: str) -> Iterator[str]:
    """Folders; those with a model in them end the word."""
    if "/" in typed or typed.startswith((".", "~")):
        for word, path in _below(typed):
            if path.is_dir():
                yield word if (path / "config.json").is_file() else f"{word}/"


def _below(typed: str) -> Iterator[tuple[str, Path]]:
    """What lies where the typed path ends: as it would be typed, and where it is. Hidden names only when asked for."""
    folder, _, beginning = typed.rpartition("/")
    shown = f"{folder}/" if "/" in typed else ""
    for path in _entries(Path(shown or ".").expanduser()):
        if path.name.startswith(beginning) and (not path.name.startswith(".") or beginning.startswith(".")):
            yield shown + path.name, path


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _is_run(path: Path) -> bool:
    return (path / "manifest.json").is_file()


def _given_run(values: Values) -> Path | None:
    """The run of the command line so far; without one the newest, as the command would take it."""
    given = values.get("run")
    if given:
        return Path(given).expanduser()
    runs = [path for path in _entries(RUNS) if _is_run(path)]
    return max(runs, key=lambda path: path.stat().st_mtime, default=None)


def _artifacts(run: Path | None, kind: str) -> list[str]:
    """The ids of a run's artifacts of a kind, the newest first."""
    if run is None:
        return []
    file = run / "manifest.json"
    if not file.is_file() or file.stat().st_size > LARGEST_MANIFEST:
        return []
    listed = json.loads(file.read_bytes()).get("artifacts", [])
    ids = [str(artifact.get("id", "")) for artifact in listed]
    return [id for id in reversed(ids) if ID.fullmatch(id) and id.rpartition("-")[0] == kind]


def _comparable(_: Values, typed: str) -> list[str]:
    """Runs, and behind `RUN:` what of them can be compared."""
    run, colon, _beginning = typed.rpartition(":")
    if not colon:
        return list(_runs(typed))
    return [f"{run}:{id}" for kind in ("scores", "rollouts") for id in _artifacts(Path(run).expanduser(), kind)]


def _models(values: Values, field: str) -> list[str]:
    """The models at the addresses that were given."""
    urls: Any = values.get(field) or ()
    if not urls:
        return []
    from sweet.cli.served import models

    return models(str(urls[0]))


def _tasks(_: Values, __: str) -> Iterable[str]:
    from sweet.plugins import plugins

    return plugins()


def _datasets(values: Values, typed: str) -> Iterable[str]:
    """Datasets by name, and files of tasks."""
    named = ["pages", "websight"] if values.get("task") == "html" else ["micro", "micro-long", "colbench"]
    return [*named, *_paths(typed)]


_BY_KEY: dict[str, Source] = {
    "task": _tasks,
    "tasks": _datasets,
    "split": lambda _, __: ("train", "test"),
    "model": lambda _, typed: _checkpoints(typed),
    "reference": lambda _, typed: _checkpoints(typed),
    "similarity": lambda _, __: ("clip", "pixels"),
    "agent-url": lambda _, __: ("http://127.0.0.1:8000/v1",),
    "sim-url": lambda _, __: ("http://127.0.0.1:8000/v1",),
    "judge-url": lambda _, __: ("http://127.0.0.1:8000/v1",),
}
