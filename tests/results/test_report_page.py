"""The report as a page and as Markdown: complete, escaped, without scripts or URLs, and equal to the facts."""

from __future__ import annotations

import base64
import hashlib
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sweet.results import charts, pages
from sweet.results.collect import collect
from sweet.results.facts import Point, Rate, Series
from sweet.results.pages import code, line
from sweet.results.report_page import markdown, report_page
from sweet.results.scales import Scale, labels, short, ticks
from sweet.runs.run import Run
from sweet.tasks.trajectory import dump
from sweet.view.text import printable_line
from tests.report_run import LOSSES, online_run, report_run, rewrite, step
from tests.results.test_dialogues_page import Reader, read
from tests.view.conftest import HOSTILE, AnyConfig, trajectory


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return report_run(tmp_path / "run")


def drawn(run: Run) -> str:
    return "".join(report_page(collect(run)))


def harmless(text: str) -> Reader:
    """Parse the page and check that it has no script, URL or active attribute, and that its policy fits its style."""
    reader = read(text)
    assert not {"script", "iframe", "object", "embed", "link", "base", "form", "a"} & set(reader.tags)
    assert not {"href", "style", "action", "srcset"} & {name for name, _ in reader.attributes}
    assert not any(name.startswith("on") for name, _ in reader.attributes)
    assert all(value.startswith("data:image/jpeg;base64,") for name, value in reader.attributes if name == "src")
    policy = next(value for _, value in reader.attributes if "default-src" in value)
    style = "".join(reader.text["style"])
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}';")
    assert "unsafe" not in policy
    assert "script" not in policy
    assert not re.search(r"https?:|url\(|@import", style)
    return reader


def test_the_page_says_what_the_run_holds(run: Run) -> None:
    text = drawn(run)
    harmless(text)
    assert not re.search(r"https?://|//[a-z]", re.sub(r"sha256-[\w+/]*=", "", text))
    for part in ("results", "training", "lineage", "settings", "again", "quote"):
        assert f'id="{part}"' in text
    for word in ("75.0 %", "Before and after training", "best of N by the critic", "2503.15478"):
        assert word in text
    assert "return a + 2</pre>" not in text, "the reference is hidden from the agent, and not shown"
    assert text == drawn(run)


