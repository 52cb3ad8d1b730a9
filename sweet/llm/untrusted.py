"""The process that renders chat templates and tries tokenizers of models that are not the package's.

A template is a program, and a tokenizer can take any time and memory and make a text millions of times as long.
`sweet.llm.limits` asks this process for them, which has limits of both (`sweet.sandbox.reading`). Only the standard
library, jinja2 and tokenizers are imported, and for response templates the parser of transformers.
"""

from __future__ import annotations

import functools
import json
import math
import string
from datetime import datetime
from pathlib import Path
from typing import Any

from sweet.sandbox.reading import Reply, main

CPU_SECONDS, MEMORY_BYTES = 15.0, 3 << 30
"""Limits of a request: the largest tokenizers take some seconds, and a gigabyte."""
MOST_GROWTH, MOST_ADDED = 100, 1 << 16
"""How many times as long a tokenizer may make a text, and how many tokens are added, which takes 0.3 ms for each."""

SAMPLE = " ".join(character * 200 for character in string.printable) + " Ein Text, 数字 12345 \u0301\U0001f600\n" * 100
"""A text with what patterns find hard: repetitions."""


def render(template: str, data: dict[str, Any]) -> Reply:
    """Return the text of a chat template, or why it refuses its data."""
    from jinja2.exceptions import TemplateError

    try:
        return {"text": _compiled(template).render(**data)}, []
    except (TemplateError, TypeError) as error:
        return {"refused": str(error)}, []


@functools.lru_cache(maxsize=8)
def _compiled(source: str) -> Any:
    """Compile a template with what transformers gives to it (`utils.chat_template_utils`)."""
    from jinja2 import ext, nodes, sandbox, utils
    from jinja2.exceptions import SecurityError, TemplateError

    class Generation(ext.Extension):
        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)

    class Namespace(utils.Namespace):
        def __init__(*args: Any, **attributes: Any) -> None:
            utils.Namespace.__init__(args[0])
            for name, value in dict(*args[1:], **attributes).items():
                args[0][name] = value

        def __setitem__(self, name: str, value: Any) -> None:
            if str(name).startswith("_"):
                raise SecurityError(f"a namespace has no {name}")
            super().__setitem__(name, value)

    def refuse(message: str) -> None:
        raise TemplateError(message)

    Generation.tags = {"generation"}
    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols]
    )
    environment.filters["tojson"] = lambda value, ensure_ascii=False, indent=None, separators=None, sort_keys=False: (
        json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    )
    environment.globals |= {"raise_exception": refuse, "namespace": Namespace}
    environment.globals |= {"strftime_now": lambda form: datetime.now().strftime(form)}
    environment.globals |= {"dict": lambda *items, **more: dict(*items, **more)}
    return environment.from_string(source)


def parse(template: dict[str, Any], text: str, prefix: str) -> Reply:
    """Return the message that a response template, in the library's language for them, reads in a reply; an empty one
    if it reads none."""
    from transformers.utils.chat_parsing import parse_response

    try:
        return parse_response(text, template, prefix=prefix), []
    except (ValueError, KeyError, TypeError):
        return {}, []


def try_tokenizer(path: str) -> Reply:
    """Return what is wrong with a tokenizer.json; None if it reads and writes texts of all sorts."""
    from tokenizers import Tokenizer

    written = json.loads(Path(path).read_bytes())
    if (added := len(written.get("added_tokens") or ())) > MOST_ADDED:
        return f"it adds {added:,} tokens", []
    growth = max(_growth(written.get(part)) for part in ("normalizer", "pre_tokenizer", "decoder"))
    if growth > MOST_GROWTH:
        return f"it makes a text up to {growth:.3g} times as long", []
    tokenizer = Tokenizer.from_file(path)
    ids = tokenizer.encode(SAMPLE).ids
    if len(ids) > MOST_GROWTH * len(SAMPLE):
        return f"it makes {len(ids):,} tokens of {len(SAMPLE):,} characters", []
    tokenizer.decode(ids)
    return None, []


def _growth(part: Any) -> float:
    """Return how many times as long the replacements of a part of a tokenizer can make a text."""
    if isinstance(part, list):
        return math.prod(map(_growth, part))
    if not isinstance(part, dict):
        return 1.0
    factor, pattern = 1.0, part.get("pattern")
    if part.get("type") == "Replace" and isinstance(pattern, dict):
        factor = len(part["content"]) / max(1, len(pattern.get("String", "")))
    return max(1.0, factor) * math.prod(map(_growth, part.values()))


def serve() -> None:
    """Serve requests."""
    main({"render": render, "parse": parse, "try_tokenizer": try_tokenizer}, CPU_SECONDS, MEMORY_BYTES)
