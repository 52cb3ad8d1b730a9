"""Reference log-probabilities: computed once for the sequences of a training, and cached for its repetition.

The cache key is everything that determines them: the content of the model's files, the type it computes in, the
versions of the libraries, and the ids and spans of all sequences. Packing, batch size, order, engine, learning rate and
the run do not matter, so a second training on the same data computes none. They are in the user's cache folder and not
in a run, because other runs and copies of a run use them.

The file of a training is named after its key and the sha256 of its bytes: a damaged or moved file does not match its
name and is ignored. Only rank 0 reads and writes files, and sends the values to the other ranks. The least recently
used files are removed when the cache is too large.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import re
from array import array
from collections.abc import Sequence

import torch
from torch import Tensor

from sweet.files import UNFINISHED, write_whole
from sweet.learn.engine import Engine, scores_in_shares
from sweet.learn.logprobs import Scorer
from sweet.learn.sequences import TokenSequence
from sweet.llm.weights import weights_digest
from sweet.paths import cache_folder
from sweet.runs.cache import prune

FORMAT = 1
"""Increased when the computed values or the file format change."""
MAX_BYTES = 256 << 20
"""Size limit of all files together: about three million sequences."""

_NAME = re.compile(rf"[0-9a-f]{{64}}-[0-9a-f]{{64}}\.safetensors|.*{re.escape(UNFINISHED)}")


class ReferenceCache:
    """The cached log-probabilities of one model.

    Args:
        base: the model, as for `load_model`; if its files are not found, nothing is cached.
    """

    def __init__(self, base: str) -> None:
        self.base = base

    def key(self, pool: Sequence[TokenSequence], compute_type: str) -> str | None:
        """What identifies the values of these sequences, by a `Scorer.compute_type`; None if nothing is cached."""
        weights = weights_digest(self.base)
        if weights is None:
            return None
        versions = [importlib.metadata.version(name) for name in ("torch", "transformers")]
        key = hashlib.sha256("\n".join([str(FORMAT), weights, compute_type, *versions]).encode())
        for sequence in pool:
            key.update(sequence_digest(sequence))
        return key.hexdigest()

    def find(self, key: str) -> list[Tensor] | None:
        """The cached values: sums of log-probabilities, [spans], of each sequence. Damaged files are removed."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        for path in cache_folder("reference").glob(f"{key}-*.safetensors"):
            with contextlib.suppress(OSError, SafetensorError, KeyError):
                content = path.read_bytes()
                if path.stem != f"{key}-{hashlib.sha256(content).hexdigest()}":
                    path.unlink(missing_ok=True)
                    continue
                found = load(content)
                os.utime(path)
                return list(torch.split(found["sums"], found["counts"].tolist()))
        return None

    def store(self, key: str, sums: Sequence[Tensor]) -> None:
        """Store values, unless one is not finite. Errors are ignored: they only cost time later."""
        from safetensors.torch import save

        if not sums or not bool(torch.isfinite(joined := torch.cat([*sums]).to(torch.float32)).all()):
            return
        content = save({"sums": joined, "counts": torch.tensor([len(each) for each in sums], dtype=torch.int32)})
        folder = cache_folder("reference")
        with contextlib.suppress(OSError):
            write_whole(folder / f"{key}-{hashlib.sha256(content).hexdigest()}.safetensors", content)
            prune(folder, MAX_BYTES, lambda path: bool(_NAME.fullmatch(path.name)))


def reference_logprobs(
    scorer: Scorer, engine: Engine, pool: Sequence[TokenSequence], budget: int, cache: ReferenceCache | None
) -> list[Tensor]:
    """Log-probabilities of the whole pool under the scorer's current model, in nats: the sums of each sequence's spans,
    on the CPU. All ranks must call it together."""
    key = None if cache is None or engine.rank != 0 else cache.key(pool, scorer.compute_type)
    known = engine.all_gather(None if cache is None or key is None else cache.find(key))[0]
    if known is not None:
        return known
    computed = scores_in_shares(engine, scorer, pool, budget, lambda scores: scores.sums)
    if cache is not None and key is not None:
        cache.store(key, computed)
    return computed


def sequence_digest(sequence: TokenSequence) -> bytes:
    """The sha256 of the ids and span boundaries; the turns that the spans belong to do not matter."""
    numbers = array("q", sequence.ids)
    numbers.extend([-1, *(bound for span in sequence.spans for bound in (span.start, span.stop))])
    if any(span.split is not None for span in sequence.spans):
        numbers.extend([-2, *(-1 if span.split is None else span.split for span in sequence.spans)])
    return hashlib.sha256(numbers.tobytes()).digest()
