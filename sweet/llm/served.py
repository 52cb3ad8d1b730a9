"""The models that a server serves, and which of them is meant by the model that was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from sweet.errors import UsageError
from sweet.hints import Hint, option
from sweet.llm.base import Role
from sweet.llm.response_schema import Served
from sweet.llm.roles import MODEL_OPTIONS, URL_OPTIONS
from sweet.tasks.micro import PACKAGED

if TYPE_CHECKING:
    from sweet.llm.http import Channel

MOST_BYTES = 32 << 20
"""Bytes of the list of models that are accepted: more than 100,000 models need."""
MOST_NAMES, LONGEST_NAME = 20, 100
"""Names that an error lists, and characters of each."""


async def served_names(channel: Channel, url: str, timeout: float) -> list[str]:
    """Return the names of the models that a server serves.

    Args:
        timeout: seconds for the request and its response.

    Raises:
        HttpError: the request failed.
        UsageError: it is not an OpenAI-compatible server.
    """
    from sweet.llm.http import AnswerError

    try:
        return Served.model_validate(await channel.get("/models", MOST_BYTES, timeout)).names
    except (AnswerError, ValidationError) as error:
        raise UsageError(
            "This is not an OpenAI-compatible server: /models returns no list of models.",
            where=url,
            fix="check the address (it usually ends in /v1)",
        ) from error


def choose_name(names: Sequence[str], model: str, url: str, role: Role) -> str:
    """Return the name under which a server serves `model`.

    Raises:
        UsageError: it does not.
    """
    if model in names:
        return model
    if len(names) == 1 and _is_path(model):
        return names[0]
    raise UsageError(
        f"The server does not serve {model}. It serves: {_listed(names)}.",
        where=url,
        fix=option(MODEL_OPTIONS[role], _shown(names[0])) if names else "start the server with the model",
    )


def assign(models: Sequence[str], served: Mapping[str, Sequence[str]], role: Role) -> dict[str, list[str]]:
    """Return the addresses that serve each of several models.

    Args:
        served: the names of the models that each address serves.

    Raises:
        UsageError: no address serves one of the models, or an address serves none of them.
    """
    found = {model: [url for url, names in served.items() if model in names] for model in models}
    at = "; ".join(f"{url} serves {_listed(names)}" for url, names in served.items())
    for model, urls in found.items():
        if not urls:
            raise UsageError(
                f"No server serves {_shown(model)}: {at}.",
                where=option(MODEL_OPTIONS[role], _shown(model)),
                fix=option(URL_OPTIONS[role], "URL"),
            )
    idle = next((url for url in served if not any(url in urls for urls in found.values())), None)
    if idle is not None:
        raise UsageError(
            f"This server serves none of {', '.join(map(_shown, models))}. It serves: {_listed(served[idle])}.",
            where=idle,
            fix=Hint("omit it, or name one of its models: ", option(MODEL_OPTIONS[role], "MODEL")),
        )
    return found


def _listed(names: Sequence[str]) -> str:
    """Return the first names, and how many there are besides."""
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return (", ".join(map(_shown, names[:MOST_NAMES])) or "nothing") + more


def _shown(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"


def _is_path(model: str) -> bool:
    """Whether the name is a location on some machine rather than the name under which a server serves it."""
    return model in PACKAGED or model.startswith((".", "/", "~")) or Path(model).is_dir()
