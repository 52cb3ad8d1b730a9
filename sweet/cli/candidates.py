"""Candidates for completion: runs, artifacts, models, files, names.

A shell inserts a candidate into the user's command line, so only words that every shell reads as one plain word are
offered; a file, an id or a model with other characters in its name has to be typed. After an error there are no
candidates. Runs are neither locked nor changed nor trusted: a manifest may come from anywhere, so only well-formed ids
of artifacts are read from it.
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

PLAIN_WORD = re.compile(r"[\w./:@%+=-]+")
"""Words without characters that are special in a shell. A leading hyphen would make the word an option."""
ID = re.compile(r"[a-z]+(?:-[a-z]+)*-[1-9][0-9]{0,8}")
LARGEST_MANIFEST = 16 * 2**20
"""Bytes; a larger manifest would take too long to read."""
MAX_CANDIDATES = 200
"""The largest number of candidates."""


def for_option(command: Declaration, option: OptionSpec) -> Complete:
    """Return the function that completes an option's value."""
    return _safely(_source(command, option))


def for_argument(command: Declaration, argument: ArgumentSpec) -> Complete:
    """Return the function that completes an argument."""
    if command.name == "compare":
        return _safely(_comparable)
    return _safely(lambda _, typed: _paths(typed) if argument.metavar == "FILE" else _runs(typed))


def _source(command: Declaration, option: OptionSpec) -> Source:
    if option.choices:
        return lambda _, __: option.choices
    if kind := _artifact_kind(command.name, option.key):
        return lambda values, _: _artifacts(_run_of(values), kind)
    if option.key in _SERVERS:
        return lambda values, typed: [*_models(values, _SERVERS[option.key]), *_checkpoints(typed)]
    if option.key == "compare":
        return _comparable
    return _BY_KEY.get(option.key) or (
        (lambda _, typed: _paths(typed)) if option.metavar == "PATH" else lambda _, __: ()
    )


_SERVERS = {"agent": "agent_url", "sim": "sim_url", "judge-model": "judge_url"}
"""Options that name a model, and the field with the addresses of its servers."""

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
            return list(islice(filter(is_plain_word, words), MAX_CANDIDATES))
        except Exception:  # the user is typing: there is no place to report it
            return []

    return complete


def is_plain_word(word: str) -> bool:
    """Return whether every shell reads the text as one plain word."""
    return PLAIN_WORD.fullmatch(word) is not None and word.isprintable() and not word.startswith(("-", "=", "@", "%"))


def _runs(typed: str) -> Iterator[str]:
    """Yield the runs under `runs/`, and the runs and other folders in the folder that is being typed."""
    if not typed or str(RUNS).startswith(typed) or typed.startswith(f"{RUNS}/"):
        found = [path for path in _entries(RUNS) if str(path).startswith(typed) and _is_run(path)]
        yield from sorted(map(str, found), reverse=True)
    for word, path in _completing(typed):
        if path.is_dir():
            yield word if _is_run(path) else f"{word}/"


def _paths(typed: str) -> Iterator[str]:
    for word, path in _completing(typed):
        yield f"{word}/" if path.is_dir() else word


def _checkpoints(typed: str) -> Iterator[str]:
    """Yield folders; those with a model end the word, others end with a slash."""
    if "/" in typed or typed.startswith((".", "~")):
        for word, path in _completing(typed):
            if path.is_dir():
                yield word if (path / "config.json").is_file() else f"{word}/"


def _completing(typed: str) -> Iterator[tuple[str, Path]]:
    """Yield the entries that complete a typed path, each as typed and as a path. Hidden ones need a leading dot."""
    folder, _, prefix = typed.rpartition("/")
    shown = f"{folder}/" if "/" in typed else ""
    for path in _entries(Path(shown or ".").expanduser()):
        if path.name.startswith(prefix) and (not path.name.startswith(".") or prefix.startswith(".")):
            yield shown + path.name, path


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _is_run(path: Path) -> bool:
    return (path / "manifest.json").is_file()


def _run_of(values: Values) -> Path | None:
    """Return the run among the given arguments; without one the newest, which the command would use."""
    given = values.get("run")
    if given:
        return Path(given).expanduser()
    runs = [path for path in _entries(RUNS) if _is_run(path)]
    return max(runs, key=lambda path: path.stat().st_mtime, default=None)


def _artifacts(run: Path | None, kind: str) -> list[str]:
    """Return the ids of a run's artifacts of a kind, newest first."""
    if run is None:
        return []
    file = run / "manifest.json"
    if not file.is_file() or file.stat().st_size > LARGEST_MANIFEST:
        return []
    listed = json.loads(file.read_bytes()).get("artifacts", [])
    ids = [str(artifact.get("id", "")) for artifact in listed]
    return [id for id in reversed(ids) if ID.fullmatch(id) and id.rpartition("-")[0] == kind]


def _comparable(_: Values, typed: str) -> list[str]:
    """Return runs, and after `RUN:` the artifacts of that run that can be compared."""
    run, colon, _beginning = typed.rpartition(":")
    if not colon:
        return list(_runs(typed))
    return [f"{run}:{id}" for kind in ("scores", "rollouts") for id in _artifacts(Path(run).expanduser(), kind)]


def _models(values: Values, field: str) -> list[str]:
    """Return the models of the server at the first of the given addresses."""
    urls: Any = values.get(field) or ()
    if not urls:
        return []
    from sweet.cli.server_models import models

    return models(str(urls[0]))


def _tasks(_: Values, __: str) -> Iterable[str]:
    from sweet.plugins import plugins

    return plugins()


def _rules(_: Values, __: str) -> Iterable[str]:
    from sweet.credit.names import rule_names

    return rule_names()


def _datasets(values: Values, typed: str) -> Iterable[str]:
    """Return the names of datasets, and files."""
    code = ["micro", "micro-long", "micro-parts", "colbench"]
    named = ["pages", "websight"] if values.get("task") == "html" else code
    return [*named, *_paths(typed)]


_BY_KEY: dict[str, Source] = {
    "task": _tasks,
    "tasks": _datasets,
    "method": _rules,
    "algorithm": _rules,
    "split": lambda _, __: ("train", "validation", "test"),
    "model": lambda _, typed: _checkpoints(typed),
    "reference": lambda _, typed: _checkpoints(typed),
    "similarity": lambda _, __: ("clip", "pixels"),
    "window": lambda _, __: ("1280x720", "1366x682"),
    "agent-url": lambda _, __: ("http://127.0.0.1:8000/v1",),
    "sim-url": lambda _, __: ("http://127.0.0.1:8000/v1",),
    "judge-url": lambda _, __: ("http://127.0.0.1:8000/v1",),
}