def test_every_stage_of_a_run_is_drawn(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", task="code")
    assert "Nothing in this run has been scored yet" in drawn(run)
    with pytest.raises(ValueError, match="wrong"):
        _fail(run)
    text = drawn(run)
    harmless(text)
    assert "Failed and interrupted attempts" in text
    assert "unfinished" in text or "partial" in text


def _fail(run: Run) -> None:
    with run.attempt("rollout", AnyConfig()) as attempt:
        attempt.start_artifact("rollouts").path.write_bytes(b'{"id": 1')
        raise ValueError(f"wrong {HOSTILE}")


def test_several_humans_have_a_table(run: Run) -> None:
    assert "By human" not in drawn(run)

    def change(manifest: dict[str, Any]) -> None:
        rates = {"success_rate": 0.25, "success_rate_ci_low": 0.125, "success_rate_ci_high": 0.5}
        unknown = dict.fromkeys(rates)
        manifest["attempts"][1]["metrics"]["humans"] = {
            "scripted:terse": {"dialogues": 4, "tasks": 2, "faults": 1, **rates},
            "ann": {"dialogues": 0, "tasks": 0, "faults": 0, **unknown},
        }

    rewrite(run, change)
    text = drawn(run)
    harmless(text)
    assert text.count("By human: scores-1") == text.count("By human") == 1
    assert re.search(r"scripted:terse.*4.*2.*1.*25\.0 %.*12\.5, 50\.0", text)
    assert re.search(r"ann.*0.*0.*0.*–", text)


def test_broken_files_do_not_end_the_page(run: Run) -> None:
    (run.path / "rollouts" / "rollouts-2.jsonl").write_bytes(b"\xff\n")
    (run.path / "scores" / "scores-1.jsonl").unlink()
    text = drawn(run)
    harmless(text)
    assert "Parts of the run could not be read" in text
    assert "stale" in text


def test_nothing_in_a_manifest_becomes_markup(run: Run) -> None:
    calm = harmless(drawn(run))

    def change(manifest: dict[str, Any]) -> None:
        for attempt in manifest["attempts"]:
            attempt["environment"] = {HOSTILE: HOSTILE}
            attempt["config"] = {HOSTILE: [HOSTILE], "agent": HOSTILE}
        for artifact in manifest["artifacts"]:
            artifact["meta"] |= {"tasks": HOSTILE, "sim": HOSTILE, "scorer": HOSTILE, "sandbox": HOSTILE}
            artifact["meta"] |= {"method": HOSTILE} if artifact["kind"] == "actor" else {}
        manifest["attempts"][1]["metrics"] |= {HOSTILE: 0.5, f"{HOSTILE}_ci_low": 0.1, "outcomes": {HOSTILE: 3}}
        humans = {HOSTILE: {"dialogues": 2, HOSTILE: 0.5, f"{HOSTILE}_ci_low": 0.1}}
        manifest["attempts"][1]["metrics"]["humans"] = humans
        manifest["attempts"][1]["metrics"]["best_of"] = {
            n: {HOSTILE: 0.5, f"{HOSTILE}_ci_low": 0.4, f"{HOSTILE}_ci_high": 0.6} for n in ("1", "2")
        }

    rewrite(run, change)
    text = drawn(run)
    found = harmless(text)
    assert set(found.tags) == set(calm.tags)
    for unsafe in ("\x1b", "\u202e", "<script"):
        assert unsafe not in text
    assert printable_line(HOSTILE) in "".join(part for parts in found.text.values() for part in parts)


def test_nothing_in_a_row_becomes_markup(run: Run) -> None:
    for name in ("rollouts/rollouts-2.jsonl", "scores/scores-2.jsonl", "candidates/candidates-1.jsonl"):
        path = run.path / name
        text = path.read_text(encoding="utf-8")
        for word in ('"passed"', "t003", "Which number?", "task-1"):
            text = text.replace(word, word[:-1] + "<b>&'\\u001b" + word[-1:])
        path.write_text(text, encoding="utf-8")
    text = drawn(run)
    harmless(text)
    assert "<b>&" not in text
    assert "\x1b" not in text


def test_a_file_is_written_whole_or_not_at_all(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    pages.write(out, report_page(collect(run)))
    assert out.read_text(encoding="utf-8") == drawn(run)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["report.html"]


# Charts: what is drawn is what is known.

finite = st.floats(-1e12, 1e12, allow_subnormal=False)


@given(finite, finite)
def test_ticks_embrace_what_they_are_made_for(one: float, other: float) -> None:
    low, high = sorted((one, other))
    found = ticks(low, high)
    assert 2 <= len(found) <= 8
    assert all(a < b for a, b in pairwise(found))
    if high - low > 1e-9 * max(abs(low), abs(high), 1e-300):
        slack = (found[1] - found[0]) * 1e-6
        assert found[0] <= low + slack
        assert found[-1] >= high - slack
        assert len(set(labels(found))) == len(found)


@given(finite, finite, st.floats(0, 1))
def test_a_scale_keeps_proportions(low: float, high: float, share: float) -> None:
    if abs(high - low) > 1e-6 * max(abs(low), abs(high), 1e-6):
        scale = Scale(low, high, 10, 110)
        assert scale(low + share * (high - low)) == pytest.approx(10 + 100 * share, abs=0.01)


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([0.0, 0.5, 1.0], ["0.0", "0.5", "1.0"]),
        ([-0.2, 0.0, 0.2], ["−0.2", "0.0", "0.2"]),
        ([0.0, 1e-5, 2e-5], ["0", "1e−5", "2e−5"]),
        ([0, 10_000, 20_000], ["0", "10,000", "20,000"]),
        ([5.46e11, 5.465e11, 5.47e11], ["5.46e11", "5.465e11", "5.47e11"]),
    ],
)
def test_labels(values: list[float], shown: list[str]) -> None:
    assert labels(values) == shown


