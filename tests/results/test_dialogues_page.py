"""The page is complete and escaped, and allows only its own script and style. `test_real_page` opens it in Firefox."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.errors import UsageError
from sweet.learn.rows import CandidateRow
from sweet.results.dialogue import dialogue
from sweet.results.dialogues_page import dialogues_page, packed, write_dialogues
from sweet.results.pages import resource
from sweet.runs.run import Run
from sweet.tasks.registry import task_kind
from sweet.tasks.trajectory import Turn, dump
from sweet.view.dialogue_view import DisplayOptions
from sweet.view.records import Record, Summary
from sweet.view.text import printable
from sweet.view.viewer import ViewConfig, Viewer
from tests.results.page_data import CHUNK, opened, rows, unpacked
from tests.view.conftest import HOSTILE, made, trajectory
from tests.view.test_terminal import record

VOID = {"meta", "input", "br"}


class Reader(HTMLParser):
    """Collects tags, attributes and text; checks that tags nest."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text: dict[str, list[str]] = {}
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.setdefault(self.open[-1] if self.open else "", []).append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert not reader.open
    return reader


def page_text(run: Run, tmp_path: Path, **fields: object) -> str:
    out = tmp_path / "page.html"
    write_dialogues(out, Viewer(run, ViewConfig.model_validate(fields)))
    return out.read_text(encoding="utf-8")


def written(run: Run, tmp_path: Path, **fields: object) -> str:
    return opened(page_text(run, tmp_path, **fields))


def page_of(title: str, found: list[tuple[Summary, Record]], options: DisplayOptions) -> str:
    by_id = dict(found)
    return opened("".join(dialogues_page(title, list(by_id), by_id.__getitem__, options)))


def test_it_holds_the_dialogues_and_no_address(run: Run, tmp_path: Path) -> None:
    text = written(run, tmp_path)
    reader = read(text)
    assert reader.tags.count("details") >= 6
    for word in ("t001", "Which number?", "The usual one.", "+0.250", "3 candidates", "1 pair", "add(2)"):
        assert word in text
    assert not re.search(r"https?://|//[a-z]", re.sub(r"<script>.*?</script>|sha256-[\w+/]*=", "", text, flags=re.S))
    assert not re.search(r"https?://|import\(|fetch\(", resource("dialogues.js"))
    assert not {"src", "href", "style", "action"} & {name for name, _ in reader.attributes}
    assert not any(name.startswith("on") for name, _ in reader.attributes)
    assert "return a + 2</pre>" not in written(run, tmp_path, id="t005")
    assert "hidden from the agent" in written(run, tmp_path, id="t005", hidden=True)


def test_the_policy_allows_the_inline_content_and_nothing_else(run: Run, tmp_path: Path) -> None:
    reader = read(written(run, tmp_path))
    policy = next(value for _, value in reader.attributes if "default-src" in value)
    assert policy.startswith("default-src 'none'")
    for tag in ("script", "style"):
        (content,) = ["".join(reader.text[tag])]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy


def test_limits_and_filters_hold_for_the_page(run: Run, tmp_path: Path) -> None:
    assert written(run, tmp_path, filter="outcome=passed").count('class="trajectory"') == 2
    assert written(run, tmp_path, limit=3).count('class="trajectory"') == 3
    for wrong in (tmp_path, tmp_path / "none" / "page.html"):
        with pytest.raises(UsageError):
            write_dialogues(wrong, Viewer(run, ViewConfig()))


@given(st.text(min_size=1) | st.just(HOSTILE) | st.text(st.sampled_from("<>&\"'/!-\x1b=ascript"), min_size=1))
def test_no_text_of_a_model_becomes_markup(text: str) -> None:
    plain, hostile = (page_of(t, [(summary(t), record(t))], DisplayOptions(hidden=True)) for t in ("x", text))
    calm, found = read(plain), read(hostile)
    ours = ("pre", "span")  # code stands in the one, what has a colour in the other
    assert [tag for tag in found.tags if tag not in ours] == [tag for tag in calm.tags if tag not in ours]
    assert printable(text) in "".join(found.text["pre"])


