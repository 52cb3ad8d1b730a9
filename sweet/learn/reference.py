"""Reference log-probabilities: computed once for each sequence and cached for other trainings of the user.

The cache key is everything that determines them: the content of the model's files, the type it computes in, the
versions of the libraries, and the ids and spans of each sequence. Packing, batch size, order, engine, learning rate and
the run do not matter, so a second training on the same pairs finds all of them, and one on more pairs computes only the
rest. They are in the user's cache folder and not in a run, because other runs and copies of a run use them.

A pass writes files of a few thousand sequences each, one after the other, so that an interrupted pass can be resumed. A
file is named after the sha256 of its bytes, contains the digest of its model, and is never changed: a damaged or moved
file does not match its name or key and is ignored. Only rank 0 reads and writes files, and sends the values to the
other ranks. The least recently used files are removed when the cache is too large.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from sweet.files import UNFINISHED, write_whole
from sweet.learn.batches import rank_groups
from sweet.learn.engine import Engine
from sweet.learn.logprobs import Scorer, span_logprobs
from sweet.learn.tokens import TokenSequence
from sweet.llm.weights import weights_digest
from sweet.paths import cache_folder
from sweet.runs.cache import prune

FORMAT = 1
"""Increased when the computed values or the file format change."""
MAX_BYTES = 256 << 20
"""Size limit of all files together: about three million sequences."""
GROUPS_PER_FILE = 256
"""Forward passes of a rank after which the results are written."""

_NAME = re.compile(rf"[0-9a-f]{{64}}\.safetensors|.*{re.escape(UNFINISHED)}")


class ReferenceCache:
    """The cached log-probabilities of one model.

    Args:
        base: the model, as for `load_model`; if its files are not found, nothing is cached.
    """

    def __init__(self, base: str) -> None:
        self.base = base

    @cached_property
    def _weights(self) -> str | None:
        return weights_digest(self.base)

    def find(self, digests: Sequence[bytes], spans: Sequence[int], compute_type: str) -> dict[int, Tensor]:
        """The cached values of sequences: sums of log-probabilities, [spans], by index of the sequence.

        Args:
            digests: of the sequences (`sequence_digest`).
            spans: number of spans of each.
            compute_type: `Scorer.compute_type`.
        """
        key = self._key(compute_type)
        if key is None:
            return {}
        indices: dict[bytes, list[int]] = {}
        for index, digest in enumerate(digests):
            indices.setdefault(digest, []).append(index)
        found: dict[int, Tensor] = {}
        for path in sorted(self._folder(key).glob("*.safetensors")):
            rows = _read(path, key)
            used = False
            for digest, sums in (rows or {}).items():
                for index in indices.get(digest, ()):
                    if len(sums) == spans[index]:
                        found[index], used = sums, True
            if used:
                with contextlib.suppress(OSError):
                    os.utime(path)
        return found

    def store(self, rows: Mapping[bytes, Tensor], compute_type: str) -> None:
        """Store sums by digest, except those that are not finite. Errors are ignored: they only cost time later."""
        key = self._key(compute_type)
        rows = {digest: sums for digest, sums in rows.items() if bool(torch.isfinite(sums).all())}
        if key is None or not rows:
            return
        content = _serialize(rows, key)
        name = f"{hashlib.sha256(content).hexdigest()}.safetensors"
        with contextlib.suppress(OSError):
            write_whole(self._folder(key) / name, content)
            prune(cache_folder("reference"), MAX_BYTES, lambda path: bool(_NAME.fullmatch(path.name)))

    def _key(self, compute_type: str) -> bytes | None:
        if self._weights is None:
            return None
        versions = [importlib.metadata.version(name) for name in ("torch", "transformers")]
        return hashlib.sha256("\n".join([str(FORMAT), self._weights, compute_type, *versions]).encode()).digest()

    @staticmethod
    def _folder(key: bytes) -> Path:
        return cache_folder("reference") / key.hex()


@dataclass(frozen=True)
class ReferenceLogprobs:
    """Sums of each sequence's spans, on the CPU, and the number of sequences that were found in the cache."""

    sums: list[Tensor]
    cached: int


def reference_logprobs(
    scorer: Scorer, engine: Engine, pool: Sequence[TokenSequence], budget: int, cache: ReferenceCache | None
) -> ReferenceLogprobs:
    """Log-probabilities of the whole pool under the scorer's current model, in nats; all ranks must call it
    together."""
    digests = [sequence_digest(sequence) for sequence in pool] if cache is not None else []
    found: dict[int, Tensor] = {}
    if cache is not None and engine.rank == 0:
        found = cache.find(digests, [len(sequence.spans) for sequence in pool], scorer.compute_type)
    sums_by_index = engine.all_gather(found)[0]
    cached = len(sums_by_index)
    missing = [index for index in range(len(pool)) if index not in sums_by_index]
    groups = scorer.pack([[pool[index]] for index in missing], budget)
    share = rank_groups([[missing[i] for i in group] for group in groups], engine.rank, engine.world)
    for start in range(0, len(share), GROUPS_PER_FILE):
        own: dict[int, Tensor] = {}
        for group, counts in share[start : start + GROUPS_PER_FILE]:
            scored = span_logprobs(scorer, [pool[i] for i in group], budget)
            if counts:
                own.update(zip(group, (sums for sums, _ in scored), strict=True))
        computed = {index: sums for part in engine.all_gather(own) for index, sums in part.items()}
        sums_by_index.update(computed)
        if cache is not None and engine.rank == 0:
            cache.store({digests[index]: sums for index, sums in computed.items()}, scorer.compute_type)
    return ReferenceLogprobs([sums_by_index[index] for index in range(len(pool))], cached)


def sequence_digest(sequence: TokenSequence) -> bytes:
    """The sha256 of the ids and span boundaries; the turns that the spans belong to do not matter."""
    numbers = array("q", sequence.ids)
    numbers.extend([-1, *(bound for span in sequence.spans for bound in (span.start, span.stop))])
    if any(span.split is not None for span in sequence.spans):
        numbers.extend([-2, *(-1 if span.split is None else span.split for span in sequence.spans)])
    return hashlib.sha256(numbers.tobytes()).digest()


def _serialize(rows: Mapping[bytes, Tensor], key: bytes) -> bytes:
    from safetensors.torch import save

    tensors = {
        "model": torch.tensor(list(key), dtype=torch.uint8),
        "digests": torch.frombuffer(bytearray(b"".join(rows)), dtype=torch.uint8).reshape(-1, 32).clone(),
        "counts": torch.tensor([len(sums) for sums in rows.values()], dtype=torch.int32),
        "sums": torch.cat([sums.to(torch.float32) for sums in rows.values()]),
    }
    content: bytes = save(tensors)
    return content


def _read(path: Path, key: bytes) -> dict[bytes, Tensor] | None:
    """The sums by digest; None if the file is not a file of this key. Damaged files are removed."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != path.stem:
            if _NAME.fullmatch(path.name):
                path.unlink(missing_ok=True)
            return None
        tensors = load(content)
        if bytes(tensors["model"].tolist()) != key:
            return None
        counts: list[int] = tensors["counts"].tolist()
        digests = [bytes(row) for row in tensors["digests"].tolist()]
        return dict(zip(digests, torch.split(tensors["sums"].to(torch.float32), counts), strict=True))
    except (OSError, SafetensorError, KeyError, ValueError, RuntimeError):
        return None
