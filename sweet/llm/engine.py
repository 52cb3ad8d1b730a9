"""The embedded engine: one model, one worker thread, continuous batching.

Requests wait in a queue. Before each decoding step the worker admits as many of them as fit, in order: prompts of
similar length are prefilled together (the part that a prompt shares with an earlier sequence is copied, see
`sweet.llm.kvcache`), a prompt with `n` replies is computed once and its row copied, and the new rows join the batch. A
row that ends is removed at once, and a last row moves into its slot. So no request waits for another to finish, and
no request depends on another: each has its own random generator. A row whose thought has used up its tokens
(`ThoughtLimit`) gets the ids of the end of the thought instead of those that are sampled.

`update` replaces weights while requests are waiting and running. From then on no request begins; those that have begun
end with the old weights, so that no reply mixes two policies and its log-probabilities are those of the weights that
sampled it. When no row is left, the worker copies the new weights over the old ones, drops the keys and values that it
kept of finished sequences, and goes on with the requests that wait. `Generated.version` says which weights sampled.

A failure affects only its own requests: those in a batch whose forward pass raised, or a request whose logits are not
finite. All requests fail only if the worker thread itself dies; the error then names the cause.
"""

from __future__ import annotations

import hashlib
import os
import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from sweet.errors import first_line
from sweet.llm.base import ContextOverflow, EngineFailed, RequestFailed, Sampling
from sweet.llm.decoder import Decoder, sample, top_logprobs
from sweet.llm.kvcache import PrefixStore

MIB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """Bounds of the batch.

    Attributes:
        rows: sequences decoded at the same time.
        cache_bytes: keys and values of running sequences, reserved up to each one's `max_tokens`.
        prefix_bytes: keys and values of finished sequences; of one that has more, those of its beginning.
        prefill_tokens: prompt tokens computed in one forward pass, padding included.
    """

    rows: int = 128
    cache_bytes: int = 2048 * MIB
    prefix_bytes: int = 512 * MIB
    prefill_tokens: int = 4096


@dataclass(frozen=True)
class ThoughtLimit:
    """After how many tokens a thought is ended.

    Attributes:
        tokens: of the thought, without the opening mark.
        forced: the ids that end it, which follow these tokens.
        has_ended: whether the last of some ids completes the closing mark.
        has_begun: whether some ids begin with the opening mark, None if they are too few to say. None if the prompt
            ends with that mark.
    """

    tokens: int
    forced: tuple[int, ...]
    has_ended: Callable[[Sequence[int]], bool]
    has_begun: Callable[[Sequence[int]], bool | None] | None


@dataclass(frozen=True)
class Generated:
    """One sampled sequence; the id that ended it is the last of `ids`. `top_logprobs` has one entry for each id, if
    requested. `version` is that of the weights that sampled it (`EmbeddedEngine.update`)."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str
    top_logprobs: tuple[tuple[tuple[int, float], ...], ...] = ()
    version: int = 0


@dataclass(eq=False)
class _Request:
    prompt: list[int]
    sampling: Sampling
    limit: int
    seed: int
    future: Future[Any]
    thought: ThoughtLimit | None = None
    started: int = 0
    done: dict[int, Generated] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """Cache columns that a reply may need."""
        return len(self.prompt) + self.limit


@dataclass(eq=False)
class _Row:
    """One reply that is being sampled. `cached` tokens of it are in the cache; the last of `ids` is not yet.

    `limit` is set while a thought may be going on that is limited, and `thought` is where it began in `ids`. `forced`
    are the ids that come next instead of sampled ones.
    """

    request: _Request
    index: int
    cached: int
    uniform: Callable[[], float]
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top_logprobs: list[tuple[tuple[int, float], ...]] = field(default_factory=list)
    limit: ThoughtLimit | None = None
    thought: int | None = None
    forced: deque[int] = field(default_factory=deque)

    def next_forced(self) -> int | None:
        """The id that comes next whatever is sampled; None if the sampled one does."""
        if self.forced:
            return self.forced.popleft()
        if (limit := self.limit) is None:
            return None
        if self.thought is None:
            begun = True if limit.has_begun is None else limit.has_begun(self.ids) if self.ids else None
            if begun is None:
                return None
            if not begun:
                self.limit = None
                return None
            self.thought = len(self.ids)
        if len(self.ids) > self.thought and limit.has_ended(self.ids[self.thought :]):
            self.limit = None
        elif len(self.ids) - self.thought >= limit.tokens:
            self.limit = None
            self.forced.extend(limit.forced)
            return self.forced.popleft()
        return None


@dataclass(eq=False)
class _Admission:
    """Replies of a request that are admitted now; `cached` tokens of the prompt are copied instead of computed."""

    request: _Request
    indices: range
    cached: int = 0


@dataclass(eq=False)
class _Update:
    """New weights by the model's parameter names."""

    weights: Mapping[str, torch.Tensor]
    version: int
    future: Future[None]


