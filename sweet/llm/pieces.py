"""Tokenises rendered prompts piece by piece, and keeps the ids of the pieces.

A prompt repeats what was said before it, and all dialogues about a task begin with the same request. In the rendered
text these are pieces between the special tokens that the template writes. A tokenizer of the library takes such tokens
out of a text first and tokenises each piece by itself, so that a piece has the same ids in every prompt: only pieces
that were not seen before are tokenised.

`_separators` knows the exceptions: tokens that take white space from the piece beside them or that are none within a
word, and pre-tokenizers that treat the beginning of a text in another way than that of a piece (Metaspace) or may do
so, because they are written in Python. There, and where the first prompt has other ids than as a whole, the whole text
is tokenised each time.
"""

from __future__ import annotations

import re
from typing import Any

MOST_KEPT = 1 << 22
"""Characters of the pieces that are kept; beyond, all are forgotten."""
_ABOUT_THE_BEGINNING = b"Metaspace"


class Pieces:
    """Tokenises texts whose special tokens are written out, and adds none.

    Args:
        tokenizer: of transformers.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._special = _separators(tokenizer)
        longest_first = sorted(self._special, key=len, reverse=True)
        self._split = re.compile(f"({'|'.join(map(re.escape, longest_first))})").split if self._special else None
        self._verified = False
        self._kept: dict[str, list[int]] = {}
        self._size = 0

    def ids(self, text: str) -> list[int]:
        """Return the token ids of a text."""
        if self._split is None:
            return self._whole(text)
        found: list[int] = []
        for piece in self._split(text):
            if (special := self._special.get(piece)) is not None:
                found.append(special)
            elif piece:
                found += self._piece(piece)
        if not self._verified:
            self._verified = True
            if found != (whole := self._whole(text)):
                self._split = None
                return whole
        return found

    def _piece(self, piece: str) -> list[int]:
        kept = self._kept.get(piece)
        if kept is None:
            self._size += len(piece)
            if self._size > MOST_KEPT:
                self._kept.clear()
                self._size = len(piece)
            kept = self._kept[piece] = self._whole(piece)
        return kept

    def _whole(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids


def _separators(tokenizer: Any) -> dict[str, int]:
    """Return the tokens at which texts can be split, with their ids; none if that is not known to be right."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or getattr(tokenizer, "split_special_tokens", False):
        return {}
    added = backend.get_added_tokens_decoder()
    if any(token.lstrip or token.rstrip or token.single_word for token in added.values()):
        return {}
    try:
        pre_tokenizer: bytes = backend.pre_tokenizer.__getstate__() if backend.pre_tokenizer is not None else b""
    except Exception:  # that is what the library raises for one that is written in Python
        return {}
    if _ABOUT_THE_BEGINNING in pre_tokenizer:
        return {}
    # Normalised ones are looked for within the pieces, once these are normalised.
    return {token.content: id for id, token in added.items() if not token.normalized}
