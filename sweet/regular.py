"""Opens regular files; in the folder of a run, only those that are reached without a link.

A run may come from a stranger. `confine(root)` declares a folder to be one: from then on this process reaches a path
below it from an open descriptor of the root, folder by folder (openat with O_NOFOLLOW), so that no link leads out of
it. The root itself and its parents may be links. Everywhere, also outside of runs, what is opened must be a regular
file: it is opened without waiting (O_NONBLOCK) and then looked at (fstat), so that neither a named pipe nor a device
blocks a reader or never ends.

Libraries open the files of a model or a checkpoint by themselves: `check_tree` checks a whole folder before.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from sweet.errors import InputError

_ROOTS: set[str] = set()

_BY_DESCRIPTOR = {os.open, os.mkdir, os.stat, os.unlink, os.rename} <= os.supports_dir_fd
"""Whether the system reaches files from the descriptor of a folder. Elsewhere each step is looked at before."""
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_FILE = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)

_NOT_REGULAR = (
    (stat.S_ISDIR, "This is a folder, not a file."),
    (stat.S_ISFIFO, "This is a named pipe, not a regular file."),
    (stat.S_ISSOCK, "This is a socket, not a regular file."),
    (stat.S_ISCHR, "This is a device, not a regular file."),
    (stat.S_ISBLK, "This is a device, not a regular file."),
)


def confine(root: Path) -> None:
    """Declare a folder to be a run: files below it are opened only if they are regular and reached without a link."""
    _ROOTS.add(str(root.absolute()))


def in_run(path: Path) -> Path | None:
    """Return a path as one below the root of its run, whatever its spelling; None if it is in none that is known.

    The root is found by its identity, so the path may lead to it over links.
    """
    absolute = path.absolute()
    roots: dict[tuple[int, int], str] = {}
    for root in tuple(_ROOTS):
        with suppress(OSError):
            roots[_identity(root)] = root
    for folder in reversed(absolute.parents):
        with suppress(OSError, KeyError):
            root = str(folder) if str(folder) in _ROOTS else roots[_identity(folder)]
            below = Path(os.path.normpath(absolute.relative_to(folder)))
            if below.parts[:1] != ("..",):
                return Path(root, below)
    return None


def _identity(folder: str | Path) -> tuple[int, int]:
    found = Path(folder).stat()
    return found.st_dev, found.st_ino


@dataclass(frozen=True)
class Place:
    """Where a file is: its name in an open folder, or its path if it is in no run.

    Attributes:
        path: for messages.
        folder: descriptor of the folder; None if the name is a path.
        confined: no link is followed.
    """

    path: Path
    name: str
    folder: int | None
    confined: bool

    def beside(self, name: str) -> Place:
        """Return the place of another file in the same folder."""
        path = self.path.with_name(name)
        return Place(path, str(path) if self.folder is None else name, self.folder, self.confined)

    def open(self, flags: int, mode: int = 0o666) -> int:
        """Open the file and return its descriptor.

        Raises:
            InputError: it is not a regular file.
            OSError: as `os.open`.
        """
        flags |= _FILE | (_NO_LINK if self.confined else 0)
        try:
            handle = os.open(self.name, flags, mode, dir_fd=self.folder)
        except OSError as error:
            self.check()
            error.filename = str(self.path)
            raise
        try:
            found = os.fstat(handle)
            _check_mode(self.path, found.st_mode)
            if self.confined and flags & (os.O_WRONLY | os.O_RDWR) and found.st_nlink > 1:
                what = "This file has another name (a hard link), and may be one outside of the run: it is not written."
                raise InputError(what, path=self.path, fix="put a copy of it in its place")
        except BaseException:
            os.close(handle)
            raise
        return handle

    def check(self) -> None:
        """Raise InputError if there is something else than a regular file; it need not exist."""
        with suppress(OSError):
            found = os.stat(self.name, dir_fd=self.folder, follow_symlinks=not self.confined)
            _check_mode(self.path, found.st_mode)

    def replace(self, other: Place) -> None:
        """Give the file the other's name, which must be a regular file or none."""
        other.check()
        os.replace(self.name, other.name, src_dir_fd=self.folder, dst_dir_fd=other.folder)

    def unlink(self) -> None:
        """Remove the file, if it exists."""
        with suppress(FileNotFoundError):
            os.unlink(self.name, dir_fd=self.folder)