def test_short() -> None:
    assert [short(x) for x in (0, 3, 1234567, 0.4216, -1.5, 1.5e-5, 5e12)] == [
        "0", "3", "1,234,567", "0.422", "−1.5", "1.5e−5", "5e12",
    ]  # fmt: skip


def test_a_curve_passes_through_its_points() -> None:
    points = [Point(x=number, y=loss) for number, loss in enumerate(LOSSES, 1)]
    text = str(line(charts.lines("loss", "step", [Series(name="loss", points=points)])))
    (drawn_at,) = re.findall(r'<polyline[^>]*points="([^"]*)"', text)
    places = [tuple(map(float, pair.split(","))) for pair in drawn_at.split()]
    low, high = _vertical(text)
    for (_, y), loss in zip(places, LOSSES, strict=True):
        assert low + (high - low) * _height(y) == pytest.approx(loss, abs=0.002)
    assert [x for x, _ in places] == sorted(x for x, _ in places)


def _height(y: float) -> float:
    """Return a position as a share of the drawing's height, from the bottom."""
    foot = charts.HEIGHT - charts.BOTTOM
    return (foot - y) / (foot - charts.TOP)


def _vertical(text: str) -> tuple[float, float]:
    """Return the labels at both ends of the axis."""
    shown = re.findall(r'<text class="y" x="[^"]*" y="([^"]*)">([^<]*)</text>', text)
    written = [value.replace("−", "-").replace(",", "") for _, value in shown]
    values = [float(value) for value in written if value.strip("-.").replace(".", "").isdigit()]
    return min(values), max(values)


@pytest.mark.parametrize("chart", ["lines", "interval"])
@given(mean=finite, reach=st.floats(0, 1e12))
def test_charts_of_any_numbers_hold_numbers(chart: str, mean: float, reach: float) -> None:
    rate = Rate(name=HOSTILE, mean=mean, low=mean - reach, high=mean + reach)
    if chart == "lines":
        points = [Point(x=1, y=mean), Point(x=2, y=mean + reach, low=mean, high=mean + 2 * reach)]
        text = str(line(charts.lines(HOSTILE, HOSTILE, [Series(name=HOSTILE, points=points)], doubling=True)))
    else:
        text = charts.interval(rate)
    read(text)
    assert not re.search(r'="[^"]*(nan|inf)', text)


# Markdown.

SNAPSHOT = """\
### sweet run `run`

`scores-2`: success rate 75.0 % [55.0, 95.0] of `actor-1 on test tasks`. \
The agent was trained on 3 of these 3 tasks: they do not show how it does on unseen ones.

| scores | agent | dataset | n | rate | mean [95 %] |
| --- | --- | --- | ---: | --- | ---: |
| `scores-1` | `base` | `micro / test` | 6 | `success rate` | 50.0 % [30.0, 70.0] |
| `scores-2` | `actor-1` | `micro / test` | 6 | `success rate` | 75.0 % [55.0, 95.0] |

| paired | agents | dataset | of | means | difference [95 %] | p | wins / ties / losses |
| --- | --- | --- | --- | ---: | ---: | ---: | ---: |
| `scores-1` → `scores-2` | `base` → `actor-1` | `micro / test` | \
`success rate` | 33.3 % → 66.7 % | +33.3 pp [+0.0, +50.0] | 0.50 | 2 / 1 / 0 |
| `scores-1` → `scores-2` | `base` → `actor-1` | `micro / test` | \
`tests passed` | 50.0 % → 75.0 % | +25.0 pp [+0.0, +50.0] | 0.50 | 2 / 1 / 0 |

| trained | steps | loss | accuracy | heldout accuracy | tokens per second |
| --- | ---: | ---: | ---: | ---: | ---: |
| `critic-1` | 4 | 0.6 | – | – | – |
| `actor-1` | 4 | 0.6 | – | – | – |
"""


