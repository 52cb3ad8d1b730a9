"""Write the tables and the picture of the studies from the results of `benchmarks.micro` and `benchmarks.smollm2`.

    python -m benchmarks.readme_results [benchmarks/results/micro.json]

Run it in the repository. It replaces what stands between markers: in README.md the rows of some methods, in
docs/results.md the tables of `micro`, of all families, of `orders` and of the earlier study with all ablations (at
equal dialogues); and it writes docs/micro.svg, which contains the digest of its source. The learning curves, and what
is compared at equal wall clock, are those of a second study of fewer seeds, which ran while nothing else did (CURVES).
A test compares them with the results. No number is typed by hand.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Container
from pathlib import Path

from docs.tools.commands import put_between
from docs.tools.study_picture import overview, overview_parts
from sweet.errors import InputError, SweetError
from sweet.files import write_whole
from sweet.results import study_facts
from sweet.results.study_facts import about, difference_text, rate, share_text
from sweet.study.results import Against, Estimate, MethodResult, StudyResults, read_results
from sweet.study.settings import METHODS
from sweet.units import count
from sweet.view import safe_markdown

FAMILY = "micro"
RESULTS = Path("benchmarks/results/micro.json")
CURVES = Path("benchmarks/results/micro-curves.json")
FAMILIES = {
    "micro": RESULTS,
    "micro-long": Path("benchmarks/results/micro-long.json"),
    "micro-parts": Path("benchmarks/results/micro-parts-100-tasks.json"),
    "desk": Path("benchmarks/results/desk.json"),
}
EARLIER = Path("benchmarks/results/micro-dialogues.json")
REAL = Path("benchmarks/results/orders-cpu.json")
REAL_LONG = Path("benchmarks/results/orders-long-cpu.json")
PICTURE = Path("docs/micro.svg")
PAGE = Path("docs/results.md")
BEGIN = "<!-- study: python -m benchmarks.readme_results -->"
END = "<!-- end of study -->"
BEGIN_ROWS = "<!-- rows of the study: python -m benchmarks.readme_results -->"
END_ROWS = "<!-- end of rows -->"
BEGIN_FAMILIES = "<!-- all families: python -m benchmarks.readme_results -->"
END_FAMILIES = "<!-- end of all families -->"
BEGIN_REAL = "<!-- study of a real model: python -m benchmarks.readme_results -->"
END_REAL = "<!-- end of study of a real model -->"
BEGIN_EARLIER = "<!-- earlier study: python -m benchmarks.readme_results -->"
END_EARLIER = "<!-- end of earlier study -->"

ALTERNATIVES = {
    "success": "success of each method with its interval over seeds",
    "learning": "success on validation tasks by generated tokens",
    "best-of-turns": "success with the best of N replies at each turn by judge",
    "best-of": "success of the best of N finished dialogues by judge",
    "credit": "mean advantage by kind of turn",
}
"""Descriptions of the parts of the picture."""
SHOWN_IN_README = ("multi-turn-dpo", "sweet", "sweet-anchored")
HEADER = ("method", "what it is", "success", "greedy")
ABLATIONS = [
    name for name, one in METHODS.items() if one.group in ("sweet with one change", "published settings and protocol")
]


def read_study(path: Path, family: str = FAMILY) -> StudyResults:
    """Read a study.

    Raises:
        InputError: it is not a study of these tasks, which the text of the block describes.
    """
    results = read_results(path)
    if results.family != family:
        raise InputError(f"This is a study of {results.family!r}, not of {family!r}.", path=path)
    return results


def with_curves(results: StudyResults, timed: StudyResults) -> StudyResults:
    """Return the results with the learning curves of another study, and its comparison at equal wall clock; without
    intervals over two seeds, which say nothing: t with one degree of freedom is 12.7."""
    by_name = {one.method: one for one in timed.methods}
    few = len(timed.seeds) < 3
    methods = []
    for one in results.methods:
        other = by_name.get(one.method)
        seconds = {"seconds": other.seconds, "seconds_by_seed": other.seconds_by_seed} if other else {}
        curve, at = (other.curve, other.at_equal_seconds) if other else ([], None)
        if few:
            curve = [point.model_copy(update={"success": point.success.alone}) for point in curve]
            at = at and at.model_copy(update={"success": at.success.alone, "sweet_minus": at.sweet_minus.alone})
        methods.append(one.model_copy(update={"curve": curve, "at_equal_seconds": at, **seconds}))
    return results.model_copy(update={"methods": methods})


def block(results: StudyResults, timed: StudyResults | None = None) -> str:
    """Return the Markdown between the markers.

    Args:
        timed: has the learning curves, if the results do not.
    """
    if timed is not None:
        results = with_curves(results, timed)
    parts = [
        f"**{about(FAMILY)}**",
        f"![{_alternative(results)}]({PICTURE.name})",
        table(results, rates=False),
        _verdict(results),
        _of_curves(results, timed),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _of_curves(results: StudyResults, timed: StudyResults | None) -> str:
    """Return what "at equal time" means; empty where no method has it."""
    if not any(one.at_equal_seconds for one in results.methods):
        return ""
    text = (
        "At equal time is success on validation tasks at the last point of the learning curve within the time that "
        "`sweet` needs"
    )
    if timed is None:
        return f"{text}."
    seeds = count(len(timed.seeds), "seed")
    return f"{text}, of {seeds} on a machine that did nothing else ([curves](../{CURVES}))."


def readme_rows(results: StudyResults) -> str:
    """Return the rows of README: a few methods, by success."""
    methods = [one for one in study_facts.methods(results) if one.method in SHOWN_IN_README]
    return safe_markdown.table(HEADER, [_row(one, len(results.seeds)) for one in methods], "--rr") + "\n"


def families_block(root: Path) -> str:
    """Return the table of all families: the success of each method at temperature 1 with its interval over seeds, and
    greedily, in per cent."""
    studies = {family: read_study(root / path, family) for family, path in FAMILIES.items()}
    found = {family: {one.method: one for one in results.methods} for family, results in studies.items()}
    names = [name for name in METHODS if any(name in methods for methods in found.values())]
    rows = [
        [safe_markdown.code(name), *(_cell(found[family].get(name), len(studies[family].seeds)) for family in studies)]
        for name in names
    ]
    table = safe_markdown.table(("method", *map(safe_markdown.code, studies)), rows, "-rrrr")
    files = [f"[{family}](../{path}) {_sizes(studies[family])}" for family, path in FAMILIES.items()]
    return f"{table}\n\n{'; '.join(files)}.\n"


def _cell(one: MethodResult | None, seeds: int) -> str:
    """Return success and greedy success in per cent; empty for a method that was not run."""
    if one is None:
        return ""
    success, greedy = (text.replace(" %", "") for text in (_figures(one)[0], _share(one.greedy_success.alone)))
    finished = len(one.success_by_seed)
    return f"{success} · {greedy}" + (f" ({finished}/{seeds})" if finished < seeds else "")


def earlier_block(results: StudyResults) -> str:
    """Return the Markdown of the study with all ablations; the methods beside them are described further up."""
    shown = [one for one in results.methods if one.method in (*ABLATIONS, "rft", "multi-turn-dpo", "sweet", "random")]
    return table(results.model_copy(update={"methods": shown}), described=ABLATIONS, compared=False) + "\n"


def real_block(results: StudyResults, longer: StudyResults) -> str:
    """Return the Markdown of the study of a real language model.

    Args:
        longer: the study of tasks with longer dialogues.
    """
    warm_up = results.settings["warm_up"]
    assert isinstance(warm_up, dict)
    parts = [
        f"{results.model} after a warm-up on {warm_up['dialogues']} dialogues of the scripted agent, from which all "
        f"methods train adapters of rank 16; {_sizes(results)}; of `{longer.family}` {_sizes(longer)}.",
        table(results, described=(), longer=longer),
        _verdict(results),
        f"All results, settings and versions: [{results.family}](../{REAL}), [{longer.family}](../{REAL_LONG})",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def real_rows(results: StudyResults) -> str:
    """Return the rows of README on a real language model."""
    methods = study_facts.methods(results)
    names = [safe_markdown.code(one.method) + _fewer(one, len(results.seeds)) for one in methods]
    cells = [[name, *_figures(one)] for name, one in zip(names, methods, strict=True)]
    return safe_markdown.table(("method", "success", "greedy"), cells, "-rr") + "\n"


def _figures(one: MethodResult) -> tuple[str, str]:
    """Return success and greedy success; of fewer than three seeds without intervals, which say nothing."""
    few, found = len(one.success_by_seed) < 3, (one.success, one.greedy_success)
    success, greedy = (_share(rate.alone if few else rate) for rate in found)
    return success, greedy


def _verdict(results: StudyResults) -> str:
    """Return the sentence below a table of methods: what `sweet` is above, below or close to."""
    several = [one for one in results.methods if len(one.success_by_seed) > 1]  # of one seed no difference is clear
    sentences = study_facts.verdict_in_words(results.model_copy(update={"methods": several}), "")
    return safe_markdown.prose(sentences[0]) if sentences else ""


def table(
    results: StudyResults,
    *,
    described: Container[str] = METHODS,
    compared: bool = True,
    rates: bool = True,
    longer: StudyResults | None = None,
) -> str:
    """Return the table of all methods as Markdown, with their difference to `sweet` in percentage points.

    Args:
        described: the methods of which a column says what they are.
        compared: have a column with the difference.
        rates: have columns with the success, which is in the table of all families too.
        longer: another study, whose success has a column.
    """
    methods = study_facts.methods(results)
    fewer = {one.method: _fewer(one, len(results.seeds)) if rates else "" for one in methods}
    columns = {
        "method": [safe_markdown.code(one.method) + ("" if described else fewer[one.method]) for one in methods],
        "what it is": [_what(one) + fewer[one.method] if one.method in described else "" for one in methods],
        "success": [_figures(one)[0] for one in methods] if rates else [],
        "greedy": [_share(one.greedy_success.alone) for one in methods] if rates else [],
        "at equal time": [_share(at.success) if (at := one.at_equal_seconds) else "" for one in methods],
        "`sweet` minus it": [_against(one.against_sweet) for one in methods] if compared else [],
    }
    if longer is not None:
        found, seeds = {one.method: one for one in longer.methods}, len(longer.seeds)
        columns[safe_markdown.code(longer.family)] = [_cell(found.get(one.method), seeds) for one in methods]
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    align = "".join("-" if name in HEADER[:2] else "r" for name in shown)
    return safe_markdown.table(tuple(shown), list(zip(*shown.values(), strict=True)), align)


def _sizes(results: StudyResults) -> str:
    """Return the sizes of a study: what is the same for all methods."""
    equal = "the same dialogues for all methods"
    if results.settings.get("equal", "tokens") == "tokens":
        tokens = next((one.generated_tokens for one in results.methods if one.method == "sweet"), None)
        equal = "equal generated tokens" if tokens is None else f"about {tokens:,.0f} generated tokens each"
    return f"{count(len(results.seeds), 'seed')}, {equal}, {results.test_tasks:,} unseen tasks"


def _alternative(results: StudyResults) -> str:
    words = "; ".join(ALTERNATIVES[name] for name in overview_parts(results))
    return words[:1].upper() + words[1:]


def _row(one: MethodResult, seeds: int) -> list[str]:
    """Return the cells of a method in README."""
    return [
        safe_markdown.code(one.method),
        _what(one) + _fewer(one, seeds),
        _share(one.success),
        _share(one.greedy_success),
    ]


def _what(one: MethodResult) -> str:
    return METHODS[one.method].what if one.method in METHODS else ""


def _fewer(one: MethodResult, seeds: int) -> str:
    """Return the number of seeds of a method that not all have finished, behind a blank."""
    finished = len(one.success_by_seed)
    return f" ({count(finished, 'seed')} of {seeds})" if 0 < finished < seeds else ""


def _against(found: Against | None) -> str:
    return "" if found is None else difference_text(found.difference).replace(" pp", "")


def _share(share: Estimate) -> str:
    return share_text(rate("", share))


def read_curves(root: Path) -> StudyResults | None:
    """Read the study that has the learning curves under the repository's root; None if there is none."""
    return read_study(root / CURVES) if (root / CURVES).exists() else None


