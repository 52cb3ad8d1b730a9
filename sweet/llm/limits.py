"""Renders chat templates and tries tokenizers of models that are not the package's in a process with limits.

`sweet.llm.untrusted` is that process. A tokenizer is tried once, and the cache says that it has passed. A template
is rendered there each time: the library's function that compiles templates is replaced for those from others, so that
whatever renders one has the limits.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache, partial
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sweet.errors import UsageError
from sweet.files import write_whole
from sweet.llm.untrusted import CPU_SECONDS
from sweet.paths import cache_folder
from sweet.sandbox.reader import Reader, Unreadable
from sweet.tasks.packaged import PACKAGED

_BOOT = "import sys; sys.path += sys.argv[1:]; from sweet.llm.untrusted import serve; serve()"
_FOLDERS = [str(Path(str(spec.origin)).parents[1]) for name in ("jinja2", "tokenizers") if (spec := find_spec(name))]
_LONGEST = 1 << 24
_process = Reader(_BOOT, _FOLDERS, CPU_SECONDS, _LONGEST)
_files: dict[str, str] = {}
"""Where each template is from that is rendered with limits."""


def _limited(what: str, where: str, *request: Any) -> Any:
    try:
        return _process.ask(*request)[0]
    except Unreadable as error:
        fix = "use another model, or correct its file"
        raise UsageError(f"{what} cannot be used: {error}.", where=where, fix=fix) from error


@cache
def _own() -> set[bytes]:
    """Return the sums of the package's tokenizers and templates."""
    names = ("tokenizer.json", "chat_template.jinja")
    return {sha256((folder / name).read_bytes()).digest() for folder in PACKAGED.values() for name in names}


def check_tokenizer(folder: Path) -> None:
    """Try the tokenizer.json in a model's folder, if there is one that was not tried before.

    Raises:
        UsageError: it takes too much time or memory, or makes texts much longer.
    """
    file = folder / "tokenizer.json"
    if not file.is_file() or (digest := sha256(file.read_bytes())).digest() in _own():
        return
    passed = cache_folder("tokenizers") / digest.hexdigest()
    if not passed.exists():
        wrong = _limited("The tokenizer", str(file), "try_tokenizer", str(file.absolute()))
        if wrong is not None:
            raise UsageError(f"The tokenizer cannot be used: {wrong}.", where=file, fix="use another model")
        with suppress(OSError):
            write_whole(passed, b"")


class _Template:
    """A chat template that the other process renders."""

    def __init__(self, source: str) -> None:
        self._source = source

    def render(self, **data: Any) -> str:
        from jinja2.exceptions import TemplateError

        result = _limited("The chat template", _files[self._source], "render", self._source, data)
        if "refused" in result:
            raise TemplateError(result["refused"])
        return str(result["text"])


def limit_template(template: str, folder: str) -> None:
    """Let a chat template of the model in a folder be rendered with limits from now on."""
    from transformers.utils import chat_template_utils

    library: Any = chat_template_utils
    if sha256(template.encode()).digest() not in _own():
        if not _files:
            compiled = library._compile_jinja_template
            library._compile_jinja_template = lambda text: _Template(text) if text in _files else compiled(text)
        _files[template] = folder


def _parsed(folder: str, template: Any, text: str, prefix: str) -> Any:
    return _limited("The response template", folder, "parse", template, text, prefix)


def limit_parser(tokenizer: Any, folder: str) -> None:
    """Let replies be parsed with limits, if the tokenizer of the model in a folder declares how."""
    template = getattr(tokenizer, "response_template", None)
    if template is not None:
        tokenizer.parse_response = partial(_parsed, folder, template)
