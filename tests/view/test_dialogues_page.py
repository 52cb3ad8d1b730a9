"""The page is complete and escaped, and allows only its own script and style."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.errors import UsageError
from sweet.runs.run import Run
from sweet.tasks.registry import task_kind
from sweet.tasks.trajectory import Turn
from sweet.view.dialogue_view import DisplayOptions
from sweet.view.dialogues_page import page
from sweet.view.records import Record, Summary
from sweet.view.text import printable
from sweet.view.viewer import ViewConfig, Viewer
from tests.view.conftest import HOSTILE, trajectory
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


def written(run: Run, tmp_path: Path, **fields: object) -> str:
    out = tmp_path / "page.html"
    Viewer(run, ViewConfig.model_validate(fields)).write_html(out)
    return out.read_text(encoding="utf-8")


def test_it_holds_the_dialogues_and_no_address(run: Run, tmp_path: Path) -> None:
    text = written(run, tmp_path)
    reader = read(text)
    assert reader.tags.count("details") >= 6
    for word in ("t001", "Which number?", "The usual one.", "+0.250", "3 candidates", "1 pair", "add(2)"):
        assert word in text
    assert not re.search(r"https?://|//[a-z]", re.sub(r"<script>.*?</script>", "", text, flags=re.S))
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
    assert written(run, tmp_path, outcome=["passed"]).count('class="trajectory"') == 2
    assert written(run, tmp_path, limit=3).count('class="trajectory"') == 3
    for wrong in (tmp_path, tmp_path / "none" / "page.html"):
        with pytest.raises(UsageError):
            Viewer(run, ViewConfig()).write_html(wrong)


@given(st.text(min_size=1) | st.just(HOSTILE) | st.text(st.sampled_from("<>&\"'/!-\x1b=ascript"), min_size=1))
def test_no_text_of_a_model_becomes_markup(text: str) -> None:
    plain, hostile = (list(page(t, [(summary(t), record(t))], DisplayOptions(hidden=True))) for t in ("x", text))
    calm, found = read("".join(plain)), read("".join(hostile))
    ours = ("pre", "span")  # code stands in the one, what has a colour in the other
    assert [tag for tag in found.tags if tag not in ours] == [tag for tag in calm.tags if tag not in ours]
    assert printable(text) in "".join(found.text["pre"])


@pytest.mark.parametrize(("kind", "code"), [("code", True), (None, False)])
def test_an_answer_is_code_where_the_kind_writes_code(kind: str | None, code: bool) -> None:
    options = DisplayOptions(None if kind is None else task_kind(kind))
    found = record("x")
    found = replace(found, trajectory=found.trajectory.model_copy(update={"answer": "forty-two"}))
    shown = "".join(page("x", [(summary("x"), found)], options))
    assert ('<pre class="code">forty-two</pre>' in shown) is code


def summary(text: str) -> Summary:
    return Summary(text, text, "deadline", text, 0.5, 1, 2, 1, 3, 0.5, text, 0, None, 0, 0)


FILTERS = """
const listeners = {}, fields = {};
const element = () => ({value: "", children: [], append(child) { this.children.push(child); }});
for (const id of ["search", "outcome", "below", "above", "count", "filters"]) fields[id] = element();
fields.filters.addEventListener = (name, f) => { listeners[name] = f; };
const row = (outcome, reward, textContent) => ({dataset: {outcome, reward}, textContent, hidden: false});
const rows = [row("passed", "1.0", "Alpha beta"), row("failed", "0.5", "beta"), row("failed", "", "gamma")];
global.document = {
  getElementById: (id) => fields[id],
  querySelectorAll: () => rows,
  createElement: element,
};
eval(require("fs").readFileSync(process.argv[1], "utf-8"));
const seen = [fields.outcome.children.map((option) => option.value)];
for (const values of JSON.parse(process.argv[2])) {
  for (const id of ["search", "outcome", "below", "above"]) fields[id].value = values[id] ?? "";
  listeners.input();
  seen.push([rows.map((row) => !row.hidden), fields.count.textContent]);
}
console.log(JSON.stringify(seen));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_filters_of_the_page() -> None:
    script = Path(__file__).parents[2] / "sweet" / "view" / "page.js"
    wanted = [
        ({}, [True, True, True]),
        ({"search": "BETA alpha"}, [True, False, False]),
        ({"outcome": "failed"}, [False, True, True]),
        ({"below": "0.9"}, [False, True, False]),
        ({"above": "0.5"}, [True, False, False]),
        ({"search": "beta", "below": "1", "outcome": "failed"}, [False, True, False]),
    ]
    command = ["node", "-e", FILTERS, str(script), json.dumps([values for values, _ in wanted])]
    outcomes, *seen = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert outcomes == ["failed", "passed"]
    assert seen == [[rows, f"{sum(rows)} of 3"] for _, rows in wanted]


@given(st.just(HOSTILE) | st.text(min_size=1))
def test_a_thought_is_folded_and_escaped(thought: str) -> None:
    turn = Turn(role="assistant", content="Which?", thought=thought, thought_tokens=12)
    found = Record(trajectory(1, dialogue_history=(Turn(role="user", content="Hi."), turn)))
    shown = "".join(page("x", [(summary("x"), found)], DisplayOptions()))
    assert '<details class="thought"><summary>thought, 12 tokens</summary><pre>' in shown
    plain = Record(
        trajectory(1, dialogue_history=(Turn(role="user", content="Hi."), turn.model_copy(update={"thought": "x"})))
    )
    assert read(shown).tags == read("".join(page("x", [(summary("x"), plain)], DisplayOptions()))).tags