@pytest.mark.parametrize(("kind", "code"), [("code", True), (None, False)])
def test_an_answer_is_code_where_the_kind_writes_code(kind: str | None, code: bool) -> None:
    options = DisplayOptions(None if kind is None else task_kind(kind))
    found = record("x")
    found = replace(found, trajectory=found.trajectory.model_copy(update={"answer": "forty-two"}))
    shown = page_of("x", [(summary("x"), found)], options)
    assert ('<pre class="code">forty-two</pre>' in shown) is code


def summary(text: str) -> Summary:
    return Summary(text, text, "deadline", text, 0.5, 1, 2, 1, 3, 0.5, text, 0, None)


@given(st.just(HOSTILE) | st.text(min_size=1))
def test_a_thought_is_folded_and_escaped(thought: str) -> None:
    turn = Turn(role="assistant", content="Which?", thought=thought, thought_tokens=12)
    found = Record(trajectory(1, dialogue_history=(Turn(role="user", content="Hi."), turn)))
    shown = page_of("x", [(summary("x"), found)], DisplayOptions())
    assert '<details class="thought"><summary>thought, 12 tokens</summary><pre>' in shown
    plain = Record(
        trajectory(1, dialogue_history=(Turn(role="user", content="Hi."), turn.model_copy(update={"thought": "x"})))
    )
    assert read(shown).tags == read(page_of("x", [(summary("x"), plain)], DisplayOptions())).tags


def test_the_rows_have_the_values_of_the_table(run: Run, tmp_path: Path) -> None:
    found = rows(page_text(run, tmp_path))
    assert [row["id"] for row in found] == [f"t{number:03d}" for number in range(6)]
    assert found[1] == {
        "id": "t001",
        "request": "Write a function that adds 0. The signature is: def add(a)",
        "outcome": "failed",
        "reward": 0.5,
        "tests": "1/2",
        "turns": 2,
        "tokens": 101,
        "seconds": 1.5,
        "fault": "",
        "task": "task-0",
    }


def test_the_overview_has_the_rates_of_the_shown_dialogues_with_intervals(run: Run, tmp_path: Path) -> None:
    every = "".join(read(page_text(run, tmp_path)).text["b"])
    assert every == "33.3 %50.0 %"
    some = read(page_text(run, tmp_path, filter="outcome=passed"))
    assert "".join(some.text["b"]).startswith("100.0 %")
    (bounds, *_) = some.text["span"]
    assert bounds == "[34.2, 100.0]", "Wilson's interval of two tasks of two"
    assert "2 dialogues of 6 · 2 tasks" in "".join(some.text["p"])


def test_dialogues_without_scores_have_no_rates(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "bare", task="code")
    made(run, "rollout", "rollouts", [dump(trajectory(1))], [])
    text = page_text(run, tmp_path)
    assert "These dialogues have no scores." in text
    assert "<b>" not in text
    assert rows(text)[0]["reward"] is None


@given(st.recursive(st.text() | st.integers() | st.none(), lambda inner: st.lists(inner)))
def test_what_is_packed_is_unpacked_and_is_no_markup(content: Any) -> None:
    ((name, data),) = CHUNK.findall(packed("rows", content))
    assert (name, unpacked(data)) == ("rows", content)


def test_equal_candidates_are_one_row_of_one_element() -> None:
    texts = ["Which?"] * 9 + ["No."] * 6 + ["Maybe."]
    advantages = {"Which?": 0.5, "No.": -0.5, "Maybe.": 0.0}
    ranked = CandidateRow.model_validate(
        {
            "trajectory_id": "t001",
            "task_id": "task-0",
            "turn": 1,
            "observation": [],
            "candidates": [
                {"text": text, "advantage": advantages[text], "logprob": -1.0, "reference": -1.0, "tokens": 3}
                for text in texts
            ],
            "taken": {"text": "Which number?", "advantage": 0.1, "logprob": -1.0, "reference": -1.0, "tokens": 3},
        }
    )
    shown = dialogue(summary("x"), Record(trajectory(1), None, {1: ranked}), DisplayOptions())
    assert shown.count("<summary>16 candidates, 3 different</summary>") == 1
    table = shown.partition("different</summary>")[2].partition("</details>")[0]
    assert re.findall(r"<pre>([^<]*)</pre>", table) == ["Which?", "Which number?", "Maybe.", "No."]
    assert re.findall(r'<td class="times">([^<]*)</td>', table) == ["9×", "", "", "6×"]
    assert "(given, not a candidate)" in table
