"""The prompts of a task kind: the agent's system prompt, and the prompt of the model that plays the human.

They are files, `agent.txt` and `human.txt` in the folder `texts` of the kind's package, which a folder of the user may
override. A third one, `human_spec.txt`, is the prompt of a human that reads the task's specification in the place of
the reference; without it `human.txt` is used for that too.

The human's prompt is one user message with the request, the reference and the dialogue so far, indented, each at its
placeholder (`{request}`, `{reference}`, `{dialogue}`; see `sweet.tasks.prompts`). It can be parsed back exactly
whatever the texts contain, so that a human served over HTTP needs nothing but the prompt.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from sweet.errors import InputError, first_line
from sweet.tasks.base import Message, Task

TURNS = "{turns}"
"""Placeholder in an agent's text for the number of its turns."""

_FILES = ("agent", "human", "human_spec")
_HUMANS = _FILES[1:]


def fill_turns(text: str, turns: int) -> str:
    """Return the agent's text for dialogues of at most `turns` turns."""
    return text.replace(TURNS, str(turns))


@dataclass(frozen=True)
class HumanPrompt:
    """The contents of a human's prompt. `dialogue` has the roles `user` (the human) and `assistant` (the agent)."""

    request: str
    hidden: str
    dialogue: tuple[Message, ...]


@dataclass(frozen=True)
class Prompts:
    """The texts. Each task kind derives a class.

    Attributes:
        human_spec: the human's text where it reads the specification; empty if it is `human`.
        specified: whether the human reads the specification.
        package: the package whose folder `texts` contains them.
        texts: the texts themselves, by the names of these fields, for a kind without a package.
        places: the placeholders that the human's text must have.
        optional_places: those that it may have.
        speaker: the name of the agent in the human's prompt.
    """

    agent: str
    human: str
    human_spec: str = ""
    specified: bool = False

    package: ClassVar[str] = ""
    texts: ClassVar[Mapping[str, str]] = {}
    places: ClassVar[tuple[str, ...]] = ("request", "reference", "dialogue")
    optional_places: ClassVar[tuple[str, ...]] = ()
    speaker: ClassVar[str] = "Agent"

    @classmethod
    def packaged(cls) -> Self:
        """Return the texts of the class, or those of the kind's package.

        Raises:
            InputError: they cannot be read, or a placeholder is missing.
        """
        texts: dict[str, Any] = dict(cls.texts) or _packaged(cls.package)
        cls._check(texts, Path(cls.package or cls.__qualname__) / "texts")
        return cls(**texts)

    @classmethod
    def _check(cls, texts: Mapping[str, str], folder: Path) -> None:
        fix = "they are replaced by the request, the reference solution and the dialogue so far"
        for name in [name for name in _HUMANS if name in texts]:
            file = folder / f"{name}.txt"
            check_placeholders(texts[name], cls.places, file, whose="human's", fix=fix, optional=cls.optional_places)

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Load the packaged texts, overridden by those of a folder.

        Raises:
            InputError: the folder cannot be read, contains neither text or other files, or a text is invalid.
        """
        try:
            names = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
        except OSError as error:
            raise InputError(f"The folder of prompts cannot be read: {error.strerror}.", path=folder) from error
        files = {f"{name}.txt": name for name in _FILES}
        if not names or set(names) - set(files):
            other = ", ".join(name for name in names if name not in files) or "nothing"
            what = f"A folder of prompts contains {', '.join(files)} or some of them; this one contains {other}."
            raise InputError(what, path=folder)
        texts: dict[str, Any] = {files[name]: read_prompt(folder / name) for name in names}
        cls._check(texts, folder)
        without_spec = {"human_spec": ""} if "human" in texts else {}  # else the text of the user would not be used
        return replace(cls.packaged(), **without_spec | texts)

    @classmethod
    def label(cls, role: str) -> str:
        """Return the line above each message of a role in the human's prompt."""
        return "You:" if role == "user" else f"{cls.speaker}:"

    def human_prompt(self, task: Task, dialogue: Sequence[Message]) -> str:
        """Return the text that asks a model to play the human."""
        hidden = task.specification if self.specified else task.hidden
        return self.written(HumanPrompt(task.problem_description, hidden, tuple(dialogue)))

    def written(self, prompt: HumanPrompt) -> str:
        """Return the human's text with its placeholders filled; `read` is the inverse for the packaged texts."""
        lines = [line for m in prompt.dialogue for line in (self.label(m.role), indented(m.content))]
        fields = {"request": [indented(prompt.request)], "reference": [indented(prompt.hidden)], "dialogue": lines}
        return fill(self.human, fields)

    @classmethod
    def read(cls, text: str) -> HumanPrompt:
        """Parse a prompt made by `written`.

        Raises:
            ValueError: the text is not such a prompt.
        """
        roles: dict[str, Literal["user", "assistant"]] = {
            cls.label("user"): "user",
            cls.label("assistant"): "assistant",
        }
        heads = _heads(cls.packaged().human)
        fields: dict[str, str] = {}
        dialogue: list[Message] = []
        for head, body in _blocks(text):
            if head in roles:
                dialogue.append(Message(role=roles[head], content=body))
            elif head in heads and heads[head] not in fields:
                fields[heads[head]] = body
            else:
                raise ValueError("this is not a prompt of the simulated human")
        if fields.keys() != {"request", "reference"}:
            raise ValueError("this is not a prompt of the simulated human")
        return HumanPrompt(fields["request"], fields["reference"], tuple(dialogue))


