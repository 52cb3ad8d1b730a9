"""Files of the cache: the oldest are removed first, and sums of files are not computed twice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sweet.runs.cache import cached_sha256, prune
from sweet.runs.content import file_sha256


def test_pruning_starts_with_the_oldest(tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / f"{number}.a").write_bytes(b"x" * 100)
        os.utime(tmp_path / f"{number}.a", (number, number))
    (tmp_path / "0.b").write_bytes(b"x" * 100)
    prune(tmp_path, 1000, lambda path: path.suffix == ".a")
    assert len(list(tmp_path.iterdir())) == 11
    prune(tmp_path, 500, lambda path: path.suffix == ".a")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.b", "6.a", "7.a", "8.a", "9.a"]


def test_a_digest_is_cached_and_a_damaged_cache_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("SWEET_CACHE", str(cache))
    file = tmp_path / "weights"
    file.write_bytes(b"a")
    young = cached_sha256(file, file_sha256)
    assert not list(cache.glob("sums/*"))  # too recent to rely on its modification time
    os.utime(file, (1000, 1000))
    assert cached_sha256(file, file_sha256) == young
    (memo,) = cache.glob("sums/*.sum")
    file.write_bytes(b"b")
    os.utime(file, (1000, 1000))  # the same path, size and time: considered unchanged by design
    assert cached_sha256(file, file_sha256) == young
    memo.write_text(memo.read_text().replace(young[:4], "0000"))
    assert cached_sha256(file, file_sha256) != young
