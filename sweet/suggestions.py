"""Suggestions for misspelt words: commands, options, values, ids, datasets and paths."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that is most similar; None if none is similar enough."""
    import difflib  # only needed for errors

    folded: dict[str, str] = {}
    for name in known:
        folded.setdefault(name.casefold(), name)
    word = word.casefold()
    extended = [name for key, name in folded.items() if word and key.startswith(word)]
    if word not in folded and len(extended) == 1:
        return extended[0]
    close = difflib.get_close_matches(word, folded, n=1, cutoff=0.5)
    return folded[close[0]] if close else None


def did_you_mean(word: str, known: Iterable[str], prefix: str = "") -> str:
    """Return ` Did you mean PREFIXword?`, to be appended to a sentence; an empty text if no known word is similar."""
    close = nearest(word, known)
    return "" if close is None else f" Did you mean {prefix}{close}?"
