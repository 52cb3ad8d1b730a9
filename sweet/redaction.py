"""Remove API keys and passwords from text that is shown or written.

Two kinds of secrets are replaced by `***`: the values of the environment variables that hold keys (`VARIABLES`) and
those that were given to `hide`, wherever they occur, and what looks like a secret (`_PATTERNS`): a password or a key in
an address, a bearer token, a key in the form of OpenAI or the model hub. A server may show a key in another form: its
base64 (also within an encoded text), its hexadecimal digits, the key backwards, with separators between its characters,
and each of its halves are removed, too (`_forms`).

A placeholder that is set because a client wants a key (`EMPTY`, `none`) is also an ordinary word. Therefore values
below `SHORTEST` characters stay, and so do other forms of values that could be words. The text of a reply
(`reply_redactor`) becomes data and is scored: in it values that could be words of a reply stay too, and nothing is
replaced by its form.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import re
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import quote

VARIABLES = (
    *("SWEET_AGENT_API_KEY", "SWEET_SIM_API_KEY", "SWEET_JUDGE_API_KEY", "OPENAI_API_KEY", "OPENAI_ADMIN_KEY"),
    *("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN", "VLLM_API_KEY"),
    *("WANDB_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "RAY_AUTH_TOKEN", "SWEET_NOTIFY"),
    *("SWEET_GATEWAY_KEY", "TINKER_API_KEY"),
)
"""The environment variables that hold keys of this program and of its libraries, and the one that holds an address."""

_HIDDEN_VALUES: set[str] = set()

SHORTEST = 6
"""Shorter values of the variables are placeholders."""
SHORTEST_IN_REPLY, LONGEST_WORD = 8, 16
"""In a reply, shorter values stay, and so do lower-case words below `LONGEST_WORD` letters, such as `password`."""

_HIDDEN = "***"
_URL_SAFE = str.maketrans("+/", "-_")
_SEPARATOR = r"[\s.,:;_|*-]"
_PATTERNS = (
    ("://", re.compile(r"(://)[^/\s@]+@"), r"\1***@"),
    (
        "=",
        re.compile(r"(?i)([?&](?:api[-_]?key|key|access[-_]?token|token|secret|password|sig(?:nature)?)=)[^&\s]+"),
        r"\1***",
    ),
    ("bearer", re.compile(r"(?i)\b(bearer\s+)[\w.~+/=-]{6,}"), r"\1***"),
    ("sk-", re.compile(r"\bsk-[A-Za-z0-9_-]{16,}"), "sk-***"),
    ("hf_", re.compile(r"\bhf_[A-Za-z0-9]{20,}"), "hf_***"),
)
"""Each with what is in every text that it changes, in lower case. Most texts of a record have none of that."""


def hide(secret: str) -> None:
    """Have a value that is in no variable, such as that of an option, removed as those of the variables are."""
    _HIDDEN_VALUES.add(secret)


def redacted(text: str) -> str:
    """Return a text for people or for a record without secrets."""
    return _redacted(text, tuple(_keys(SHORTEST)))


def reply_redactor() -> Callable[[str], str]:
    """Return a function that removes the values that the variables have now from the text of a reply.

    A client makes it once: replies come in thousands a second.
    """
    keys = _spelt(key for key in _keys(SHORTEST_IN_REPLY) if not _could_be_a_word(key))

    def redacted_reply(text: str) -> str:
        for key in keys:
            text = text.replace(key, _HIDDEN)
        return text

    return redacted_reply


def redacted_json(value: Any) -> Any:
    """Return JSON types with every text, keys of objects included, as `redacted` returns it."""
    return _redacted_json(value, tuple(_keys(SHORTEST)))


def _redacted_json(value: Any, keys: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        return _redacted(value, keys)
    if isinstance(value, dict):
        return {_redacted_json(key, keys): _redacted_json(item, keys) for key, item in value.items()}
    if isinstance(value, list):
        return [_redacted_json(item, keys) for item in value]
    return value


def _redacted(text: str, keys: tuple[str, ...]) -> str:
    spelt, separated = _forms(keys)
    for key in spelt:
        text = text.replace(key, _HIDDEN)
    for form in separated:
        text = form.sub(_HIDDEN, text)
    lowered = text.lower()
    for mark, pattern, replacement in _PATTERNS:
        if mark in lowered:
            text = pattern.sub(replacement, text)
    return text


def _keys(shortest: int) -> list[str]:
    """Return the values of the variables, the longest first: one may contain another."""
    found = {value.strip() for name in VARIABLES if (value := os.environ.get(name))} | _HIDDEN_VALUES
    return sorted((value for value in found if len(value) >= shortest), key=len, reverse=True)


def _spelt(keys: Iterable[str]) -> list[str]:
    """Return keys as they are in a text, in an address and in JSON."""
    return [spelt for key in keys for spelt in dict.fromkeys((key, quote(key, safe=""), json.dumps(key)[1:-1]))]


@functools.lru_cache(8)
def _forms(keys: tuple[str, ...]) -> tuple[list[str], list[re.Pattern[str]]]:
    """Return the texts in whose form keys are removed, and patterns of those with separators."""
    spelt, separated = _spelt(keys), []
    for key in keys:
        if len(key) < SHORTEST_IN_REPLY or _could_be_a_word(key):
            continue
        raw, bare = key.encode("utf-8", "surrogateescape"), re.sub(_SEPARATOR, "", key)
        coded = [_inner_base64(raw, before) for before in range(3)]
        spelt += [key[::-1], *coded, *(text.translate(_URL_SAFE) for text in coded)]
        if len(key) >= 2 * SHORTEST_IN_REPLY and "://" not in key:  # the half of an address may be that of another
            spelt += [key[: len(key) // 2], key[len(key) // 2 :]]
        separated.append(_spaced(raw.hex(), re.IGNORECASE))
        if len(bare) >= SHORTEST_IN_REPLY:
            separated.append(_spaced(bare))
    return spelt, separated


def _inner_base64(raw: bytes, before: int) -> str:
    """Return the part of the base64 of a text that is the same whatever follows, and whichever bytes precede it: the
    first of these `before` bytes share a group of three with it."""
    text = base64.b64encode(bytes(before) + raw).decode().rstrip("=")
    whole = (before + len(raw)) * 8 // 6
    return text[-(-before * 8 // 6) : whole]


def _spaced(text: str, flags: int = 0) -> re.Pattern[str]:
    """Return a pattern of a text, which has no separators, with some between its characters or none."""
    return re.compile(f"{_SEPARATOR}{{0,6}}".join(map(re.escape, text)), flags)


def _could_be_a_word(key: str) -> bool:
    return len(key) < LONGEST_WORD and key.isalpha() and key.islower()
