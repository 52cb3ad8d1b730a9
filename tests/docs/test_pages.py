"""The docs name only commands, options, files, headings, extras and variables that exist."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from pkgutil import resolve_name

import pytest

from sweet.cli.config_file import read_config
from sweet.cli.fields import resolve
from sweet.study.settings import methods_of
from tests.docs.command_lines import Parser, Simple, alternatives, simple_commands, touch_configurations
from tests.docs.pages import PAGES, ROOT, Page, Piece, read_page
from tests.pipeline.reading import parse

SHELLS = ("console", "sh", "bash")
LANGUAGES = (*SHELLS, "toml", "json", "jsonl", "python", "text", "html")

PROGRAMS = {
    ".",
    *(
        "apt",
        "cat",
        "cd",
        "curl",
        "docker",
        "echo",
        "export",
        "git",
        "head",
        "hf",
        "jq",
        "kill",
        "lint-imports",
        "mkdir",
        "mypy",
    ),
    *("llama-server", "nohup", "playwright", "pytest", "ruff", "sbatch", "uvicorn", "vf-eval", "wait"),
    *("done", "until", "do"),  # of a loop in the shell
}
"""Other programs that the docs call; any other word in their place is misspelt."""

FOREIGN = {
    "--build-arg",
    "--cap-drop",
    "--cpus-per-task",
    "--device",
    "--enable-auto-tool-choice",
    "--exclusive",
    "--gpu-memory-utilization",
    "--gpus",
    "--hypothesis-profile",
    "--init",
    "--ipc",
    "--jinja",
    "--limit-mm-per-prompt",
    "--max-model-len",
    "--network",
    "--ntasks-per-node",
    "--privileged",
    "--read-only",
    "--security-opt",
    "--shm-size",
    "--tensor-parallel-size",
    "--tool-call-parser",
    "--user",
}
"""Options of vllm, llama.cpp, docker, Slurm and pytest that the docs name."""

SBATCH = {"exclusive", "gpus-per-node", "job-name", "mem", "nodes", "partition", "requeue", "time"}
"""Options of sbatch in the headers of scripts."""

ABBREVIATED = re.compile(r"[\[\]<>{}=]|^sweet$")
"""A span that is a synopsis, not a call."""


@pytest.fixture(scope="module")
def parser() -> Parser:
    return Parser()


@pytest.fixture(params=PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def page(request: pytest.FixtureRequest) -> Page:
    return read_page(request.param)


def test_every_block_names_a_language_that_is_checked(page: Page) -> None:
    assert [block.where for block in page.blocks if block.language not in LANGUAGES] == []


def test_every_command_in_the_blocks_is_valid(page: Page, parser: Parser, workplace: Path) -> None:
    commands = [found for block in page.blocks if block.language in SHELLS for found in simple_commands(block)]
    touch_configurations(commands, workplace)
    assert [f"{command.where}: {why}" for command in commands if (why := _complaint(command, parser))] == []


def test_scripts_for_sbatch_have_known_options(page: Page) -> None:
    headers = [
        (block.where, line) for block in page.blocks for line in block.text.splitlines() if line.startswith("#SBATCH")
    ]
    found = [(where, re.fullmatch(r"#SBATCH --([a-z-]+)(=\S+)?", line)) for where, line in headers]
    assert [where for where, option in found if option is None or option[1] not in SBATCH] == []
    assert bool(headers) == (page.path.name == "training.md")


def _complaint(command: Simple, parser: Parser) -> str | None:
    program, *words = command.words
    if program == "sweet":
        return parser.complaint(command.words, command.environment)
    if program.endswith(("python", "python3")):
        return _python(words, parser)
    if program.endswith("pip"):
        return None if words[0] == "install" else f"pip {words[0]}"
    if "/" in program:
        return None if (ROOT / program).is_file() else f"{program} does not exist"
    return None if program in PROGRAMS else f"{program} is not a known program"


def _python(words: list[str], parser: Parser) -> str | None:
    if words[:2] == ["-m", "sweet"]:
        return parser.complaint(words[1:])
    if words[0] == "-m" and words[1].split(".")[0] in ("sweet", "benchmarks", "docs"):
        module = words[1].replace(".", "/")
        found = any((ROOT / f"{module}{end}").is_file() for end in (".py", "/__main__.py"))
        return None if found else f"the module {words[1]} does not exist"
    if words[0] == "-m":
        return None if words[1] in ("venv", "pytest", "pip", "sphinx") else f"{words[1]} is not a known module"
    return None if (ROOT / words[0]).is_file() else f"{words[0]} does not exist"


def test_every_command_and_option_in_backticks_is_valid(page: Page, parser: Parser, workplace: Path) -> None:
    found = [(span, words) for span in page.spans for words in _calls(span, parser)]
    touch_configurations([Simple(span.where, words) for span, words in found], workplace)
    wrong = []
    for span, words in found:
        if why := _fault(parser, tuple(words)):
            wrong.append(f"{span.where}: `{span.text}`: {why}")
    assert wrong == []


@cache
def _fault(parser: Parser, words: tuple[str, ...]) -> str | None:
    """What is wrong with a call, or with options alone; the pages have most of them several times."""
    return parser.of_some_command([*words]) if words[0].startswith("--") else parser.complaint([*words])


@cache
def sources() -> str:
    return "".join(path.read_text(encoding="utf-8") for path in (ROOT / "sweet").rglob("*.py"))


def _calls(span: Piece, parser: Parser) -> Iterator[list[str]]:
    """Yield the calls that a span abbreviates: whole ones, those without `sweet`, and options alone."""
    if ABBREVIATED.search(span.text):
        return
    first, _, rest = span.text.partition(" ")
    if first == "sweet":
        if rest not in parser.words:  # else the command is only named
            yield from alternatives(span.text)
    elif first.startswith("--") and len(first) > 2 and first not in FOREIGN:
        yield from alternatives(span.text)
    elif first in parser.words and "--" in rest:
        yield from alternatives(f"sweet {span.text}")


def test_every_link_has_a_target(page: Page) -> None:
    wrong = []
    for link in page.links:
        target, _, heading = link.text.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        file = (page.path.parent / target).resolve() if target else page.path
        if not file.exists():
            wrong.append(f"{link.where}: {target} does not exist")
        elif heading and heading not in read_page(file).anchors:
            wrong.append(f"{link.where}: {file.name} has no heading #{heading}")
    assert wrong == []


def test_every_file_and_module_in_backticks_exists(page: Page) -> None:
    pattern = re.compile(r"(sweet|tests|benchmarks|docs|completions|containers|\.ci)/[\w./-]*")
    named = [span for span in page.spans if pattern.fullmatch(span.text)]
    assert [f"{span.where}: {span.text}" for span in named if not (ROOT / span.text).exists()] == []


def test_configurations_are_accepted(page: Page, parser: Parser, tmp_path: Path) -> None:
    for block in page.blocks:
        if block.language != "toml" or "[project" in block.text:  # the latter is a package's own pyproject.toml
            continue
        if re.search(r"^\[(servers|prices|evaluation)", block.text, re.MULTILINE):  # tables of recipes only
            parse(block.text, block.where)
            continue
        file = tmp_path / "sweet.toml"
        file.write_text(block.text, encoding="utf-8")
        if "methods.toml has" in block.text:
            assert methods_of([str(file)])
            continue
        for name, spec in parser.commands.items():
            given = read_config(file, name, parser.commands, lambda name: parser.commands[name].options)
            if not any(option.required for option in spec.options):
                resolve(resolve_name(spec.configuration), spec.options, given, name)


def test_blocks_of_data_and_python_have_valid_syntax(page: Page) -> None:
    for block in page.blocks:
        if block.language == "json":
            json.loads(block.text)
        elif block.language == "jsonl":
            [json.loads(line) for line in block.text.splitlines()]
        elif block.language == "toml":
            tomllib.loads(block.text)
        elif block.language == "python":
            ast.parse(block.text, block.where)


def test_every_extra_in_the_docs_exists(page: Page) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = set(re.findall(r"['\" ]\.\[(\w+)\]", page.path.read_text(encoding="utf-8")))
    assert named - project["optional-dependencies"].keys() == set()


def test_every_variable_is_read_by_the_program(page: Page, parser: Parser) -> None:
    known = {option.envvar for command in parser.commands.values() for option in command.options}
    named = set(re.findall(r"\bSWEET_[A-Z_]+[A-Z]\b", page.path.read_text(encoding="utf-8")))
    assert {name for name in named - known if f'"{name}"' not in sources()} == set()


def test_the_two_commands_of_the_readme_are_what_ci_runs() -> None:
    readme = read_page(ROOT / "README.md")
    typed = [line for block in readme.blocks[1:3] for line in block.text.splitlines()]
    steps = re.findall(r'^ *step "(.+)"$', (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    assert typed == ["$ pip install . && sweet demo", "$ pip install -e '.[test]' && pytest"]
    assert {part for line in typed for part in (line[2:], *line[2:].split(" && "))} & set(steps) == {
        "pip install . && sweet demo",
        "pip install -e '.[test]'",
        "pytest",
    }
