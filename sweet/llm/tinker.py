"""A session with a service of the Tinker interface, by the client that its users have.

The client finds the service in TINKER_BASE_URL and the key in TINKER_API_KEY. It numbers the requests of a training
(`seq_id`), and repeats one whose answer is lost with its number, by which a service knows that it has taken the step.

Two generations of the client differ in how weights come back. Those with `save_weights_external` export files with an
address each; those before have the address of an archive, or from a server on this machine of a folder.
"""

from __future__ import annotations

import atexit
import importlib
import io
import logging
import os
import tarfile
import urllib.request
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ValidationError

from sweet.errors import ServerError, SweetError, UsageError, first_line
from sweet.installation import install_command
from sweet.llm.adapter import CONFIG, WEIGHTS, find_adapter
from sweet.regular import read_regular
from sweet.serving import is_loopback

RANK = 16
"""Rank of the adapter, where `--lora` is not given: a service trains nothing else."""
ADDRESS, KEY = "TINKER_BASE_URL", "TINKER_API_KEY"
STATE = "tinker.json"
"""The file of a trained model that names its state at the service, from which another training can start."""
TIMEOUT = 3600.0
"""Seconds for one request, with the time that it waits for its turn. The client repeats it within them."""
LONGEST = 400
"""Characters of the service's message in an error."""


def import_client() -> Any:
    """Return the package of the client.

    Raises:
        UsageError: it is not installed.
    """
    os.environ.setdefault("TINKER_TELEMETRY", "0")  # else it reports its errors, with parts of what was sent
    logging.getLogger("tinker").setLevel(logging.ERROR)
    try:
        return importlib.import_module("tinker")
    except ImportError as error:
        what = f"The client of the Tinker interface cannot be imported: {first_line(error)}"
        raise UsageError(what, where="--engine tinker", fix=install_command("tinker")) from error


def service_address() -> str:
    """Return the address of the service, as errors and records name it."""
    return os.environ.get(ADDRESS) or "the client's default service"


def answer_of(what: str, request: Callable[[], Any], *, fix: str = "the same command with --resume") -> Any:
    """Return the answer of a request, which the client repeats for a while if the service is away.

    Args:
        what: is asked for, for the error.
        request: returns the answer, or a future of it.

    Raises:
        ServerError: the service is away, or has an error of its own.
        SweetError: it refuses the request.
    """
    try:
        answer = request()
        return answer.result(TIMEOUT) if hasattr(answer, "result") else answer
    except Exception as error:  # those of the client, and of what it is built on, have no common class
        status = getattr(error, "status_code", None)
        reason = " ".join(str(error).split())[:LONGEST] or type(error).__name__
        if status in (401, 403) or KEY in reason:
            message = f"The service needs a valid key: {reason}"
            raise UsageError(message, where=service_address(), fix=f"export {KEY}=KEY") from error
        refused = isinstance(error, ValueError) or (400 <= (status or 500) < 500 and status not in (408, 425, 429))
        message = f"The service could not answer a request for {what}: {reason}"
        raise (SweetError if refused else ServerError)(message, where=service_address(), fix=fix) from error


class _State(BaseModel):
    """The file `STATE`."""

    service: str
    base: str


