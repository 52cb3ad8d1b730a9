"""What recorded settings would start, load or send a key to, and whether the user gave them on this machine.

A run or a recipe may come from a stranger. Opening it starts nothing; going on with it does what its settings say:
`risks` lists that. Whoever gives settings here (a stage that begins, a recipe that is written) has their list
remembered: its SHA-256 is a line of a file of the user, outside of every run, so that nothing in a run can claim it.
Recorded settings are the user's own where their whole list is in that file, wherever the run lies: one that was moved
or copied here is not asked for again; one whose settings were changed by something else is, and so is one of another
user or machine. A file that a setting names counts with its content, a folder (a model) with its Python files.

`check` is called before recorded settings are used: by `--resume` (`sweet.stages.resuming`) and for the recipe of a run
or a file (`sweet.pipeline.recipe`). What it lists is remembered, too, once the user has given `--trust`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from sweet.errors import SweetError, UsageError
from sweet.hints import option
from sweet.paths import platform_folder
from sweet.plugins import CREDIT, TASKS, plugins
from sweet.redaction import redacted
from sweet.regular import read_regular

HARMLESS = {
    *("--max-model-len", "--max-num-seqs", "--max-num-batched-tokens", "--gpu-memory-utilization", "--dtype", "--seed"),
    *("--tensor-parallel-size", "-tp", "--pipeline-parallel-size", "-pp", "--data-parallel-size", "-dp"),
    *("--enable-prefix-caching", "--no-enable-prefix-caching", "--enable-chunked-prefill", "--enforce-eager"),
    *("--quantization", "--kv-cache-dtype", "--block-size", "--swap-space", "--cpu-offload-gb", "--reasoning-parser"),
}
"""Options of vllm that only tune it. Any other one may load code or open a server, in some version of vllm."""

REMEMBERED = Path("sweet", "trusted")
_STARTS_VLLM = "start vllm with "
_MODELS = ("agent", "sim", "judge_model", "model", "reference")
_WITHOUT_CODE = ("scripted", "micro", "micro-parts", "desk")
_MOST, _MOST_LINES = 1 << 20, 1 << 26
"""Bytes of a named file whose content counts, and of the file of what is remembered."""


def _package(group: str, what: str, name: str) -> str | None:
    plain, _, source = name.partition(":")
    matches = plugins(group).get(plain, [])
    if matches and matches[0].ours:
        return f"play the environment {source}" if source else None
    return None if not matches else f"import the {what} {name} of the package {matches[0]}"


_ENGINES = {
    "openrlhf": "start OpenRLHF, which runs code that a model brings",
    "tinker": "send dialogues with your key to the service of TINKER_BASE_URL, which bills them",
}
_RISKS: dict[str, Callable[[str], str | None]] = {
    **dict.fromkeys(("agent_url", "sim_url", "judge_url"), lambda url: f"send dialogues and your API key to {url}"),
    "hostfile": lambda file: f"start processes on the hosts of {file}",
    "harness": lambda command: f"start {command}",
    "host": lambda host: None if host == "127.0.0.1" else f"let others ask the model at {host}",
    "ray": lambda address: f"join the Ray cluster {address}, whose nodes run what they are sent",
    "sandbox": lambda tier: "run the code of answers without a jail" if tier == "unsafe" else None,
    **dict.fromkeys(("engine", "local_engine"), _ENGINES.get),
    "log_to": lambda name: "send figures with your key to Weights & Biases" if name == "wandb" else None,
    "task": partial(_package, TASKS, "kind of task"),
    "algorithm": partial(_package, CREDIT, "credit rule"),
}
"""What a value of a setting does, by field; None where it starts nothing. Options of vllm are taken together."""


def risks(*settings: Mapping[str, Any]) -> dict[str, str]:
    """Return what settings, or tables of some, would start, load or send a key to: clauses, each with the digest of the
    files that it names."""
    clauses: dict[str, str] = {}
    words = [(name, word) for table in settings for name, word in _words(table)]
    for name, word in words:
        if isinstance(word, list):
            if starts := unlisted(word):
                clauses[f"{_STARTS_VLLM}{shlex.join(starts)}"] = _content(*starts)
        elif name in _RISKS and (clause := _RISKS[name](word)):
            clauses[f"{clause} ({option(name)})"] = _content(word) if name == "hostfile" else ""
    if any(clause.startswith((_STARTS_VLLM, "start OpenRLHF")) for clause in clauses):
        for name, word in words:
            if name in _MODELS and word not in _WITHOUT_CODE:
                clauses[f"load the model {word}, with its code ({option(name)})"] = _content(word)
    return {redacted(clause): content for clause, content in clauses.items()}


def unlisted(options: Sequence[str]) -> list[str]:
    """Return the words of vllm's command line beside the options in `HARMLESS`, each with one plain value at most."""
    words = []
    takes_value = False
    for word in options:
        name, equals, value = word.partition("=")
        if name in HARMLESS:
            harmless, takes_value = _is_plain(value), not equals
        else:
            harmless, takes_value = takes_value and not word.startswith("-") and _is_plain(word), False
        words += [] if harmless else [word]
    return words