class EmbeddedEngine:
    """Samples from one model. Thread-safe. `close` stops the worker and fails pending requests.

    Attributes:
        context: the maximum number of tokens of prompt and reply together; None if the model does not define one.
        version: of the weights that sample, as `update` was given it; 0 before the first update.

    Args:
        model: a Hugging Face causal language model in evaluation mode, not used elsewhere at the same time.
        ends: ids that end a reply.
        name: the model's name, for messages.

    Raises:
        UsageError: the model cannot be run this way (see `sweet.llm.decoder`).
    """

    def __init__(self, model: Any, ends: Iterable[int], *, name: str = "model", limits: Limits | None = None) -> None:
        self.decoder = Decoder(model, name)
        self.context = self.decoder.context
        self.name = name
        self.ends = frozenset(ends)
        self.limits = limits or Limits()
        self._rows_allowed = max(1, self.limits.rows)
        self._tokens_allowed = self.limits.cache_bytes // max(1, self.decoder.cache.bytes_per_token)
        self.decoder.cache.most = self._tokens_allowed
        self._prefixes = PrefixStore(self.limits.prefix_bytes)
        self.version = 0
        self._updates: deque[_Update] = deque()
        self._waiting: deque[_Request] = deque()
        self._taken: list[_Request] = []  # by `_admit`, on the way from the queue into the batch
        self._rows: list[_Row] = []
        self._changed = threading.Condition()
        self._closing = False
        self._failure: BaseException | None = None
        self._worker = threading.Thread(target=self._run, name=f"engine of {name}", daemon=True)
        self._worker.start()

    # Requests ---------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether requests are accepted."""
        return not self._closing

    def submit(
        self, prompt: Sequence[int], sampling: Sampling, thought: ThoughtLimit | None = None
    ) -> Future[list[Generated]]:
        """Request `sampling.n` replies to a prompt of token ids. Cancelling the future drops the request.

        Args:
            thought: bounds the thought before each reply.

        Raises:
            ContextOverflow: the prompt leaves no room for a reply.
            RequestFailed: the prompt is empty or has ids that the model does not know.
        """
        ids, limit = list(prompt), sampling.max_tokens
        if not ids:
            raise RequestFailed("The prompt is empty.", where=self.name)
        if min(ids) < 0 or max(ids) >= self.decoder.vocabulary:
            raise RequestFailed(
                f"The prompt has ids outside the model's vocabulary of {self.decoder.vocabulary}.", where=self.name
            )
        if self.context is not None:
            room = self.context - len(ids)
            if room < 1:
                raise ContextOverflow(
                    f"The prompt has {len(ids)} tokens; the model {self.name} accepts {self.context} with the reply.",
                    where=self.name,
                )
            limit = min(limit, room)
        if limit < 1 or sampling.n < 1:
            raise RequestFailed("max_tokens and n must be at least 1.", where=self.name)
        seed = int.from_bytes(os.urandom(8), "big") if sampling.seed is None else sampling.seed
        request = _Request(ids, sampling, limit, seed, Future(), thought)
        with self._changed:
            if self._closing:
                raise self._closed_error()
            self._waiting.append(request)
            self._changed.notify()
        return request.future

    def update(self, weights: Mapping[str, torch.Tensor], version: int) -> Future[None]:
        """Replace weights of the model. Replies that have begun end with the old ones; no other begins before.

        Args:
            weights: new values by the names of the model's parameters, on any device and of any floating point type;
                they must not change before the future is done. Parameters that are not among them stay as they are.
            version: recorded with the replies that are sampled from then on.

        Raises:
            ValueError: a name or a shape is not one of the model's parameters.
        """
        parameters = dict(self.decoder.model.named_parameters(remove_duplicate=False))
        for name, weight in weights.items():
            if name not in parameters or parameters[name].shape != weight.shape:
                raise ValueError(f"The weights belong to another model than {self.name}: {name}")
        future: Future[None] = Future()
        with self._changed:
            if self._closing:
                raise self._closed_error()
            self._updates.append(_Update(weights, version, future))
            self._changed.notify()
        return future

    def close(self) -> None:
        """Stop the worker and fail pending requests."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._worker.join()
        self.decoder.close()

    def _closed_error(self) -> EngineFailed:
        if self._failure is None:
            return EngineFailed(f"The engine of {self.name} is closed.", where=self.name)
        return EngineFailed(f"The engine of {self.name} died: {first_line(self._failure)}", where=self.name)

    # The worker -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with torch.inference_mode():
                while self._wait():
                    self._drop_cancelled()
                    self._update_weights()
                    self._admit()
                    if self._rows:
                        self._fail_on_error([row.request for row in self._rows], self._step)
        except BaseException as error:
            self._failure = error
        finally:
            with self._changed:
                self._closing = True
                unfinished = {*self._waiting, *self._taken, *(row.request for row in self._rows)}
                updates = [*self._updates]
                self._waiting.clear()
                self._updates.clear()
            self._rows.clear()
            for request in unfinished:
                _fail(request, self._closed_error())
            for update in updates:
                _fail(update, self._closed_error())

    def _wait(self) -> bool:
        with self._changed:
            while not (self._waiting or self._rows or self._updates or self._closing):
                self._changed.wait()
            return not self._closing

    def _drop_cancelled(self) -> None:
        """Drop the requests that were cancelled or have failed, and their rows."""
        with self._changed:
            if any(request.future.done() for request in self._waiting):
                self._waiting = deque(request for request in self._waiting if not request.future.done())
        self._remove_rows([slot for slot, row in enumerate(self._rows) if row.request.future.done()])

    def _fail_on_error(self, requests: Sequence[_Request], work: Callable[[], None]) -> None:
        """Run `work`; if it raises, fail these requests and remove their rows."""
        try:
            work()
        except Exception as error:
            for request in requests:
                failed = EngineFailed(f"The model {self.name} failed: {first_line(error)}", where=self.name)
                failed.__cause__ = error
                _fail(request, failed)
            self._drop_cancelled()

    def _update_weights(self) -> None:
        """Do the updates that wait, once all replies that have begun have ended."""
        if self._rows or (self._waiting and self._waiting[0].started):
            return
        while self._updates:
            update = self._updates[0]
            parameters = dict(self.decoder.model.named_parameters(remove_duplicate=False))
            for name, weight in update.weights.items():
                parameters[name].copy_(weight)
            self._prefixes.clear()
            self.version = update.version
            self._updates.popleft()
            _resolve(update, None)

    def _admit(self) -> None:
        """Admit waiting requests in order, as many of their replies as fit; before an update of the weights none but
        the other replies of a request that has begun."""
        admitted: list[_Admission] = []
        self.decoder.cache.used = max((row.cached for row in self._rows), default=0)
        count = len(self._rows)
        longest = max((row.request.length for row in self._rows), default=0)
        while self._waiting:
            request = self._waiting[0]
            if self._updates and not request.started:
                break
            width = max(longest, request.length)
            fits = min(self._rows_allowed, self._tokens_allowed // width) - count
            take = min(max(fits, 0 if count else 1), request.sampling.n - request.started)
            if take <= 0:
                break
            admitted.append(_Admission(request, range(request.started, request.started + take)))
            self._taken.append(request)
            request.started += take
            count, longest = count + take, width
            if request.started == request.sampling.n:
                self._waiting.popleft()
        while admitted:
            group = self._group(admitted)
            self._fail_on_error([entry.request for entry in group], partial(self._prefill, group))
        self._taken.clear()

    def _group(self, admitted: list[_Admission]) -> list[_Admission]:
        """Remove and return the prompts to prefill together, shortest first, after copying their cached prefixes."""
        admitted.sort(key=lambda entry: len(entry.request.prompt))
        first, longest = len(self._rows), 0
        size = 0
        for entry in admitted:
            hit = self._prefixes.find(entry.request.prompt)
            # One token is always computed: its logits give the first token of the reply.
            entry.cached = 0 if hit is None else min(hit[1], len(entry.request.prompt) - 1)
            longest = max(longest, len(entry.request.prompt) - entry.cached)
            if size and (size + 1) * longest > self.limits.prefill_tokens:
                break
            if hit is not None:
                self.decoder.cache.write_row(first + size, hit[0].tensors, entry.cached)
            size += 1
        group = admitted[:size]
        del admitted[:size]
        return group

    def _prefill(self, group: list[_Admission]) -> None:
        """Prefill the prompts of a group and start its replies."""
        cache, first = self.decoder.cache, len(self._rows)
        tokens = [entry.request.prompt[entry.cached :] for entry in group]
        logits = self.decoder.extend(first, tokens, [entry.cached for entry in group])
        if not any(entry.cached for entry in group):
            self._store_prefix(first, group[0].request.prompt)
        rows = [self._new_row(entry.request, entry.indices[0]) for entry in group]
        source = list(range(len(tokens)))
        for number, entry in enumerate(group):
            more = [self._new_row(entry.request, index) for index in entry.indices[1:]]
            if more:
                start = first + len(rows)
                cache.copy_rows(first + number, slice(start, start + len(more)), len(entry.request.prompt))
                rows += more
                source += [number] * len(more)
        picked = logits if len(source) == len(tokens) else logits[torch.tensor(source, device=logits.device)]
        self._rows += rows
        self._sample_next(first, picked)

    def _new_row(self, request: _Request, index: int) -> _Row:
        name = f"{request.seed}/{index}".encode()
        seed = int.from_bytes(hashlib.blake2b(name, digest_size=16).digest(), "big")
        return _Row(request, index, len(request.prompt), random.Random(seed).random, limit=request.thought)

    def _step(self) -> None:
        rows = self._rows
        cached = [row.cached for row in rows]
        logits = self.decoder.extend(0, [row.ids[-1:] for row in rows], cached)
        for row in rows:
            row.cached += 1
        self._sample_next(0, logits)

    def _sample_next(self, first: int, logits: torch.Tensor) -> None:
        """Sample the next token of the rows from `first` on, and remove rows that end."""
        rows = self._rows[first:]
        settings = [row.request.sampling for row in rows]
        uniforms = [row.uniform() for row in rows]
        ids, logprobs = sample(logits, [s.temperature for s in settings], [s.top_p for s in settings], uniforms)
        if count := max(s.top_logprobs for s in settings):
            for row, top in zip(rows, top_logprobs(logits, count), strict=True):
                row.top_logprobs.append(top[: row.request.sampling.top_logprobs])
        for place, row in enumerate(rows):
            if (row.limit or row.forced) and (forced := row.next_forced()) is not None:
                ids[place], logprobs[place] = forced, float(logits[place].float().log_softmax(-1)[forced])
        ended: list[int] = []
        for slot, row, token, logprob in zip(range(first, len(self._rows)), rows, ids, logprobs, strict=True):
            row.ids.append(token)
            row.logprobs.append(logprob)
            if token in self.ends or len(row.ids) >= row.request.limit or logprob != logprob:
                ended.append(slot)
        for slot in ended:
            self._finish_row(slot)
        self._remove_rows(ended)

    def _finish_row(self, slot: int) -> None:
        row = self._rows[slot]
        request = row.request
        if row.logprobs[-1] != row.logprobs[-1]:
            _fail(request, EngineFailed(f"The logits of the model {self.name} are not finite.", where=self.name))
        elif row.index == 0:
            self._store_prefix(slot, [*request.prompt, *row.ids[: row.cached - len(request.prompt)]])
        reason = "stop" if row.ids[-1] in self.ends else "length"
        top = tuple(row.top_logprobs)
        request.done[row.index] = Generated(tuple(row.ids), tuple(row.logprobs), reason, top, self.version)
        if len(request.done) == request.sampling.n:
            _resolve(request, [request.done[index] for index in range(request.sampling.n)])

    def _remove_rows(self, slots: Sequence[int]) -> None:
        """Move the last rows into the slots of removed ones, all at once."""
        count = len(self._rows) - len(slots)
        removed = set(slots)
        free = [slot for slot in slots if slot < count]
        last = [slot for slot in range(count, len(self._rows)) if slot not in removed]
        if last:
            self.decoder.cache.copy_rows(last, free, max(self._rows[slot].cached for slot in last))
        for source, target in zip(last, free, strict=True):
            self._rows[target] = self._rows[source]
        del self._rows[count:]

    def _store_prefix(self, slot: int, ids: list[int]) -> None:
        ids = ids[: self.limits.prefix_bytes // self.decoder.cache.bytes_per_token]
        if not self._prefixes.covers(ids):
            self._prefixes.add(ids, self.decoder.cache.read_row(slot, len(ids)))


def _resolve(request: _Request | _Update, result: Any) -> None:
    with suppress(InvalidStateError):
        request.future.set_result(result)


def _fail(request: _Request | _Update, error: Exception) -> None:
    with suppress(InvalidStateError):
        request.future.set_exception(error)
