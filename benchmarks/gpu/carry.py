"""Cuts the files of a folder into parts of a limited size, and joins them: for a model on a machine without a network.

    python -m benchmarks.gpu.carry split MODEL PARTS [--mib 48]
    python -m benchmarks.gpu.carry join PARTS MODEL

`split` writes part-000, part-001, … and `parts.json` with the files' sizes and SHA-256, to PARTS; `join` writes the
files of MODEL from them, and checks both. Parts may arrive one by one, in any order. Only regular files directly in the
folder are carried.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from sweet.errors import InputError, SweetError, UsageError

INDEX = "parts.json"
BLOCK = 1 << 20


def split(folder: Path, parts: Path, size: int) -> int:
    """Write the files of a folder as parts of at most `size` bytes, and return their number.

    Raises:
        UsageError: the folder has no file, or `parts` has parts already.
    """
    files = sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []
    if not files:
        raise UsageError("The folder has no file.", where=folder, fix="name the folder of a model")
    if (parts / INDEX).exists():
        raise UsageError("The folder has parts already.", where=parts, fix="name a new one")
    parts.mkdir(parents=True, exist_ok=True)
    number, room, out = -1, 0, None
    for block in (block for path in files for block in _blocks(path)):
        while block:
            if not room:
                number, room = number + 1, size
                if out is not None:
                    out.close()
                out = _part(parts, number).open("wb")
            assert out is not None
            out.write(block[:room])
            taken, block = len(block[:room]), block[room:]
            room -= taken
    if out is not None:
        out.close()
    index = [{"name": path.name, "bytes": path.stat().st_size, "sha256": _sha256(path)} for path in files]
    (parts / INDEX).write_text(json.dumps({"parts": number + 1, "files": index}, indent=1) + "\n", encoding="utf-8")
    return number + 1


def join(parts: Path, folder: Path) -> int:
    """Write the files that the parts contain to a folder, and return their number.

    Raises:
        InputError: a part is missing, or a file is not what it was.
    """
    try:
        index = json.loads((parts / INDEX).read_bytes())
        files = [(str(file["name"]), int(file["bytes"]), str(file["sha256"])) for file in index["files"]]
        count = int(index["parts"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError("The list of the parts cannot be read.", path=parts / INDEX, fix="carry it too") from error
    missing = [_part(parts, number).name for number in range(count) if not _part(parts, number).is_file()]
    if missing:
        raise InputError(f"Missing: {', '.join(missing)}.", path=parts, fix="carry these parts too")
    if any(Path(name).name != name for name, *_ in files):
        raise InputError("A file's name is a path.", path=parts / INDEX, fix="split the folder again")
    folder.mkdir(parents=True, exist_ok=True)
    content = (block for number in range(count) for block in _blocks(_part(parts, number)))
    left = b""
    for name, size, digest in files:
        path = folder / name
        with path.open("wb") as out:
            while size:
                left = left or next(content, b"")
                if not left:
                    break
                out.write(left[:size])
                taken, left = len(left[:size]), left[size:]
                size -= taken
        if size or _sha256(path) != digest:
            path.unlink()
            raise InputError(f"{name} is not what it was.", path=parts, fix="carry the parts again")
    return len(files)


def _part(parts: Path, number: int) -> Path:
    return parts / f"part-{number:03}"


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            yield block


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", choices=("split", "join"))
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--mib", type=int, default=48, help="size of a part")
    given = parser.parse_args(arguments)
    if given.mib < 1:
        parser.error("--mib must be at least 1")
    try:
        if given.way == "split":
            print(f"{split(given.source, given.target, given.mib << 20)} parts in {given.target}")
        else:
            print(f"{join(given.source, given.target)} files in {given.target}")
    except SweetError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
