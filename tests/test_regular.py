"""Regular files: no link below a run is followed, and neither a named pipe nor a device is waited for."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sweet import regular
from sweet.errors import InputError, UsageError
from sweet.files import UNFINISHED, check_target, replacing, write_whole
from sweet.regular import (
    check_file,
    check_tree,
    confine,
    in_run,
    make_folder,
    open_descriptor,
    open_regular,
    place_of,
    read_regular,
)
from sweet.runs.jsonl import JsonlWriter, scan_jsonl


@pytest.fixture(autouse=True)
def no_waiting() -> Iterator[None]:
    """Whoever waits for a pipe fails."""

    def waited(*_: object) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, waited)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(params=[True, False], ids=["by descriptor", "by path"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose parent is reached over a link, on systems of both kinds."""
    monkeypatch.setattr(regular, "_BY_DESCRIPTOR", request.param)
    monkeypatch.setattr(regular, "_ROOTS", set())
    (tmp_path / "disk" / "run").mkdir(parents=True)
    (tmp_path / "runs").symlink_to("disk")
    confine(tmp_path / "runs" / "run")
    return tmp_path / "runs" / "run"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "file").write_bytes(b"private\n")
    return folder


def a_link(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "file")


def a_dangling_link(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "new")


def a_link_to_zeros(path: Path, _: Path) -> None:
    path.symlink_to("/dev/zero")


def a_pipe(path: Path, _: Path) -> None:
    os.mkfifo(path)


def a_folder(path: Path, _: Path) -> None:
    path.mkdir()


READERS: tuple[Callable[[Path], object], ...] = (
    lambda path: open_regular(path).close(),
    lambda path: read_regular(path, 100),
    lambda path: list(scan_jsonl(path)),
    check_file,
    lambda path: check_tree(path.parent),
)
WRITERS: tuple[Callable[[Path], object], ...] = (
    lambda path: write_whole(path, b"written"),
    lambda path: JsonlWriter(path).close(),
    lambda path: os.close(open_descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)),
    lambda path: _replace(path),
)


def _replace(path: Path) -> None:
    with replacing(path) as file:
        file.write(b"written")


class TestInARun:
    @pytest.mark.parametrize("use", [*READERS, *WRITERS, check_target])
    @pytest.mark.parametrize("put", [a_link, a_dangling_link, a_link_to_zeros, a_pipe, a_folder])
    def test_what_is_no_regular_file_is_refused(
        self, root: Path, outside: Path, put: Callable[..., None], use: Callable[[Path], object]
    ) -> None:
        (root / "scores").mkdir()
        path = root / "scores" / "scores-1.jsonl"
        put(path, outside)
        if put is a_folder and use is READERS[-1]:
            return  # a tree has folders
        with pytest.raises(UsageError, match=r"link|pipe|folder") as error:
            use(path)
        assert error.value.where == str(path)
        assert [(file.name, file.read_bytes()) for file in outside.iterdir()] == [("file", b"private\n")]

    @pytest.mark.parametrize("use", [*READERS, *WRITERS, check_target, make_folder])
    def test_a_link_on_the_way_is_refused(self, root: Path, outside: Path, use: Callable[[Path], object]) -> None:
        (outside / "sub").mkdir()
        (outside / "sub" / "file").write_bytes(b"{}\n")
        (root / "scores").symlink_to(outside)
        with pytest.raises(InputError, match="symbolic link") as error:
            use(root / "scores" / "sub" / "file")
        assert error.value.path == root / "scores"
        assert (outside / "sub" / "file").read_bytes() == b"{}\n"

    def test_a_file_on_the_way(self, root: Path) -> None:
        (root / "scores").write_text("")
        with pytest.raises(InputError, match="a file, not a folder"):
            open_regular(root / "scores" / "file")

    @pytest.mark.parametrize("use", WRITERS)
    def test_regular_files_are_read_and_written(self, root: Path, use: Callable[[Path], object]) -> None:
        path = root / "a" / "file"
        with pytest.raises(FileNotFoundError) as missing:
            open_regular(path)
        assert missing.value.filename == str(root / "a")
        make_folder(path.parent)
        with pytest.raises(FileNotFoundError) as missing:
            open_regular(path)
        assert missing.value.filename == str(path)
        check_target(path)
        for _ in range(2):
            use(path)
            assert read_regular(path, 7) in (b"written", b"")
        assert [entry.name for entry in path.parent.iterdir()] == ["file"]
        check_tree(root)

    def test_a_folder_that_becomes_a_link_meanwhile(self, root: Path, outside: Path) -> None:
        if not regular._BY_DESCRIPTOR:
            pytest.skip("needs openat")
        make_folder(root / "logs")
        with place_of(root / "logs" / "file") as place:
            (root / "logs").rename(root / "moved")
            (root / "logs").symlink_to(outside)
            os.close(place.open(os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
        assert (root / "moved" / "file").exists()
        assert (outside / "file").read_bytes() == b"private\n"

    def test_a_file_is_found_by_any_spelling(self, root: Path, tmp_path: Path, outside: Path) -> None:
        a_link(root / "report.html", outside)
        disk = tmp_path / "disk"
        (disk / "other").mkdir()
        run = disk / "run"
        for path in (
            run / "report.html",
            disk / "other" / ".." / "run" / "report.html",
            run / ".." / "run" / "report.html",
        ):
            assert in_run(path) == root / "report.html"
            with pytest.raises(InputError, match="symbolic link"), replacing(path):
                pass
        assert in_run(outside / "file") is None
        assert in_run(run / ".." / "file") is None
        assert in_run(root) is None

    def test_too_large(self, root: Path) -> None:
        (root / "file").write_bytes(b"12345")
        assert read_regular(root / "file", 5) == b"12345"
        with pytest.raises(InputError, match="larger than 4 bytes"):
            read_regular(root / "file", 4)


class TestElsewhere:
    def test_links_are_followed_to_regular_files(self, outside: Path, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(outside / "file")
        assert read_regular(tmp_path / "link", 100) == b"private\n"
        check_tree(tmp_path)
        with replacing(tmp_path / "link") as file:
            file.write(b"new\n")
        assert (outside / "file").read_bytes() == b"new\n"
        assert (tmp_path / "link").is_symlink()

    def test_nothing_is_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        for read in READERS:
            with pytest.raises(InputError, match="named pipe"):
                read(tmp_path / "pipe")
        with pytest.raises(InputError, match="device"):
            open_regular(Path("/dev/zero"))


def test_a_file_with_another_name_is_read_and_not_written(root: Path, outside: Path) -> None:
    """A stranger's run may have a hard link to a file of the user."""
    (root / "rows.jsonl").hardlink_to(outside / "file")
    assert read_regular(root / "rows.jsonl", 100) == b"private\n"
    with pytest.raises(InputError, match="hard link"):
        JsonlWriter(root / "rows.jsonl").__enter__()
    write_whole(root / "rows.jsonl", b"new")
    assert (outside / "file").read_bytes() == b"private\n"
    assert (root / "rows.jsonl").read_bytes() == b"new"


def test_temporary_files_are_new_ones_under_names_that_nobody_knows(
    root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda _size: "known")
    for make in (Path.hardlink_to, Path.symlink_to):
        taken = root / f".recipe.toml.known{UNFINISHED}"
        make(taken, outside / "file")
        with pytest.raises((FileExistsError, InputError)):
            write_whole(root / "recipe.toml", b"x")
        assert (outside / "file").read_bytes() == b"private\n"
        taken.unlink(missing_ok=True)
