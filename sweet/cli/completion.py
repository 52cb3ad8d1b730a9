"""Completion: the candidates for arguments and options, and the process that answers a shell.

Typer prints the completion file of a shell (`sweet --show-completion`), reads the words that the shell sends, and asks
the functions below. A shell inserts a candidate into the user's command line, so only words that every shell reads as
one plain word are offered; a file, an id or a model with other characters in its name has to be typed. Without
candidates a shell offers files. After an error there are none: the user is typing, and there is no place to report it.
Runs are neither locked nor changed nor trusted: a manifest may come from anywhere, so only well-formed ids of artifacts
are read from it.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout
from itertools import islice
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NoReturn

import typer

from sweet import collector
from sweet.cli.options import Option
from sweet.paths import RUNS
from sweet.runs.stages import STAGES

COMPLETE = "_SWEET_COMPLETE"
"""The variable in which a shell asks for completions, or for its completion file."""
PLAIN_WORD = re.compile(r"[\w./:@%+=-]+")
"""Words without characters that are special in a shell. A leading hyphen would make the word an option."""
ID = re.compile(r"[a-z]+(?:-[a-z]+)*-[1-9][0-9]{0,8}")
LARGEST_MANIFEST = 16 * 2**20
"""Bytes; a larger manifest would take too long to read."""
MAX_CANDIDATES = 200
"""The largest number of candidates."""

Complete = Callable[[typer.Context, str], list[str]]
Source = Callable[[typer.Context, str], Iterable[str]]
"""Returns words for an option of a call, of which those are candidates that go on with the incomplete word."""


def completion_of(command: str, option: Option) -> Complete | None:
    """Return the function that completes an option's value; None for one that a shell completes with files."""
    if option.choices:
        return safely(lambda _, __: option.choices)
    kind = _FROM.get(command) if option.key == "from" else _KINDS.get(option.key)
    if kind is not None:
        return safely(lambda context, _: _artifacts(_run_of(context), kind))
    source = _BY_KEY.get(option.key)
    return None if source is None else safely(source)


_FROM = {stage.name: stage.reads[0] for stage in STAGES if stage.reads} | {
    "view": "rollouts",
    "data export": "rollouts",
}
"""The kind of artifact that `--from` of a command names by default."""
_KINDS = {"critic": "critic", "rollouts": "rollouts", "replies": "candidates"}
"""The kinds of artifacts that other options name."""


