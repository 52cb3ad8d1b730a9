"""The page of dialogues in a real Firefox, used by clicks and keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweet.results.dialogues_page import write_dialogues
from sweet.runs.run import Run
from sweet.tasks.trajectory import Turn, dump
from sweet.view.viewer import ViewConfig, Viewer
from tests.render.real_browser import needs_firefox
from tests.results.real_page import RealPage, real_page
from tests.view.conftest import HOSTILE, PAIR, made, score, task, trajectory

pytestmark = needs_firefox

ESCAPE = "\ue00c"
MANY = 600
ROWS = "tr[data-number]"
READ = "document.querySelector('#dialogue details') !== null"


@pytest.fixture(scope="module")
def firefox() -> Iterator[RealPage]:
    with real_page() as page:
        yield page


def written(run: Run, tmp_path: Path, **fields: Any) -> Path:
    out = tmp_path / "page.html"
    write_dialogues(out, Viewer(run, ViewConfig(**fields)))
    return out


def shown(firefox: RealPage) -> list[str]:
    return firefox.texts(f"{ROWS} td.id")


def counted(firefox: RealPage, text: str) -> None:
    firefox.until(f"document.querySelector('#count').textContent.startsWith({text!r})")


def opened(firefox: RealPage, run: Run, tmp_path: Path, **fields: Any) -> None:
    firefox.open("about:blank")
    firefox.open(written(run, tmp_path, **fields))
    firefox.until(f"document.querySelector('{ROWS}') !== null")


def test_the_table_is_sorted_and_filtered(firefox: RealPage, run: Run, tmp_path: Path) -> None:
    opened(firefox, run, tmp_path)
    assert firefox.texts("#overview b") == ["33.3 %", "50.0 %"]
    assert shown(firefox) == ["t000", "t001", "t002", "t003", "t004", "t005"]
    columns = ["dialogue", "request", "success", "reward", "tests", "turns", "tokens", "seconds", "task"]
    assert firefox.texts("#table th") == columns, "no fault, no such column"
    assert firefox.texts(f"{ROWS}:nth-child(3) td") == [
        "t001",
        "Write a function that adds 0. The signature is: def add(a)",
        *("failed", "0.50", "1/2", "2", "101", "1.5", "task-0"),
    ]
    firefox.click("th.reward button")
    assert shown(firefox) == ["t000", "t003", "t001", "t004", "t002", "t005"]
    firefox.click("th.reward button")
    assert shown(firefox) == ["t002", "t005", "t001", "t004", "t000", "t003"]
    assert firefox.value("document.querySelector('th.reward').ariaSort") == "descending"
    firefox.click("th.reward button")
    assert shown(firefox)[0] == "t000", "the order of the file again"
    firefox.write("#least", "0.5")
    counted(firefox, "4 of 6 · 2 passed · mean reward 0.750")
    firefox.write("#most", "0.9")
    counted(firefox, "2 of 6")
    assert shown(firefox) == ["t001", "t004"]
    firefox.write("#task", "K-0")
    counted(firefox, "1 of 6")
    firefox.click("button[type=reset]")
    counted(firefox, "6 of 6")
    firefox.write("#search", "CONVERTED nothing")
    counted(firefox, "0 of 6")
    firefox.write("#search", '"RETURN a + 4"')
    counted(firefox, "1 of 6")
    assert shown(firefox) == ["t004"], "what is in the answer, not in the table"


def test_a_dialogue_is_opened_and_left(firefox: RealPage, run: Run, tmp_path: Path) -> None:
    opened(firefox, run, tmp_path)
    firefox.click(f"{ROWS}:nth-child(3) td.request")
    firefox.until(READ)
    assert "Which number?" in firefox.text("#dialogue")
    assert firefox.value("location.hash") == "#t001"
    candidates = "#dialogue details:has(> table)"
    assert firefox.text(candidates) == "3 candidates"
    firefox.click(f"{candidates} summary")
    assert "No idea." in firefox.text(candidates)
    firefox.click("#unfold")
    assert "rejected" in firefox.text("#dialogue")
    firefox.click("#after")
    firefox.until("document.querySelector('#dialogue summary b').textContent === 't002'")
    firefox.press("p", "p")
    firefox.until("document.querySelector('#dialogue summary b').textContent === 't000'")
    assert firefox.value("document.querySelector('#before').disabled") is True
    firefox.value("history.back()")
    firefox.until("document.querySelector('#dialogue summary b').textContent === 't001'")
    firefox.press(ESCAPE)
    firefox.until("document.querySelector('#reader').hidden")
    assert firefox.value("location.hash") == ""
    firefox.open(f"{(tmp_path / 'page.html').as_uri()}#t004")
    firefox.until(READ)
    assert firefox.text("#dialogue summary b") == "t004", "a link to a dialogue"


def test_hits_are_marked_and_their_parts_opened(firefox: RealPage, run: Run, tmp_path: Path) -> None:
    opened(firefox, run, tmp_path)
    firefox.write("#search", "no idea.")
    counted(firefox, "1 of 6")
    firefox.click(f"{ROWS} td.request")
    firefox.until("document.querySelectorAll('mark').length > 1")
    assert {mark.lower() for mark in firefox.texts("mark")} == {"no", "idea."}
    assert firefox.value("document.querySelector('#dialogue details:has(> table)').open") is True
    assert firefox.value("document.querySelector('#dialogue details details').open") is False, "has no hit"


EVIL = (
    "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>"
    '<svg onload="window.hacked=3"><a href="javascript:window.hacked=4">x</a>"\'>&lt;b&gt;&#x3c;'
    f"\u202egnp.exe\u2066\u200b {HOSTILE} </details></section></main></body></html><!-- ]]> --"
)


def test_hostile_text_stays_text(firefox: RealPage, tmp_path: Path) -> None:
    evil = EVIL
    run = Run.create(tmp_path / "run", task="code")
    about = task(0).model_copy(update={"id": "evil", "problem_description": evil, "ground_truth": evil})
    turns = (
        Turn(role="user", content=evil),
        Turn(role="assistant", content=evil, output=f"think {evil}", thought=evil),
    )
    played = trajectory(1, id=evil, task=about, dialogue_history=turns, answer=evil, fault=None)
    rollouts = made(run, "rollout", "rollouts", [dump(played), dump(trajectory(2))], [])
    graded = score(1, 0.5) | {"id": evil, "task_id": "evil"}
    graded["detail"]["tests"]["test1"] = f"wrong: {evil}"
    made(run, "eval", "scores", [graded, score(2, 1.0)], [rollouts])
    ranked = {
        "trajectory_id": evil,
        "task_id": "evil",
        "turn": 1,
        "observation": [],
        "candidates": [{"text": evil, "advantage": 0.5, "logprob": -1.0, "reference": -1.0, "tokens": 3}],
        "taken": None,
    }
    candidates = made(run, "rank", "candidates", [ranked], [rollouts])
    reply = {"text": evil, "advantage": 0.5}
    pair = PAIR | {"trajectory_id": evil, "chosen": reply, "rejected": reply}
    made(run, "pair", "pairs", [pair], [candidates])
    page = written(run, tmp_path, hidden=True)
    assert "hacked" not in page.read_text(encoding="utf-8"), "all of it is compressed"
    firefox.open("about:blank")
    firefox.open(page)
    firefox.until(f"document.querySelectorAll('{ROWS}').length === 2")
    assert "‹U+202E›" in shown(firefox)[0]
    assert firefox.value(f"document.querySelector('{ROWS} td.request').title").startswith("</script><script>")
    firefox.click(f"{ROWS} td.outcome")
    firefox.until(READ)
    firefox.click("#unfold")
    assert firefox.text("#dialogue").count("window.hacked = 1") > 7
    assert firefox.value("document.querySelectorAll('#dialogue :is(script, img, a, b b), main main').length") == 0
    assert firefox.value("typeof window.hacked") == "undefined"
    everything = firefox.value("document.documentElement.innerText")
    assert not any(hidden in everything for hidden in "\u202e\u2066\u200b\x1b")
    firefox.write("#search", "<img src=x")
    counted(firefox, "1 of 2")
    firefox.until("document.querySelectorAll('mark').length > 1")
    assert firefox.value("typeof window.hacked") == "undefined"


def test_the_policy_stops_markup_that_would_have_escaped(firefox: RealPage, run: Run, tmp_path: Path) -> None:
    opened(firefox, run, tmp_path)
    inject = "document.querySelector('#dialogue').innerHTML = '<img src=x onerror=\"window.hacked = 1\">'"
    firefox.value(f"({inject}, new Promise((done) => setTimeout(done, 300)))")
    assert firefox.value("document.querySelectorAll('#dialogue img').length") == 1
    assert firefox.value("typeof window.hacked") == "undefined"


def test_of_many_rows_only_those_in_view_are_drawn(firefox: RealPage, tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", task="code")
    rows = [dump(trajectory(number, id=f"t{number:05d}")) for number in range(MANY)]
    made(run, "rollout", "rollouts", rows, [])
    opened(firefox, run, tmp_path)
    counted(firefox, "600 of 600")
    assert len(shown(firefox)) < 120
    firefox.value("document.querySelector('#list').scrollTo(0, 1e9)")
    firefox.until(f"document.querySelector('{ROWS}:nth-last-child(2) td.id').innerText === 't00599'")
    assert len(shown(firefox)) < 120
    firefox.click(f"{ROWS}:nth-last-child(2) td.request")
    firefox.until(READ)
    assert firefox.text("#dialogue summary b") == "t00599"
    firefox.write("#search", '"return a + 434"')
    counted(firefox, "1 of 600")
    assert shown(firefox) == ["t00434"]


def test_a_narrow_window_shows_the_dialogue_instead_of_the_table(firefox: RealPage, run: Run, tmp_path: Path) -> None:
    firefox.resize(420, 800)
    try:
        opened(firefox, run, tmp_path)
        assert firefox.value("document.documentElement.scrollWidth") <= 420
        firefox.click(f"{ROWS} td.request")
        firefox.until(READ)
        assert firefox.value("document.querySelector('#list').offsetParent === null")
        assert firefox.value("document.documentElement.scrollWidth") <= 420
        firefox.click("#close")
        assert firefox.value("document.querySelector('#list').offsetParent !== null")
    finally:
        firefox.resize(1400, 900)