def digest(*paths: Path) -> str:
    """Return the sha256 of the results files that exist, which the picture contains."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths if path.exists())).hexdigest()


def update(root: Path, path: Path = RESULTS, earlier: Path = EARLIER) -> None:
    """Write the blocks and the picture under the repository's root.

    Raises:
        SweetError: the results are invalid.
    """
    results, timed = read_study(path), read_curves(root)
    shown = results if timed is None else with_curves(results, timed)
    write_whole(root / PICTURE, overview(shown, digest(path, root / CURVES)).encode())
    _put(root / "README.md", BEGIN_ROWS, END_ROWS, readme_rows(results))
    _put(root / PAGE, BEGIN, END, block(results, timed))
    if (root / REAL).exists():
        _put(root / PAGE, BEGIN_FAMILIES, END_FAMILIES, families_block(root))
        real = read_study(root / REAL, "orders")
        _put(root / PAGE, BEGIN_REAL, END_REAL, real_block(real, read_study(root / REAL_LONG, "orders-long")))
        _put(root / "README.md", BEGIN_REAL, END_REAL, real_rows(real))
    _put(root / PAGE, BEGIN_EARLIER, END_EARLIER, earlier_block(read_study(earlier)))


def _put(page: Path, begin: str, end: str, content: str) -> None:
    page.write_text(put_between(page.read_text(encoding="utf-8"), begin, end, content), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the tables and the picture of the studies.")
    parser.add_argument("results", nargs="?", type=Path, default=RESULTS)
    try:
        update(Path.cwd(), parser.parse_args().results)
    except SweetError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
