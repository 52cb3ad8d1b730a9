"""Reference log-probabilities are computed once for each sequence, and damaged files are ignored."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sweet.files import write_whole
from sweet.learn import engine, reference
from sweet.learn.components import Objective
from sweet.learn.logprobs import Scorer, sequence_scores
from sweet.learn.loop import Loop, LoopSettings
from sweet.learn.reference import ReferenceCache, sequence_digest
from sweet.learn.sequences import Span, TokenSequence
from sweet.learn.trainee import save_model
from sweet.llm.pretrained import load_model
from sweet.llm.weights import weights_digest
from sweet.runs.cache import cached_sha256, prune
from tests.learn.builders import build_model
from tests.learn.test_loop import make_data

SETTINGS = LoopSettings(lr=1e-3, epochs=1, batch=4)
CRITIC = Objective(0.1, 0.01)

ids = st.lists(st.integers(0, 2**31), min_size=1, max_size=8)
spans = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=3)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("SWEET_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "reference"


@pytest.fixture
def base(tmp_path: Path, tokenizer: Any) -> str:
    save_model(build_model(len(tokenizer)), tokenizer, tmp_path / "base")
    old = time.time() - 60  # a file that was just written may still change
    for file in (tmp_path / "base").iterdir():
        os.utime(file, (old, old))
    return str(tmp_path / "base")


def train(base: str, tokenizer: Any, count: int = 6, **changes: Any) -> tuple[int, Loop]:
    """Train; return the number of sequences whose reference was computed, and the loop."""
    pool, examples = make_data(tokenizer, count)
    settings = LoopSettings(**(vars(SETTINGS) | changes))
    loop = Loop(load_model(base, "cpu"), pool.sequences, examples, CRITIC, settings, cache=ReferenceCache(base))
    computed = []

    def counted(scorer: Scorer, sequences: list[TokenSequence], budget: int, *, top: int) -> Any:
        computed.extend(sequences)
        return sequence_scores(scorer, sequences, budget, top=top)

    with patch.object(engine, "sequence_scores", counted):
        loop.run()
    return len(computed), loop


def test_a_second_training_computes_no_reference(
    base: str, tokenizer: Any, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, one = train(base, tokenizer)
    # Different packing, batch size and order.
    second, other = train(base, tokenizer, share=False, batch=3, seed=9, token_budget=100)
    assert (first, second) == (12, 0)
    monkeypatch.setenv("SWEET_CACHE", str(cache.parent))
    kept, again = one.reference(), other.reference()
    assert kept is not None
    assert again is not None
    fresh = Loop(load_model(base, "cpu"), one.pool, one.examples, CRITIC, SETTINGS).reference()
    assert fresh is not None
    for one_sums, other_sums, expected in zip(kept, again, fresh, strict=True):
        assert torch.equal(one_sums, other_sums)
        torch.testing.assert_close(other_sums, expected, rtol=1e-5, atol=1e-4)
    assert train(base, tokenizer, count=8)[0] == 16, "other data"


def test_another_model_or_type_finds_nothing(base: str, tokenizer: Any, cache: Path, tmp_path: Path) -> None:
    _, loop = train(base, tokenizer)

    def found(name: str, kind: str = "float32", pool: Any = loop.pool) -> bool:
        cached = ReferenceCache(name)
        key = cached.key(pool, kind)
        return key is not None and cached.find(key) is not None

    assert found(base)
    assert not found(base, "float32, autocast bfloat16")
    assert not found(base, pool=loop.pool[1:])
    shutil.copytree(base, tmp_path / "copy")
    assert found(str(tmp_path / "copy"))
    save_model(build_model(len(tokenizer), seed=1), tokenizer, Path(base))
    assert not found(base)
    assert not found("some/where")


def test_a_damaged_or_foreign_file_is_ignored(base: str, tokenizer: Any, cache: Path) -> None:
    train(base, tokenizer)
    (kept,) = cache.glob("*.safetensors")
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-5])
    assert train(base, tokenizer)[0] == 12
    assert kept.read_bytes() == whole  # the damaged file was replaced
    # The file of other data, and unusable files, one of them correctly named.
    key = kept.stem.partition("-")[0]
    kept.rename(cache / kept.name.replace(key, "0" * 64))
    (cache / "notes.safetensors").write_bytes(b"mine")
    content = b"no tensors at all"
    write_whole(cache / f"{key}-{hashlib.sha256(content).hexdigest()}.safetensors", content)
    assert train(base, tokenizer)[0] == 12
    assert kept.read_bytes() == whole
    assert (cache / "notes.safetensors").read_bytes() == b"mine"


def test_a_folder_that_cannot_be_written_only_costs_time(
    base: str, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SWEET_CACHE", str(tmp_path / "file"))
    assert train(base, tokenizer)[0] == 12
    assert train(base, tokenizer)[0] == 12


def test_the_least_recently_used_files_are_removed_beyond_the_limit(
    base: str, tokenizer: Any, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(base, tokenizer, count=3)
    (first,) = cache.glob("*.safetensors")
    os.utime(first, (1, 1))
    foreign = cache / "kept.txt"
    foreign.write_text("x" * 1000)
    monkeypatch.setattr(reference, "MAX_BYTES", first.stat().st_size + 100)
    train(base, tokenizer, count=5)
    left = list(cache.glob("*.safetensors"))
    assert first not in left or len(left) == 1
    assert sum(path.stat().st_size for path in left) <= reference.MAX_BYTES
    assert foreign.exists()


def test_pruning_starts_with_the_oldest(tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / f"{number}.a").write_bytes(b"x" * 100)
        os.utime(tmp_path / f"{number}.a", (number, number))
    (tmp_path / "0.b").write_bytes(b"x" * 100)
    prune(tmp_path, 1000, lambda path: path.suffix == ".a")
    assert len(list(tmp_path.iterdir())) == 11
    prune(tmp_path, 500, lambda path: path.suffix == ".a")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.b", "6.a", "7.a", "8.a", "9.a"]


def test_weights_are_identified_by_content(base: str, tokenizer: Any, cache: Path, tmp_path: Path) -> None:
    digest = weights_digest(base)
    assert digest is not None
    assert weights_digest(base) == digest
    (Path(base) / "README.md").write_text("changes nothing")
    assert weights_digest(base) == digest
    weights = Path(base) / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert weights_digest(base) not in (None, digest)
    weights.unlink()
    assert weights_digest(base) is None
    assert weights_digest("micro") is not None


def test_a_digest_is_cached_and_a_damaged_cache_is_ignored(cache: Path, tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_bytes(b"a")
    young = cached_sha256(file)
    assert not list(cache.parent.glob("sums/*"))  # too recent to rely on its modification time
    os.utime(file, (1000, 1000))
    assert cached_sha256(file) == young
    (memo,) = cache.parent.glob("sums/*.sum")
    file.write_bytes(b"b")
    os.utime(file, (1000, 1000))  # the same path, size and time: considered unchanged by design
    assert cached_sha256(file) == young
    memo.write_text(memo.read_text().replace(young[:4], "0000"))
    assert cached_sha256(file) != young


@given(ids, spans, ids, spans)
def test_different_sequences_have_different_digests(
    a: list[int], x: list[tuple[int, int]], b: list[int], y: list[tuple[int, int]]
) -> None:
    one = TokenSequence(tuple(a), tuple(Span(*bounds, 1) for bounds in x))
    other = TokenSequence(tuple(b), tuple(Span(*bounds, 3) for bounds in y))
    assert (sequence_digest(one) == sequence_digest(other)) == ((a, x) == (b, y))