def _heads(template: str) -> dict[str, str]:
    """Return the placeholders of request and reference by the line above each."""
    places = {above: placeholder_in(line) for above, line in itertools.pairwise(template.split("\n"))}
    return {above: place for above, place in places.items() if place in ("request", "reference")}


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield the indented blocks of a prompt, each with the line above it."""
    head, body = "", list[str]()
    for line in [*text.split("\n"), ""]:
        if line.startswith(INDENT):
            body.append(line.removeprefix(INDENT))
            continue
        if body:
            yield head, "\n".join(body)
            body = []
        head = line


@cache
def _packaged(package: str) -> dict[str, Any]:
    def text(name: str) -> str:
        try:
            return (resources.files(package) / "texts" / name).read_text("utf-8").strip()
        except (ImportError, OSError, ValueError) as error:
            what = f"The package {package} has no texts/{name} that can be read: {first_line(error)}."
            raise InputError(what, path=Path(package) / "texts" / name, fix=f"correct {package}") from error

    texts = {name: text(f"{name}.txt") for name in _FILES if name != "human_spec"}
    if (resources.files(package) / "texts" / "human_spec.txt").is_file():
        texts["human_spec"] = text("human_spec.txt")
    return texts


INDENT = "    "
_LONGEST = 100_000


def indented(text: str) -> str:
    """Return the text with every line indented."""
    return "\n".join(INDENT + line for line in text.split("\n"))


def placeholder_in(line: str) -> str | None:
    """Return the name in a line that consists of a placeholder, else None."""
    bare = line.strip()
    return bare[1:-1] if bare.startswith("{") and bare.endswith("}") and bare[1:-1].isidentifier() else None


def fill(prompt: str, fields: Mapping[str, Sequence[str]]) -> str:
    """Return the prompt with its placeholders replaced by lines; those without lines are left unchanged."""
    lines: list[str] = []
    for line in prompt.split("\n"):
        name = placeholder_in(line)
        lines += [line] if name is None or name not in fields else fields[name]
    return "\n".join(lines)


def without(prompt: str, places: Collection[str]) -> str:
    """Return the prompt without the paragraphs that contain one of these placeholders."""
    paragraphs = (text.split("\n") for text in prompt.split("\n\n"))
    return "\n\n".join("\n".join(lines) for lines in paragraphs if set(places).isdisjoint(map(placeholder_in, lines)))


def read_prompt(file: Path) -> str:
    """Read the file of a prompt.

    Raises:
        InputError: it cannot be read, is empty, or is too long.
    """
    try:
        with file.open("rb") as opened:
            read = opened.read(4 * _LONGEST + 1)
        text = read.decode("utf-8-sig", "strict" if len(read) <= 4 * _LONGEST else "replace")  # where one may be cut
        text = text.replace("\r\n", "\n").strip()
    except UnicodeDecodeError as error:
        raise InputError("The prompt is not UTF-8 text.", path=file, fix="save it as UTF-8") from error
    except OSError as error:
        raise InputError(f"The prompt cannot be read: {error.strerror}.", path=file) from error
    if not text or len(text) > _LONGEST:
        what = f"has more than {_LONGEST:,} characters" if text else "is empty"
        raise InputError(f"The prompt {what}.", path=file, fix="a shorter one" if text else "write it, or remove it")
    return text


def check_placeholders(
    prompt: str, places: Sequence[str], file: Path, *, whose: str, fix: str, optional: Sequence[str] = ()
) -> None:
    """Check that the prompt has each placeholder exactly once, each optional one at most once, and no other one.

    Raises:
        InputError: it does not.
    """
    placeholders = [placeholder_in(line) for line in prompt.split("\n")]
    used = [*places, *(place for place in optional if f"{{{place}}}" in prompt)]
    if wrong := ", ".join(f"{{{place}}}" for place in used if placeholders.count(place) != 1):
        raise InputError(f"The {whose} prompt must have {wrong} once, each on a line of its own.", path=file, fix=fix)
    if other := ", ".join(f"{{{name}}}" for name in placeholders if name is not None and name not in used):
        raise InputError(f"{other} is no placeholder of the {whose} prompt.", path=file, fix=fix)
