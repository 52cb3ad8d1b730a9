"""Leaks of a page: tags, attributes, classes and style declarations of its source, over all turns.

The words that the page shows are no source: the human is expected to quote them, and only most of a long page copied
word for word is a leak. A single tag of the reference with attributes, more than `MOST_TAGS` tags of any page, or a
block of styles in one reply is a leak at once, because a person who describes a page writes none; smaller fragments (a
class, an attribute, a declaration) are added up over the turns. Source that the request or the agent has shown does not
count.
"""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from sweet.humans.leaks.variants import cleaned, decodings, dense

LONGEST = 100_000
"""Characters of a page, or of what is said about it, that are read."""
MOST_TAGS = 3
"""HTML tags that a reply may mention; more of them are a fragment of a page."""
LEAST_TAG = 16
"""Characters, without white space, from which a tag of the reference is too long to be written by chance."""
LEAST_FRAGMENTS = 6
"""PageFragments of the source, given in any number of turns, that make a leak."""
LEAST_RUN, LEAST_WORDS, WORDS_SHARE = 12, 80, 0.6
"""Words in a row that count as copied; how many copied words, and which share of the page's, make a leak."""

_TAG = re.compile(r"</?[a-z][a-z0-9]{0,20}(?:\s[^<>]{0,2000})?/?>", re.IGNORECASE)
_BLOCK = re.compile(r"\{\s{0,20}[a-z-]{1,40}\s{0,5}:[^{}]{1,2000}\}", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""\b([a-z-]{1,30})\s{0,3}=\s{0,3}(?:"([^"<>]{1,1000})"|'([^'<>]{1,1000})')""", re.IGNORECASE)
_DECLARATION = re.compile(
    r"(?<![\w-])([a-z][a-z-]{2,30})\s{0,3}:\s{0,3}([^\s;:{}<>\"'][^;:{}<>\"'\n]{0,80})", re.IGNORECASE
)
_CLASS = re.compile(r"(?<![\w/:.-])(?:[a-z]{2,4}:){0,2}[a-z]{1,12}(?:-[a-z0-9/.]{1,12}){1,4}(?![\w:-])")
_ADDRESS = re.compile(r"https?://[^\s\"'<>)]{4,300}", re.IGNORECASE)
_IS_PAGE = re.compile(r"\s{0,100}<(?:!|[a-z])", re.IGNORECASE)
_HIDDEN = re.compile(r"<(style|script)\b[^<>]{0,500}>[^<]{0,50000}</\1\s{0,5}>|<[^<>]{0,2000}>", re.IGNORECASE)
_WORD = re.compile(r"\w{1,60}")
_NAMES = (
    "a abbr address article aside audio b blockquote body br button canvas center code dd div dl dt em fieldset figure "
    "figcaption font footer form h1 h2 h3 h4 h5 h6 head header hr html i iframe img input label legend li link main "
    "meta nav ol option p path picture pre script section select small source span strong style sub summary sup svg "
    "table tbody td textarea tfoot th thead time title tr u ul video"
)
_ELEMENTS = frozenset(_NAMES.split())
_STYLES = (
    "align animation background border bottom box color columns content cursor display fill filter flex float font gap "
    "grid height justify left letter line list margin max min object opacity order outline overflow padding place "
    "position right row shadow stroke table text top transform transition vertical visibility white width word z"
)
_STYLED = frozenset(_STYLES.split())


@dataclass(frozen=True)
class PageFragments:
    """The source in a text: its tags, and the smaller fragments (attributes, classes, declarations, addresses)."""

    tags: frozenset[str]
    small: frozenset[str]


def is_page(reference: str) -> bool:
    """Return whether a reference is the source of a page."""
    return _IS_PAGE.match(reference) is not None


def is_leak(reference: str, seen: Sequence[str], earlier: Sequence[str], reply: str) -> bool:
    """Return whether a page is given away.

    Args:
        seen: what the request and the agent have shown. earlier: the human's replies before.
    """
    source = _source(reference)
    shown_tags, shown_small = _shown(seen)
    had = {part for prior in earlier for text, _ in _variants(prior) for part in _small(text)} & source.small
    agent = "\n".join(seen)[-LONGEST:]
    shown_text = dense(agent) + dense(cleaned(agent))
    for text, encoded in [*_variants(reply), *(_variants(" ".join([*earlier, reply])) if earlier else ())]:
        tags = _tags(text)
        of_page = [tag for tag in tags if dense(tag) in source.tags]
        new = (_small(text) & source.small) - had - shown_small
        if (
            any(len(dense(tag)) >= LEAST_TAG and dense(tag) not in shown_tags for tag in of_page)
            or (len(of_page if encoded else tags) > MOST_TAGS and _is_new(text, shown_tags, shown_text))
            or any(dense(block) not in shown_tags for block in _blocks(text))
            or (new and len(new | (had - shown_small)) >= LEAST_FRAGMENTS)
        ):
            return True
    return _is_copied(reference, seen, earlier, reply)


