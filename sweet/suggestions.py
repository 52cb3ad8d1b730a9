"""Suggestions for misspelt words: commands, options, values, ids, datasets and paths."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str], least: float = 0.5) -> str | None:
    """Return the known word that is most similar; None if none is similar enough.

    Args:
        least: similarity that it has at least, from 0 to 1 (difflib's ratio), unless it is the only one that the word
            begins.
    """
    import difflib  # only needed for errors

    folded: dict[str, str] = {}
    for name in known:
        folded.setdefault(name.casefold(), name)
    word = word.casefold()
    extended = [name for key, name in folded.items() if word and key.startswith(word)]
    if word not in folded and len(extended) == 1:
        return extended[0]
    close = difflib.get_close_matches(word, folded, n=1, cutoff=least)
    return folded[close[0]] if close else None


def did_you_mean(word: str, known: Iterable[str], prefix: str = "") -> str:
    """Return ` Did you mean PREFIXword?`, to be appended to a sentence; an empty text if no known word is similar."""
    close = nearest(word, known)
    return "" if close is None else f" Did you mean {prefix}{close}?"