def safely(source: Source) -> Complete:
    """Return a completion that offers the plain words of a source, and none after an error."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        try:
            words = (word for word in dict.fromkeys(source(ctx, incomplete)) if word.startswith(incomplete))
            return list(islice(filter(is_plain_word, words), MAX_CANDIDATES))
        except Exception:  # the user is typing: there is no place to report it
            return []

    return complete


def is_plain_word(word: str) -> bool:
    """Return whether every shell reads the text as one plain word."""
    return PLAIN_WORD.fullmatch(word) is not None and word.isprintable() and not word.startswith(("-", "=", "@", "%"))


def _runs(_: typer.Context, incomplete: str) -> Iterator[str]:
    """Yield the runs under `runs/`, and the runs in the folder that is being typed."""
    if not incomplete or str(RUNS).startswith(incomplete) or incomplete.startswith(f"{RUNS}/"):
        runs = [path for path in _entries(RUNS) if str(path).startswith(incomplete) and _is_run(path)]
        yield from sorted(map(str, runs), reverse=True)
    folder, _slash, prefix = incomplete.rpartition("/")
    folder_prefix = f"{folder}/" if "/" in incomplete else ""
    for path in _entries(Path(folder_prefix or ".").expanduser()):
        if path.name.startswith(prefix) and _is_run(path):
            yield folder_prefix + path.name


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _is_run(path: Path) -> bool:
    return (path / "manifest.json").is_file()


def _run_of(context: typer.Context) -> Path | None:
    """Return the run among the given arguments; without one the newest, which the command would use."""
    run = context.params.get("run")
    if run:
        return Path(run).expanduser()
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


def _comparable(context: typer.Context, incomplete: str) -> Iterable[str]:
    """Return runs, and after `RUN:` the artifacts of that run that can be compared."""
    run, colon, _beginning = incomplete.rpartition(":")
    if not colon:
        return _runs(context, incomplete)
    return [f"{run}:{id}" for kind in ("scores", "rollouts") for id in _artifacts(Path(run).expanduser(), kind)]


def _returned_by(function: str) -> Source:
    """Return the source of what a function returns, which is named by reference, as entry points do: most calls of a
    completion do not need its module."""
    return lambda _, __: resolve_name(function)()


def _models(_: typer.Context, __: str) -> Iterator[str]:
    """Yield packaged models, the agents that this folder's runs have trained, the newest run first, and models of the
    hub that are on this machine."""
    from sweet.hf import cached_models
    from sweet.tasks.packaged import PACKAGED

    yield from PACKAGED
    for run in sorted(filter(_is_run, _entries(RUNS)), key=lambda path: path.stat().st_mtime, reverse=True):
        models = (path.parent for name in ("config", "adapter_config") for path in run.glob(f"actor/*/{name}.json"))
        yield from map(str, sorted(models, reverse=True))
    yield from cached_models()


def _datasets(context: typer.Context, _: str) -> Iterable[str]:
    code = ("micro", "micro-long", "micro-parts", "colbench")
    return ("pages", "websight") if context.params.get("task") == "html" else code


_BY_KEY: dict[str, Source] = {
    "task": _returned_by("sweet.plugins:plugins"),
    "tasks": _datasets,
    "algorithm": _returned_by("sweet.credit.names:rule_names"),
    **dict.fromkeys(("agent", "sim"), lambda *_: ("scripted", *_models(*_))),
    **dict.fromkeys(("model", "reference", "judge-model", "check-model"), _models),
    "recipe": _returned_by("sweet.pipeline.recipe:packaged"),
    "set": _returned_by("sweet.pipeline.recipe:keys"),
    "compare": _comparable,
    "split": lambda _, __: ("train", "validation", "test"),
    "similarity": lambda _, __: ("clip", "pixels"),
    "window": lambda _, __: ("1280x720", "1366x682"),
}

complete_run = safely(_runs)
complete_comparable = safely(_comparable)


def complete(answer: Callable[[], object]) -> NoReturn:
    """Answer a shell, silently whatever happens, and exit.

    Args:
        answer: prints what the variable asks for, as Typer does it.
    """
    text = io.StringIO()
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.environ["COLUMNS"] = "1000"  # where Typer breaks the help of a candidate, a shell would see another one
        omitted = join_words_of_bash(os.environ) if os.environ.get(COMPLETE) == "complete_bash" else 0
        try:
            with collector.paused(), redirect_stdout(text):
                answer()
        except SystemExit:
            sys.stdout.buffer.write("".join(line[omitted:] for line in text.getvalue().splitlines(True)).encode())
            sys.stdout.flush()
    except BaseException:  # an interrupt too: there is no place to report it
        os._exit(0)
    sys.exit(0)


def join_words_of_bash(environment: Any) -> int:
    """Join the words that bash splits at `:` and `=` and other shells keep whole: `RUN:scores-2`, `http://host`.

    Returns:
        The number of characters of the last word that bash has already, and expects to be omitted from the answer.
    """
    position = int(environment["COMP_CWORD"])
    typed = environment["COMP_WORDS"].split("\n")[: position + 1]
    typed += [""] * (position + 1 - len(typed))
    words: list[str] = []
    is_joined = False
    for word in typed:
        separates = bool(word) and not word.strip(":=")
        if words[1:] and word and (separates or is_joined):
            words[-1] += word
        else:
            words.append(word)
        is_joined = separates
    environment["COMP_WORDS"], environment["COMP_CWORD"] = "\n".join(words), str(len(words) - 1)
    last = words[-1]
    value = last.partition("=")[2] if last.startswith("--") and "=" in last else last
    return len(value) - (0 if is_joined else len(typed[-1])) if last != typed[-1] else 0
