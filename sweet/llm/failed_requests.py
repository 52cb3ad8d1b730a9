"""From a server's error to the error that is raised: an overflow of the context, a refusal, a server that is down."""

from __future__ import annotations

import re

from sweet.errors import ServerError, SweetError, UsageError
from sweet.hints import Hint, option
from sweet.llm.base import ContextOverflow, RequestFailed, Role
from sweet.llm.http import HttpError, StatusError, TransportError
from sweet.llm.roles import KEY_VARIABLES

_OVERFLOW = re.compile(
    r"context[ _-]?(length|window)|maximum[^.]{0,20}context|prompt is too long|greater than max_model_len",
    re.IGNORECASE,
)
_CONTEXT = re.compile(r"context length (?:is|of) (?:only )?(\d+)", re.IGNORECASE)
_LENGTH = re.compile(r"greater than max_model_len=(\d+)", re.IGNORECASE)
_PROMPT = re.compile(r"(?<!\d)(\d++) (?:input tokens|in the messages|in your prompt|of text input)", re.IGNORECASE)


def overflows(error: StatusError) -> bool:
    if error.status not in (400, 413, 422):
        return False
    return error.code == "context_length_exceeded" or bool(_OVERFLOW.search(error.message))


def reply_room(error: HttpError, requested: int) -> int | None:
    """Tokens left for the reply if the server says that the prompt alone would fit."""
    if not isinstance(error, StatusError) or not overflows(error):
        return None
    length = _LENGTH.search(error.message)
    if length is not None and 0 < int(length[1]) < requested:
        return int(length[1])  # vllm checks this before the prompt, and then truncates the reply itself
    context, prompt = _CONTEXT.search(error.message), _PROMPT.search(error.message)
    if context is None or prompt is None:
        return None
    room = int(context[1]) - int(prompt[1])
    return room if 0 < room < requested else None


def request_failed(error: HttpError, url: str) -> RequestFailed:
    """The error of a request that is not retried."""
    if not isinstance(error, StatusError):
        return RequestFailed(f"The server's answer cannot be used: {error.message}.", where=url)
    kind = ContextOverflow if overflows(error) else RequestFailed
    return kind(f"The server refused the request ({error.status}): {error.message}", where=url)


def unusable(error: StatusError, url: str, role: Role) -> UsageError:
    if error.status in (401, 403):
        return UsageError(
            f"The server refuses the API key ({error.status}): {error.message}",
            where=url,
            fix=f"export {KEY_VARIABLES[role][0]}=…",
        )
    if error.status < 400:
        return UsageError(
            f"The server redirects to another address, which is not followed ({error.status}): {error.message}",
            where=url,
            fix=Hint("write the address that it redirects to, or ", option("follow_redirects")),
        )
    return UsageError(
        f"This is not an OpenAI-compatible server ({error.status} for /models).",
        where=url,
        fix="check the address (it usually ends in /v1)",
    )


def retries_exhausted(
    error: HttpError, url: str, retry_timeout: float, *, opening: bool = False, answered: bool = True
) -> SweetError:
    """The final error: a server that is down ends the stage; an error or a slow response fails only the request.

    Args:
        opening: no request was made before.
        answered: whether any request was answered before; a server that never answered in time is down.
    """
    status = error.status if isinstance(error, StatusError) else None
    slow = isinstance(error, TransportError) and error.timed_out and answered
    why = error.message if status is None else f"{status} {error.message}"
    if opening or not (slow or (status is not None and status not in (502, 503, 504))):
        return ServerError(
            f"The server at {url} could not be reached for {retry_timeout:g} seconds: {why}",
            where=url,
            fix="start the server or check the address, then run the same command again",
        )
    return RequestFailed(f"The server failed this request for {retry_timeout:g} seconds: {why}", where=url)
