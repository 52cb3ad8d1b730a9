"""The options of a command, from the user's cache folder where they are stored.

Reading them from the fields of the configuration imports pydantic and what the configuration imports. `import typer,
rich` and one model of pydantic already take twice the time of `import typer, rich` alone, which is most of what a help
or a completion may take. So the options of a command are stored when they are first read, with the modification times
of the modules that had been imported, and are read from there until one of these changes.
"""

from __future__ import annotations

import json
import os
import sys
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from pkgutil import resolve_name

from sweet.cli.options import Option
from sweet.paths import cache_folder


def options_of(configuration: str, command: str) -> list[Option]:
    """Return the options of a command, one for each field of its configuration, in their order.

    Args:
        configuration: the class, as `module:class`.
    """
    module = configuration.partition(":")[0]
    if module in sys.modules:
        return _from_fields(configuration, command)
    installation = zlib.crc32(f"{Path(__file__).parent} {configuration}".encode())
    stored = cache_folder("options") / f"{command.replace(' ', '-')}-{installation:08x}.json"
    with suppress(OSError, ValueError, TypeError, KeyError):
        content = json.loads(stored.read_bytes())
        if all(_stamp(file) == stamp for file, stamp in content["files"].items()):
            return [Option(**option) for option in content["options"]]
    options = _from_fields(configuration, command)
    _store(stored, options)
    return options


def _from_fields(configuration: str, command: str) -> list[Option]:
    from sweet.cli.fields import options_of_class

    return options_of_class(resolve_name(configuration), command)


def _store(stored: Path, options: Iterable[Option]) -> None:
    """Write the options of a command into the cache, unless the folder is not writable."""
    from sweet.files import write_whole

    modules = [module for name, module in sys.modules.items() if name.split(".")[0] == "sweet"]
    files = sorted({file for module in modules if (file := getattr(module, "__file__", None)) is not None})
    content = {"files": {file: _stamp(file) for file in files}, "options": [asdict(option) for option in options]}
    with suppress(OSError):
        stored.parent.mkdir(parents=True, exist_ok=True)
        write_whole(stored, json.dumps(content).encode())


def _stamp(file: str) -> list[int]:
    status = os.stat(file)  # noqa: PTH116 (a hundred files while somebody types)
    return [status.st_mtime_ns, status.st_size]
