"""The files of the repository that the program writes itself: the index of its commands, docs/commands.md, README's
table of the commands, and the completion files.

`python -m sweet.cli.generated`, run in the repository, brings them up to date; a test compares them with what this
module makes now, so that no option can be added without its line.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from sweet.cli import index
from sweet.cli.app import MODULES, declarations
from sweet.cli.declaration import COMMON, Declaration, OptionSpec
from sweet.cli.help import OPERATIONAL_PANEL
from sweet.cli.reference import METRICS, VARIABLES

BEGIN = "<!-- commands: python -m sweet.cli.generated -->"
END = "<!-- end of commands -->"

COMPLETIONS = {"bash": "sweet.bash", "zsh": "_sweet", "fish": "sweet.fish", "powershell": "sweet.ps1"}
"""Shell and the file under `completions/`."""

_ALIGNED = 60
"""Characters of an example up to which what it does stands in one column."""

_HEAD = """# Commands

Written by the program: `python -m sweet.cli.generated` makes this page anew, and a test compares.

An option comes from its flag, else from an environment variable, else from the file that `--config` names, else it has
its default. The variable of `--num-tasks` of `sweet rollout` is `SWEET_ROLLOUT_NUM_TASKS`, and so on; a list is
written with spaces between its items. RUN is a run directory. With `--json` a command prints one object,
`{"stage", "run", "metrics", "artifacts"}`; the figures under each command are its `metrics`. A rate has its 95 %
interval beside it, as `success_rate_ci_low` and `success_rate_ci_high`; what cannot be known is `null`.
[results.md](results.md) says how the figures are computed.
"""


def chapters() -> dict[str, list[Declaration]]:
    """The commands under the titles of the help, in the order of the pipeline."""
    declared = declarations()
    return {
        title: [one for name in names for one in declared if one.name.split()[0] == name.replace("_", "-")]
        for title, names in MODULES.items()
    }


def command_table() -> str:
    """Every command with its one line, as a Markdown table."""
    rows = [
        f"| [`sweet {one.name}`](docs/commands.md#sweet-{one.name.replace(' ', '-')}) | {one.summary} |"
        for commands in chapters().values()
        for one in commands
    ]
    return "\n".join(["| | |", "|---|---|", *rows]) + "\n"


def command_pages() -> str:
    """docs/commands.md: every command with its examples, arguments, options and figures."""
    parts = [_HEAD, "Every command has these:\n", "| option | |\n|---|---|"]
    parts += [f"| `{f'--{key} {value}'.strip()}` | {help} |" for key, value, help in COMMON]
    parts.append("| `--help`, `-h` | Show the examples and the options. |\n")
    for title, commands in chapters().items():
        parts.append(f"## {title}\n")
        parts += [part for command in commands for part in _command(command)]
    parts += ["## Environment variables\n", "| variable | |\n|---|---|"]
    parts += [f"| `{name}` | {what} |" for name, what in VARIABLES.items()]
    return "\n".join(parts) + "\n"


def _command(command: Declaration) -> Iterator[str]:
    yield f"### sweet {command.name}\n"
    yield f"```text\n{command.usage}\n```\n"
    yield "\n\n".join(filter(None, (command.summary, command.text))) + "\n"
    width = max((len(line) for line, _ in command.examples if len(line) <= _ALIGNED), default=0)
    yield from ["```console", *(f"$ {line:{width}}    # {what}" for line, what in command.examples), "```\n"]
    for argument in command.positional:
        yield f"- `{argument.metavar}`: {argument.help}"
    if command.positional:
        yield ""
    yield from _options("option", [option for option in command.flags if not option.operational])
    yield from _options(OPERATIONAL_PANEL.lower(), [option for option in command.flags if option.operational])
    if command.flags:
        yield f"`{command.flags[0].envvar}` is the variable of `{command.flags[0].flag}`, and so on.\n"
    if figures := METRICS.get(command.name):
        yield "| figure | |\n|---|---|"
        yield from (f"| `{name}` | {what} |" for name, what in figures.items())
        yield ""


def _options(title: str, specs: list[OptionSpec]) -> Iterator[str]:
    if specs:
        yield f"| {title} | default | |\n|---|---|---|"
        yield from map(_row, specs)
        yield ""


def _row(spec: OptionSpec) -> str:
    form = f"{spec.flag}` / `--no-{spec.key}" if spec.is_switch else f"{spec.flag} {spec.metavar}"
    if spec.is_switch:
        default = "yes" if spec.default else "no"
    else:
        default = "" if spec.default in (None, "", [], ()) else f"`{spec.default}`"
    bounds = f" ({spec.bounds})" if spec.bounds else ""
    cells = (f"`{form}`", "required" if spec.required else default, spec.help + bounds)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def with_table(readme: str) -> str:
    """The README with the table of the commands between its markers."""
    return put_between(readme, BEGIN, END, command_table())


def put_between(page: str, begin: str, end: str, content: str) -> str:
    """A page with `content` between two markers that stand in it once."""
    head, rest = page.split(begin)
    return f"{head}{begin}\n\n{content}\n{end}{rest.split(end)[1]}"


def completion(shell: str) -> str:
    """The completion file of a shell, as the installed program prints it."""
    environment = {**os.environ, "_SWEET_COMPLETE": f"source_{shell}"}
    made = subprocess.run([sys.executable, "-m", "sweet"], env=environment, capture_output=True, text=True, check=True)
    return made.stdout


def main(root: Path) -> None:
    """Write the files under the repository's root."""
    index.PATH.write_text(index.render(declarations()), encoding="utf-8")
    readme = root / "README.md"
    readme.write_text(with_table(readme.read_text(encoding="utf-8")), encoding="utf-8")
    (root / "docs" / "commands.md").write_text(command_pages(), encoding="utf-8")
    (root / "completions").mkdir(exist_ok=True)
    for shell, name in COMPLETIONS.items():
        (root / "completions" / name).write_text(completion(shell), encoding="utf-8")


if __name__ == "__main__":
    main(Path.cwd())