def remember(*settings: Mapping[str, Any]) -> None:
    """Remember what settings would start as the user's own; without a folder that can be written it is not."""
    clauses = risks(*settings)
    if not _is_known(clauses):
        _append(_digest(clauses))


def only_known(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without those that would start something, unless the user gave them on this machine."""
    is_known = _is_known(risks(settings))
    return {name: value for name, value in settings.items() if is_known or not risks({name: value})}


def check(
    recorded: Sequence[Mapping[str, Any]],
    used: Sequence[Mapping[str, Any]],
    given: Sequence[Mapping[str, Any]],
    *,
    trusted: bool,
    what: str,
    where: Path,
    is_file: bool = False,
) -> None:
    """Check that what recorded settings would start is the user's own, or trusted, which is remembered.

    Args:
        recorded, used, given: the settings that are recorded, those that the call would use, and those that the user
            gives now, in the place of recorded ones.
        what: the recorded settings, as the beginning of a sentence.
        is_file: whether they are a recipe of no run: what it would start vllm with cannot be trusted by one word.

    Raises:
        UsageError: it is not; lists it.
    """
    recorded_risks, given_risks = risks(*recorded), risks(*given)
    new_risks = {clause: content for clause, content in risks(*used).items() if clause not in given_risks}
    # Options of vllm that are given may load code of a recorded model.
    if (recorded_risks and _is_known(recorded_risks)) or _is_known(new_risks):
        return
    for clause in new_risks:
        if is_file and clause.startswith(_STARTS_VLLM):
            what = f"Only options that tune vllm are read from a file, and this one would {clause}."
            fix = "give them on the command line: --set 'servers.agent.options=[\"--option\"]'"
            raise UsageError(what, where=where, fix=fix)
    why = _append(_digest(new_risks) if trusted else b"")
    if not trusted:
        once = f"each time, as it cannot be remembered: {why}; XDG_DATA_HOME names another folder" if why else "once"
        raise UsageError(
            f"{what} were not given by you on this machine, or changed since. By them this command would:"
            + "".join(f"\n- {' '.join(clause.split())}" for clause in new_risks),
            where=where,
            fix=f"give other values of these options, or, if you trust whoever wrote them, --trust ({once})",
        )


def _words(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the texts that settings have, with their fields; the options of vllm as one list."""
    for key, value in table.items():
        name = str(key).replace("-", "_")
        if isinstance(value, Mapping):
            yield from _words(value)
        elif value is not None:
            texts = [str(item) for item in (value if isinstance(value, list | tuple) else [value])]
            yield from [(name, texts)] if name in ("vllm_options", "options") else [(name, text) for text in texts]


def _is_plain(value: str) -> bool:
    return all(letter.isascii() and (letter.isalnum() or letter in "._+-") for letter in value)


def _content(*words: str) -> str:
    """Return the SHA-256 of the files that words name, and of the Python files of the folders."""
    content = hashlib.sha256()
    for path in (Path(word.partition("=")[2] or word) for word in words):
        with suppress(OSError, ValueError, SweetError):
            for file in sorted(path.glob("*.py")) if path.is_dir() else [path]:
                content.update(hashlib.sha256(read_regular(file, _MOST)).digest())
    return content.hexdigest()


def _digest(clauses: Mapping[str, str]) -> bytes:
    return hashlib.sha256(json.dumps(clauses, sort_keys=True).encode()).hexdigest().encode() + b"\n"


def _is_known(clauses: Mapping[str, str]) -> bool:
    with suppress(OSError, SweetError):
        lines = read_regular(platform_folder() / REMEMBERED, _MOST_LINES) if clauses else b""
        return not clauses or _digest(clauses) in lines.splitlines(keepends=True)
    return False


def _append(line: bytes) -> str | None:
    """Add a line to what is remembered; return why that is not possible."""
    try:
        path = platform_folder() / REMEMBERED
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb") as file:
            file.write(line)  # at once, so that lines of several processes do not mix
    except OSError as error:  # the home cannot be written, or there is none
        return str(error)
    return None
