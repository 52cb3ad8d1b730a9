"""Regular expressions take linear time on the texts of models, people, servers and files.

The attacks are made from the expressions themselves: for each repetition in one, texts in which what stands before it
is followed by a long run of what is repeated, or in which both are repeated, with an end at which a match fails. Work
that takes quadratic time takes sixteen times as long for a text that is four times as long.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import io
import itertools
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import sweet
from sweet.datasets.importing import system_of
from sweet.humans.faults import evident_fault, leaks
from sweet.humans.leaks import coverage, find, variants
from sweet.humans.leaks.fragments import shown_in, source_in
from sweet.humans.role import Role
from sweet.judges.llm import read_score
from sweet.llm.base import Alternatives, Reply
from sweet.redaction import redacted
from sweet.tasks import markers
from sweet.tasks.base import Message, Task
from sweet.tasks.html import page
from sweet.tasks.html.writer import write
from sweet.view.code import fragments, prose

SIZE = 15_000
"""Characters of an attack."""
NOTICED = 0.01
"""CPU seconds up to which the growth of the time is not examined."""
HOPELESS = 2.0
"""CPU seconds after which a larger text is not tried: it would take hours where the time is cubic."""
MOST_GROWTH = 9
"""Times as long that a text of `SIZE` characters may take as one of a quarter of it: 4 is linear, 16 quadratic."""
TRIALS = 6
"""Measurements at most: one that shows linear growth suffices."""

FOLDER = Path(sweet.__file__).parent
CALLS = {"compile", "search", "match", "fullmatch", "finditer", "findall", "sub", "subn", "split"}
TEXTS = {path: path.read_text("utf-8") for path in sorted(FOLDER.rglob("*.py"))}
TREES = {
    path: ast.parse(text) for path, text in TEXTS.items() if re.search(rf"\bre\s*\.\s*({'|'.join(CALLS)})\b", text)
}
"""Of the modules that may call functions of `re`. All would take each process of pytest seconds."""

NOT_FOREIGN = {
    "datasets/layout.py": "a file name",
    "datasets/skeletons.py": "the name of the user's package",
    "hf.py": "the name of the user's model",
    "learn/distributed.py": "the user's file of hosts",
    "learn/page_encoder.py": "needs a vision model; one class between two characters that are not in it",
    "learn/slurm.py": "a variable's name",
    "plugin_code.py": "a type",
    "render/window.py": "the user's window",
    "sandbox/jail.py": "the version of the kernel",
    "toml_file.py": "an error of the TOML parser",
}
"""Files whose expressions are not applied to foreign texts, and why."""

IN_FUNCTIONS = {
    "cli/stage.py": "the user's model",
    "humans/role.py": "labels and words, in ROLE below",
    "llm/vllm.py": "chat templates and names, by alternatives without repetition",
    "redaction.py": "a key of the user, as it is or with separators, which it then has none of",
    "rollouts/dialogue.py": "an id, from both ends",
    "runs/manifest.py": "the first two characters",
    "render/assets.py": "the whole of an address, in test_addresses below",
    "render/requirements.py": "the same expressions, in test_addresses below",
    "study/settings.py": "a method's name, of at most a hundred characters",
    "tasks/code/check.py": "a word of a request",
    "tasks/code/extract.py": "tests/tasks/test_code_scoring.py",
    "datasets/synthesising.py": "words of a file of topics of the user",
    "tasks/facts.py": "words between blanks, in test_facts below",
    "tasks/html/page.py": "tags, in extract_page below",
    "tasks/html/writer.py": "words, in write below",
    "training/sources.py": "a packaged prompt with numbers, as a whole",
    "view/app/parts_view.py": "the words that a user searches for, as they are",
    "view/safe_markdown.py": "one character",
}
"""Files in which functions make expressions, and what of foreign texts is searched with them."""


def relative(path: Path) -> str:
    return path.relative_to(FOLDER).as_posix()


def module_of(path: Path) -> Any:
    return importlib.import_module(".".join(path.relative_to(FOLDER.parent).with_suffix("").parts))


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in CALLS
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "re"
        ):
            yield node


def patterns_in(value: Any) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
        yield value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from patterns_in([getattr(value, field.name) for field in dataclasses.fields(value)])
    elif isinstance(value, dict | tuple | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from patterns_in(item)


USES = {
    use
    for text in TEXTS.values()
    for use in re.findall(r"\b(\w+)\.((?:match|fullmatch)\(|(?:search|finditer|findall|sub|split)\b)", text)
}
"""Each name in the package on which a method of expressions is used, with the method."""


def is_searched(name: str) -> bool:
    """Whether an expression is tried at every position of a text, and not only at its beginning."""
    methods = {method for used, method in USES if used == name}
    return methods.isdisjoint({"match(", "fullmatch("}) or not methods <= {"match(", "fullmatch("}


def expressions() -> Iterator[Any]:
    for path, tree in TREES.items():
        if relative(path) in NOT_FOREIGN or not any(calls(tree)):
            continue
        made_here = {
            part.id
            for node in tree.body
            if isinstance(node, ast.Assign | ast.AnnAssign)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            for part in ast.walk(target)
            if isinstance(part, ast.Name)
        }
        for name, value in vars(module_of(path)).items():
            for number, pattern in enumerate(patterns_in(value) if name in made_here else ()):
                yield pytest.param(pattern, is_searched(name), id=f"{relative(path)}:{name}:{number}")


# What an attack consists of. `re` has no public access to its syntax trees.
_parser: Any = importlib.import_module("re._parser")
_CANDIDATES = " \ta0-_*`~#<>/\"'“”.,;:{}[]()\n\r\x1bé"
_LONG = 50
"""A repetition that may be shorter than this many times is no attack."""


def texts_of(item: Any) -> list[str]:
    """Short texts that an item of a syntax tree matches."""
    kind, value = str(item[0]), item[1]
    if kind == "LITERAL":
        return [chr(value)]
    if kind in ("IN", "NOT_LITERAL", "ANY", "CATEGORY"):
        single = _class_of(kind, value)
        return [char for char in _CANDIDATES if single(char)][:3] or ["x"]
    if kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        least, _, body = value
        return [text * max(least, 1) for text in texts_of_sequence(body)]
    if kind == "SUBPATTERN":
        return texts_of_sequence(value[3])
    if kind == "ATOMIC_GROUP":
        return texts_of_sequence(value)
    if kind == "BRANCH":
        return [text for branch in value[1] for text in texts_of_sequence(branch)[:1]]
    return [""]


def _class_of(kind: str, value: Any) -> Callable[[str], bool]:
    if kind == "ANY":
        return lambda char: char != "\n"
    if kind == "NOT_LITERAL":
        return lambda char: ord(char) != value
    items = value if kind == "IN" else [("CATEGORY", value)]
    negated = any(str(name) == "NEGATE" for name, _ in items)
    categories = {
        "SPACE": r"\s",
        "NOT_SPACE": r"\S",
        "WORD": r"\w",
        "NOT_WORD": r"\W",
        "DIGIT": r"\d",
        "NOT_DIGIT": r"\D",
    }

    def holds(char: str) -> bool:
        for name, what in items:
            found = (
                (str(name) == "LITERAL" and ord(char) == what)
                or (str(name) == "RANGE" and what[0] <= ord(char) <= what[1])
                or (
                    str(name) == "CATEGORY"
                    and re.match(categories[str(what).removeprefix("CATEGORY_")], char) is not None
                )
            )
            if found:
                return not negated
        return negated

    return holds


def texts_of_sequence(items: Any) -> list[str]:
    found = [""]
    for item in items:
        options = texts_of(item)
        found = [before + option for before, option in zip(found, itertools.cycle(options), strict=False)] + [
            found[0] + option for option in options[1:]
        ]
    return found[:3]


def pumps(items: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """For each long repetition: a text that leads to it, and what is repeated."""
    for item in items:
        kind, value = str(item[0]), item[1]
        if kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            yield from pumps(value[2], before)
            if int(value[1]) >= _LONG:
                for body in texts_of_sequence(value[2]):
                    yield before, body
        elif kind in ("SUBPATTERN", "ATOMIC_GROUP"):
            yield from pumps(value[3] if kind == "SUBPATTERN" else value, before)
        elif kind == "BRANCH":
            for branch in value[1]:
                yield from pumps(branch, before)
        elif kind in ("ASSERT", "ASSERT_NOT"):
            yield from pumps(value[1], before)
        before += texts_of(item)[0]


def repeated(before: str, body: str, end: str, size: int) -> str:
    return before + body * (size // len(body)) + end


def attacks(pattern: re.Pattern[str]) -> Iterator[Callable[[int], str]]:
    for before, body in dict.fromkeys(pumps(_parser.parse(pattern.pattern, pattern.flags))):
        if not body:
            continue
        for end in ("\0", "\n\0", ""):
            yield partial(repeated, before, body, end)
        yield partial(repeated, "", before + body, "\0")
        yield partial(repeated, "", before + "x", "")
    yield partial(repeated, "", "x", "")


def cpu_seconds(work: Callable[[str], object], text: str) -> float:
    began = time.process_time()
    work(text)
    return time.process_time() - began


def is_linear(work: Callable[[str], object], make: Callable[[int], str], trials: int = TRIALS) -> bool:
    for size in (SIZE // 64, SIZE // 16, SIZE // 4):
        if cpu_seconds(work, make(size)) > HOPELESS:
            return False
    large: list[float] = []
    small: list[float] = []
    for _ in range(trials):  # other processes only ever add to the time: the least of several measurements is compared
        large.append(cpu_seconds(work, make(SIZE)))
        if large[-1] <= NOTICED:
            return True
        small.append(cpu_seconds(work, make(SIZE // 4)))
        if min(large) / min(small) < MOST_GROWTH:
            return True
    return False


@pytest.mark.parametrize(("pattern", "searched"), [*expressions()])
def test_an_expression_takes_linear_time(pattern: re.Pattern[str], searched: bool) -> None:
    def work(text: str) -> None:
        if searched:
            deque(pattern.finditer(text), maxlen=0)
        else:
            pattern.match(text)

    for make in attacks(pattern):
        assert is_linear(work, make), repr(make(60))


@pytest.mark.parametrize(
    "quadratic",
    [
        r"a[ \t]*(?:x|(?=[ \t]*\n))",
        r"SCORE:[ ]*(?:/9[ ]*)?\.?[ ]*$",
        r"read “[^”]*”",
        r"(?m)^~{3,}[^`]*\n",
        r"\w+ ends",
    ],
)
def test_the_attacks_find_an_expression_that_takes_quadratic_time(quadratic: str) -> None:
    pattern = re.compile(quadratic)
    assert not all(
        is_linear(lambda text: deque(pattern.finditer(text), maxlen=0), make, trials=2) for make in attacks(pattern)
    )


def test_every_expression_is_tested() -> None:
    inside = {
        relative(path)
        for path, tree in TREES.items()
        if any(calls(tree))
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and any(calls(function))
    }
    assert inside - NOT_FOREIGN.keys() == IN_FUNCTIONS.keys() - NOT_FOREIGN.keys()
    assert {name for name in NOT_FOREIGN if FOLDER / name not in TREES or not any(calls(TREES[FOLDER / name]))} == set()


TASK = Task(id="t", problem_description="A page", ground_truth="def f(x):\n    return x + 1", test_cases={})
PAGE = TASK.model_copy(update={"ground_truth": "<html><body class='bg-blue-500 p-4'>Bread</body></html>"})


def _read_score(text: str) -> None:
    places = tuple(Alternatives(text[i : i + 100], ()) for i in range(0, len(text), 100))
    read_score(Reply(text, "stop", alternatives=places))
    read_score(Reply("5" + text, "stop", alternatives=places))


def _template(text: str) -> None:
    system_of(text, "A request.")


def _write(text: str) -> None:
    said = [Message(role="assistant", content=text), Message(role="user", content=text)]
    write([Message(role="user", content="A page"), *said], 0, 0)


def _fault(text: str, task: Task, question: str) -> None:
    for cached in (source_in, shown_in, find._read_replies, coverage.rows_of, variants.encoded_in):
        cached.cache_clear()
    dialogue = [Message(role="user", content="A fee"), Message(role="assistant", content=question)]
    if evident_fault(text, dialogue) is None:
        leaks(text, task, dialogue)


def test_the_place_of_a_score_among_the_tokens_is_found_in_linear_time() -> None:
    def work(text: str) -> None:
        assert read_score(Reply(text, "stop", alternatives=(Alternatives("S" * 4 * len(text), ()),)))

    # Every part of the tokens ends like the reply.
    assert is_linear(work, lambda size: "SCORE: 5\n" + "S" * 4 * size)


ROLE, SAID = Role("You are a person. " * 99, "Programmer", "terse"), [Message(role="assistant", content="What?")]
READERS: dict[str, Callable[[str], object]] = {
    "move": lambda text: [markers.read_move(text, last=last, protocol="paper") for last in (True, False)],
    "upstream": lambda text: markers.read_move(text, last=True, protocol="upstream"),
    "page": lambda text: page.read_move(text, protocol="paper"),
    "upstream page": lambda text: page.read_move(text, protocol="upstream"),
    "page in prose": lambda text: page.without_page(text, "…"),
    "fault": lambda text: _fault(text, TASK, text),
    "fault with a short question": lambda text: _fault(text, TASK, "?"),
    "fault of a page": lambda text: _fault(text, PAGE, "?"),
    "role": lambda text: [ROLE.cleaned(text), ROLE.fault(text, SAID)],
    "score": _read_score,
    "template": _template,
    "write": _write,
    "code": lambda text: fragments(text, "python", whole=True),
    "markdown": lambda text: Console(file=io.StringIO(), width=10_000).print(prose(text, "")),
    "redacted": redacted,
}

NASTY = (
    "I WANT TO ANSWER{ }",
    "**I WANT TO ANSWER{ }",
    "{I WANT TO ANSWER }",
    "{\nOUTPUT:}",
    "{ }OUTPUT",
    "{>}",
    "{**OUTPUT}",
    "<html{ }",
    "{<html }",
    "{<html ></html }",
    "{<body>}",
    "{<script }",
    "{<!--}",
    "{<textarea>}",
    "{<}",
    "{</}",
    "<a{ b}",
    "{{a:}",
    "SCORE: 5{ }x",
    "SCORE: 5/9{ }x",
    "SCORE{*}",
    "{SCORE: 5\n}",
    "{5}",
    "{ }",
    "{\n}",
    "{\t\n}",
    "{~}`",
    "{`}~",
    "```{ }x",
    "{```\n}",
    "{```python }",
    "{- }x",
    "{[a](}",
    "{*a}",
    "{<|im_start|>user\n}",
    "{<|start_header_id|>user<|end_header_id|>\n\n}",
    "{<start_of_turn>user\n}",
    "{it should read “}",
    "{“}",
    "{About the text “}",
    "{What is missing: the text “}",
    "{://}",
    "{://a}",
    "{?key=}",
    "{bearer }",
    "{sk-}",
    "{i'm sorry }",
    "{\x1b[}",
    "{Human: }",
    "{\n**Human**: }",
    "x{\n**}Human",
    "it is. { }Assistant",
    '{"Me: }',
)
"""Texts in which the part in braces is repeated."""


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_of_foreign_text_takes_linear_time(reader: str) -> None:
    for nasty in NASTY:
        before, _, rest = nasty.partition("{")
        body, _, end = rest.rpartition("}")
        if reader == "markdown" and "\n" in body:
            continue  # each line is drawn

        make = partial(repeated, before, body, end)
        assert is_linear(READERS[reader], make), nasty