class Service:
    """A session with the service.

    Args:
        model: that a training starts from: one that the service has, or an adapter that it trained. It knows a
            directory by its last part, and other models as they are named.
        rank, seed: of the adapter that is trained.

    Attributes:
        base: the model without adapter, as it is named here.
        lora: the options of its adapters; the rank is that of an adapter that it starts from.
    """

    def __init__(self, model: str, rank: int = RANK, seed: int = 0) -> None:
        self._client, self.lora = import_client(), {"rank": rank, "seed": seed, "train_unembed": False}
        self._state: str | None = None
        self.base = model
        if (below := find_adapter(model)) is not None:
            try:
                state = _State.model_validate_json((below.path / STATE).read_bytes())
            except (OSError, ValidationError) as error:
                what = "The service cannot start from an adapter that it has not trained."
                raise UsageError(what, where=model, fix=f"name the model below it: {below.base}") from error
            self._state, self.base, self.lora["rank"] = state.service, below.base, below.rank
        self._session = answer_of("a session", self._client.ServiceClient, fix=f"export {ADDRESS}=URL, and {KEY}")
        atexit.register(close, self._session)

    def training(self, state: str | None = None, *, optimizer: bool = False) -> Any:
        """Return a client of a new training.

        Args:
            state: the name of the state to begin from; None for what the training starts from.
            optimizer: whether its optimizer goes on.
        """
        state, session = state or self._state, self._session
        if state is not None and hasattr(self._client.TrainingClient, "save_weights_external"):
            names = ("create_training_client_from_state", "create_training_client_from_state_with_optimizer")
            return answer_of("a saved state", lambda: getattr(session, names[optimizer])(state))
        name = Path(self.base).name if Path(self.base).expanduser().is_dir() else self.base
        training = answer_of(
            f"a training of {name}",
            lambda: session.create_lora_training_client(base_model=name, **self.lora),
            fix="a model that the service has",
        )
        if state is not None:
            load = training.load_state_with_optimizer if optimizer else training.load_state
            answer_of("a saved state", lambda: load(state))
        return training

    @cached_property
    def _rest(self) -> Any:
        with warnings.catch_warnings(action="ignore"):  # newer clients have one beside, with connections of its own
            return answer_of("the saved states", self._session.create_rest_client)

    def remove(self, state: str) -> None:
        """Have the service remove a saved state, if it can; else it keeps it for the time that was asked for."""
        with suppress(SweetError):
            answer_of("a removal", lambda: self._rest.delete_checkpoint_from_tinker_path(state))

    def download(self, client: Any, name: str, most: int) -> dict[str, bytes]:
        """Return the files of the adapter as it is now, by their names.

        Args:
            name: what the service calls the export.
            most: bytes of a file.
        """
        if hasattr(client, "save_weights_external"):
            path = answer_of("an export", lambda: client.save_weights_external(name, ttl_seconds=3600)).path
            urls = answer_of("an export", lambda: self._rest.get_external_weights_urls(path)).urls
            by_name = {Path(file).name: url for file, url in urls.items()}
            return {file: _fetched(by_name[file], most) for file in (CONFIG, WEIGHTS) if file in by_name}
        path = answer_of("an export", lambda: client.save_weights_for_sampler(name, ttl_seconds=3600)).path
        url = answer_of("an export", lambda: self._rest.get_checkpoint_archive_url_from_tinker_path(path)).url
        parts = urlsplit(url)
        if parts.scheme == "file" and is_loopback(urlsplit(service_address()).hostname or ""):
            folder = Path(unquote(parts.path))
            return {file.name: read_regular(file, most) for file in folder.rglob("adapter_*") if file.is_file()}
        with tarfile.open(fileobj=io.BytesIO(_fetched(url, most))) as archive:
            members = {Path(member.name).name: archive.extractfile(member) for member in archive}
            files = {name: members[name] for name in (CONFIG, WEIGHTS) if name in members}
            return {name: _bounded(file.read(most + 1), most) for name, file in files.items() if file is not None}


def close(session: Any) -> None:
    """End a session of the client."""
    with suppress(Exception):
        session.close().result(10) if hasattr(session, "close") else session.holder.close()


def _fetched(url: str, most: int) -> bytes:
    """Return what is at an address that the service gave, `most` bytes at most."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        what = f"The service gives an address that is not fetched: one of the scheme {parts.scheme[:20]}."
        raise SweetError(what, where=service_address(), fix="a service that exports by https")

    def fetch() -> bytes:
        with urllib.request.urlopen(url, timeout=60) as answer:
            whole = answer.length is not None and answer.length <= most  # only then an end that is missing is noticed
            return bytes(answer.read() if whole else answer.read(most + 1))

    return _bounded(answer_of("an export", fetch), most)


def _bounded(content: bytes, most: int) -> bytes:
    if len(content) > most:
        what = f"The service exports more than {most:,} bytes, the most that this adapter can have."
        raise SweetError(what, where=service_address(), fix="a service that exports LoRA adapters")
    return content