def _tags(text: str) -> list[str]:
    """Return the tags of HTML in a text; what else stands between angle brackets is none."""
    return [tag for tag in _TAG.findall(text) if tag.strip("</ ").split()[0].strip("/>").lower() in _ELEMENTS]


def _is_new(text: str, shown_tags: Set[str], shown_text: str) -> bool:
    """Return whether a text has tags that were not shown, or plain tags with other words after them than were shown."""
    tags = list(_TAG.finditer(text))
    for tag, after in zip(tags, [*tags[1:], None], strict=True):
        words = text[tag.end() : after.start()] if after else ""
        if dense(tag.group()) not in shown_tags or (
            "=" not in tag.group() and dense(tag.group() + words) not in shown_text
        ):
            return True
    return False


def _blocks(text: str) -> list[str]:
    """Return the blocks of style declarations in a text."""
    blocks = _BLOCK.findall(text)
    return [block for block in blocks if block.strip("{ \t\n").split(":")[0].strip().lower().split("-")[0] in _STYLED]


@functools.lru_cache(maxsize=64)
def _source(reference: str) -> PageFragments:
    text = reference[:LONGEST]
    return PageFragments(frozenset(dense(tag) for tag in _tags(text)), frozenset(_small(text)))


def _shown(texts: Sequence[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the tags and the smaller fragments that the request and the agent have shown."""
    fragments = [_source(text) for text in texts]
    blocks = {dense(block) for text in texts for block in _blocks(text[:LONGEST])}
    return frozenset(blocks).union(*(f.tags for f in fragments)), frozenset().union(*(f.small for f in fragments))


def _small(text: str) -> set[str]:
    """Return the small fragments of source in a text, each in one spelling."""
    fragments = {f"{name.lower()}={_spaced(first or second)}" for name, first, second in _ATTRIBUTE.findall(text)}
    for name, value in _DECLARATION.findall(text):
        if name.lower().split("-")[0] in _STYLED and (
            "-" in name or any(char.isdigit() or char == "#" for char in value)
        ):
            fragments.add(f"{name.lower()}:{_spaced(value)}")
    fragments.update(_CLASS.findall(text) if "-" in text else ())
    fragments.update(_ADDRESS.findall(text))
    return fragments


def _spaced(text: str) -> str:
    return " ".join(text.lower().split())


def _variants(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the ways to read a text, and whether it was encoded."""
    text = text[:LONGEST]
    yield text, False
    plain = cleaned(text)
    yield plain, False
    if "&" in plain:
        yield html.unescape(plain), True
    if "\\" in plain:
        yield plain.replace("\\n", "\n").replace('\\"', '"'), True
    for decoded in decodings(plain):
        yield decoded, True


def _is_copied(reference: str, seen: Sequence[str], earlier: Sequence[str], reply: str) -> bool:
    """Return whether the words of a page were copied at length."""
    words = _words(_HIDDEN.sub(" ", reference[:LONGEST]))
    if len(words) < LEAST_WORDS:
        return False
    runs = {tuple(words[i : i + LEAST_RUN]): i for i in range(len(words) - LEAST_RUN + 1)}
    shown_places = _places(seen, runs)
    had = _places(earlier, runs) - shown_places
    now = _places([reply], runs) - shown_places
    return not now <= had and len(had | now) >= max(LEAST_WORDS, WORDS_SHARE * len(words))


def _places(texts: Sequence[str], runs: dict[tuple[str, ...], int]) -> set[int]:
    """Return the positions of the page's words that the texts have in runs."""
    places: set[int] = set()
    for text in texts:
        words = _words(text[:LONGEST])
        for i in range(len(words) - LEAST_RUN + 1):
            begin = runs.get(tuple(words[i : i + LEAST_RUN]))
            if begin is not None:
                places.update(range(begin, begin + LEAST_RUN))
    return places


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]
