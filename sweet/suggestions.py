"""What was meant by a word that nobody knows: one way for commands, options, values, ids, datasets and paths."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most like this one; None where none is like it."""
    import difflib  # only where something went wrong

    folded: dict[str, str] = {}
    for name in known:
        folded.setdefault(name.casefold(), name)
    word = word.casefold()
    beginning = [name for key, name in folded.items() if word and key.startswith(word)]
    if word not in folded and len(beginning) == 1:
        return beginning[0]
    near = difflib.get_close_matches(word, folded, n=1, cutoff=0.5)
    return folded[near[0]] if near else None


def did_you_mean(word: str, known: Iterable[str], prefix: str = "") -> str:
    """` Did you mean --prefix word?`, to be put behind a sentence; empty where nothing known is like the word."""
    near = nearest(word, known)
    return "" if near is None else f" Did you mean {prefix}{near}?"