@contextmanager
def place_of(path: Path, *, make_folders: bool = False) -> Iterator[Place]:
    """Reach a file, which need not exist; its folder is open within the block.

    Raises:
        InputError: it is in a run, and a folder on the way is a link or no folder.
        OSError: a folder does not exist or cannot be opened.
    """
    root = _root_of(path)
    if root is None:
        if make_folders:
            path.parent.mkdir(parents=True, exist_ok=True)
        yield Place(path, str(path), None, confined=False)
        return
    *folders, name = path.absolute().relative_to(root).parts
    handle = _enter(str(root), None, root, confined=False)
    here = root
    try:
        for part in folders:
            here /= part
            inner = part if handle is not None else str(here)
            if make_folders:
                with suppress(FileExistsError):
                    os.mkdir(inner, dir_fd=handle)
            entered = _enter(inner, handle, here, confined=True)
            if handle is not None:
                os.close(handle)
            handle = entered
        yield Place(path, name if handle is not None else str(path), handle, confined=True)
    finally:
        if handle is not None:
            os.close(handle)


def open_descriptor(path: Path, flags: int, mode: int = 0o666) -> int:
    """Open a regular file and return its descriptor. See `Place.open` and `place_of` for errors."""
    with place_of(path) as place:
        return place.open(flags, mode)


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading. See `Place.open` and `place_of` for errors."""
    return os.fdopen(open_descriptor(path, os.O_RDONLY), "rb")


def read_regular(path: Path, most: int) -> bytes:
    """Return the content of a regular file.

    Raises:
        InputError: it is not a regular file, or has more than `most` bytes.
        OSError: it cannot be read.
    """
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > most:  # `read(most)` would allocate as much at once
            raise InputError(f"The file is larger than {most:,} bytes.", path=path, fix="restore it from a copy")
        return file.read()


def make_folder(path: Path) -> None:
    """Make a folder with its parents, if it does not exist.

    Raises:
        InputError: it is in a run, and it or a folder on the way is a link or no folder.
        OSError: it cannot be made.
    """
    with place_of(path / "file", make_folders=True):
        pass


def check_file(path: Path) -> None:
    """Check a file that a library is going to open; neither it nor its folder need exist.

    Raises:
        InputError: it is not a regular file, or in a run it is reached over a link.
    """
    with suppress(FileNotFoundError), place_of(path) as place:
        place.check()


def check_any(path: Path) -> None:
    """Check a file, or a folder with all its files. See `check_file` and `check_tree` for errors."""
    (check_tree if path.is_dir() else check_file)(path)


def check_tree(folder: Path) -> None:
    """Check that everything below a folder is a regular file or a folder, before a library opens it.

    In a run there may be no link either. A folder that does not exist passes.

    Raises:
        InputError: something is not.
    """
    confined = _root_of(folder) is not None
    with suppress(FileNotFoundError), place_of(folder / "file"):
        for path in files_below(folder):
            with suppress(FileNotFoundError):
                _check_mode(path, (path.lstat() if confined else path.stat()).st_mode)


def files_below(folder: Path) -> Iterator[Path]:
    """Yield everything below a folder that is no folder, in the same order on every system. Links are not followed."""
    found = (Path(parent, name) for parent, names in _walk(folder) for name in names)
    yield from sorted(found, key=lambda file: file.parts)


def _walk(folder: Path) -> Iterator[tuple[str, list[str]]]:
    for parent, folders, names in os.walk(folder):
        yield parent, [*names, *(name for name in folders if Path(parent, name).is_symlink())]


def _root_of(path: Path) -> Path | None:
    """Return the outermost run that a path is below, by its spelling."""
    absolute = path.absolute()
    spelled, anchor = str(absolute), len(absolute.anchor)
    end = spelled.find(os.sep)
    while end >= 0:  # the parents, outermost first, without a Path of each: every file that is opened comes here
        if (folder := spelled[: max(end, anchor)]) in _ROOTS:
            return Path(folder)
        end = spelled.find(os.sep, max(end + 1, anchor))
    return None


def _enter(name: str, inside: int | None, path: Path, *, confined: bool) -> int | None:
    """Return the descriptor of a folder; None where the system cannot reach files from it."""
    try:
        if _BY_DESCRIPTOR:
            return os.open(name, _FOLDER | (_NO_LINK if confined else 0), dir_fd=inside)
        if confined:
            _check_folder(path, os.lstat(path).st_mode)
    except OSError as error:
        if confined and not isinstance(error, FileNotFoundError):
            _check_folder(path, os.stat(name, dir_fd=inside, follow_symlinks=False).st_mode)
        error.filename = str(path)
        raise
    return None


def _check_folder(path: Path, mode: int) -> None:
    if stat.S_ISLNK(mode):
        raise _link(path)
    if not stat.S_ISDIR(mode):
        raise InputError("This is a file, not a folder.", path=path, fix="take another copy of the run")


def _check_mode(path: Path, mode: int) -> None:
    if stat.S_ISLNK(mode):
        raise _link(path)
    for is_kind, what in _NOT_REGULAR:
        if is_kind(mode):
            raise InputError(what, path=path, fix="put a regular file in its place, or remove it")


def _link(path: Path) -> InputError:
    what = "This is a symbolic link, and links below the folder of a run are not followed."
    return InputError(what, path=path, fix="put what it points at in its place, if you trust it, or remove the link")
