"""Write examples/tutorials.ipynb from docs/tutorials.md.

`python -m docs.tools.notebook`, run in the repository, writes it; a test checks that it is current, and runs the page.
Each block of Python becomes a cell, each block of commands one in which they are called by the shell, and the text
between them cells of text. Relative links lead to the page's folder.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

PAGE, NOTEBOOK = Path("docs/tutorials.md"), Path("examples/tutorials.ipynb")
_BLOCK = re.compile(r"^```(python|console)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\((?![a-z]+:|#)(\.\./examples/)?")


def notebook(page: str) -> str:
    """Return the page as a notebook in JSON, without outputs."""
    cells, end = [], 0
    for block in _BLOCK.finditer(page):
        cells += [_text(page[end : block.start()]), _code(block[1], block[2])]
        end = block.end()
    cells.append(_text(page[end:]))
    numbered = [{"id": f"cell-{place}", **cell} for place, cell in enumerate(filter(None, cells))]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    whole = {"cells": numbered, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _text(markdown: str) -> dict[str, Any]:
    linked = _LINK.sub(lambda link: "](" if link[1] else "](../docs/", markdown.strip())
    return {"cell_type": "markdown", "metadata": {}, "source": linked.splitlines(keepends=True)} if linked else {}


def _code(language: str, block: str) -> dict[str, Any]:
    if language == "console":
        block = re.sub(r"^\$ (pip )?", lambda typed: "%pip " if typed[1] else "!", block, flags=re.MULTILINE)
    source = block.rstrip("\n").splitlines(keepends=True)
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": source}


if __name__ == "__main__":
    NOTEBOOK.write_text(notebook(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
