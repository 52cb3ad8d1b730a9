"""The files of the repository that the program writes itself: the index of its commands, README's command reference and
the completion files.

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
from sweet.cli.app import declarations
from sweet.cli.declaration import Declaration, OptionSpec

BEGIN = "<!-- command reference: python -m sweet.cli.generated -->"
END = "<!-- end of command reference -->"

COMPLETIONS = {"bash": "sweet.bash", "zsh": "_sweet", "fish": "sweet.fish", "powershell": "sweet.ps1"}
"""Shell and the file under `completions/`."""


def command_reference() -> str:
    """Every command with its arguments and options, as Markdown."""
    return "\n".join(part for command in declarations() for part in _command(command)) + "\n"


def _command(command: Declaration) -> Iterator[str]:
    yield f"### `{command.usage}`\n"
    yield "\n\n".join(filter(None, (command.summary, command.text))) + "\n"
    for argument in command.positional:
        yield f"- `{argument.metavar}`: {argument.help}"
    if command.positional:
        yield ""
    if command.flags:
        yield "| option | default | |\n|---|---|---|"
        yield from map(_row, command.flags)
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


def with_reference(readme: str) -> str:
    """The README with the command reference between its markers."""
    head, rest = readme.split(BEGIN)
    return f"{head}{BEGIN}\n\n{command_reference()}\n{END}{rest.split(END)[1]}"


def completion(shell: str) -> str:
    """The completion file of a shell, as the installed program prints it."""
    environment = {**os.environ, "_SWEET_COMPLETE": f"source_{shell}"}
    made = subprocess.run([sys.executable, "-m", "sweet"], env=environment, capture_output=True, text=True, check=True)
    return made.stdout


def main(root: Path) -> None:
    """Write the files under the repository's root."""
    index.PATH.write_text(index.render(declarations()), encoding="utf-8")
    readme = root / "README.md"
    readme.write_text(with_reference(readme.read_text(encoding="utf-8")), encoding="utf-8")
    (root / "completions").mkdir(exist_ok=True)
    for shell, name in COMPLETIONS.items():
        (root / "completions" / name).write_text(completion(shell), encoding="utf-8")


if __name__ == "__main__":
    main(Path.cwd())