def test_markdown(run: Run) -> None:
    report = collect(run)
    tables, _, paragraph = markdown(report).rpartition("\n\n")
    assert tables + "\n" == SNAPSHOT
    assert paragraph.startswith(
        "In 6 dialogues on 3 tasks of `micro / test` (`code`) with the simulated human `scripted`"
    )
    result = report.result("scores-2")
    assert result is not None
    assert f"sha256 {result.sha256}." in paragraph


def test_markdown_says_what_is_unfinished_or_stale(run: Run) -> None:
    assert "unfinished" not in markdown(collect(run))

    def change(manifest: dict[str, Any]) -> None:
        unfinished = {"status": "partial", "sha256": None, "finished": None, "rows": None}
        for artifact in manifest["artifacts"]:
            artifact |= unfinished if artifact["id"] in ("scores-1", "critic-1") else {}

    rewrite(run, change)
    with (run.path / "rollouts" / "rollouts-2.jsonl").open("ab") as file:
        file.write(b"\n")
    text = markdown(collect(run))
    assert "| `scores-1` (unfinished) | `" in text
    assert "| `critic-1` (unfinished) | 4 |" in text
    stale = "`scores-2` (stale: its input rollouts-2 was changed since)"
    assert stale + ": " in text, "of the result"
    assert f"| {stale} | `" in text


def test_markdown_says_that_dialogues_are_unfinished(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", task="code")
    with pytest.raises(ValueError, match="wrong"):
        _fail(run)
    assert "- `rollouts-1` (unfinished): 0 dialogues of " in markdown(collect(run))


@given(st.text() | st.just(HOSTILE) | st.text(st.sampled_from("`|\\ @#<a\r")))
@example("\r")
def test_a_code_span_holds_everything(text: str) -> None:
    shown = code(text)
    fence = re.match("`*", shown)
    assert fence is not None
    if shown == "–":
        assert not text.strip()
        return
    inside = shown[len(fence[0]) : -len(fence[0])]
    assert shown == fence[0] + inside + fence[0]
    assert fence[0] not in re.findall("`+", inside)
    assert not re.search(r"(?<!\\)\|", inside)
    assert "\n" not in shown


def test_an_online_training_is_drawn_over_generated_tokens(tmp_path: Path) -> None:
    run = online_run(tmp_path / "run", done=True)
    text = drawn(run)
    harmless(text)
    for words in (
        *("mean reward over generated tokens", "solved tasks over generated tokens", "divergence from the start"),
        *("grpo · 6,000 tokens generated · 48 dialogues · ended by collapse · the actor has the weights of step 3",),
        *("Collapse: step 6: the mean reward fell", "1.2 min in all: play 12 s, train 18 s, update 3.0 s"),
    ):
        assert words in text
    row = "| `actor-1` | `grpo` | 6 | 6,000 | 0.400 | 12 s / 18 s / 3.0 s | collapse, "
    assert row in markdown(collect(run))
    assert "heldout accuracy" not in markdown(collect(run)), "it has a table of its own"


def test_where_no_task_is_solved_validation_is_drawn_with_the_reward(tmp_path: Path) -> None:
    run = online_run(tmp_path / "run", done=True, task="html")
    text = drawn(run)
    assert "mean reward over generated tokens" in text
    assert "solved tasks" not in text
    assert "validation" in text.partition("mean reward over generated tokens")[2].partition("</svg>")[0]
    unfinished = online_run(tmp_path / "unfinished", done=False)
    assert "grpo · unfinished" in drawn(unfinished)
    assert "| `actor-1` | `grpo` | 6 | – | – | – | unfinished |" in markdown(collect(unfinished))


def test_markdown_of_nothing(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", task="code")
    nothing = "### sweet run `run`\n\nNothing in this run has been scored yet.\n"
    assert markdown(collect(run)) == nothing
    step(run, "rollout", "rollouts", [dump(trajectory(0))], meta={"agent": "a"})
    assert markdown(collect(run)) == nothing + "\n- `rollouts-1`: 1 dialogue of `a`\n"


def test_a_kind_of_model_without_a_log(run: Run) -> None:
    step(run, "train-critic", "critic", [])
    assert "There is no log of its steps" in drawn(run)
