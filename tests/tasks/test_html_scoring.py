"""Pages scored in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweet.datasets.checking import DataCheckConfig, check_tasks
from sweet.errors import UsageError
from sweet.render.firefox import find_firefox
from sweet.stages.base import Silent
from sweet.tasks.base import Task
from sweet.tasks.html.kind import HtmlKind
from sweet.tasks.scores import Score, ScoringRequest
from sweet.tasks.trajectory import Trajectory
from tests.stages.painted import trajectory

HEAD = "<h1 style='background:#224488;color:#ffffff;padding:30px'>Welcome to the bakery</h1>"
REFERENCE = f"<html><body>{HEAD}<p>Order bread online</p><p>Open from seven</p></body></html>"
CLOSE = f"<html><body>{HEAD}<p>Order bread online</p></body></html>"
FAR = "<html><body style='background:#cc2222'><ul><li>Nothing</li><li>alike</li></ul></body></html>"


@pytest.fixture(autouse=True)
def _firefox() -> None:
    try:
        find_firefox()
    except UsageError as error:
        pytest.skip(error.what)


def scored(run: Path, *rows: Trajectory) -> dict[str, Score]:
    request = ScoringRequest(run=run, say=lambda text: None, similarity="pixels", workers=1)
    with HtmlKind().open_scorer(request) as scorer:
        return {row.id: score for row, score in scorer.score(rows)}


@pytest.mark.usefixtures("one_browser")
def test_pages_in_a_real_browser(tmp_path: Path) -> None:
    rows = [
        trajectory("same", FAR, REFERENCE, reference=REFERENCE),
        trajectory("close", CLOSE, reference=REFERENCE),
        trajectory("far", FAR, reference=REFERENCE),
        trajectory("none", "What colour?", reference=REFERENCE),
        trajectory("huge", f"<html><body><p>{'x' * 2_100_000}</p></body></html>", reference=REFERENCE),
    ]
    scores = scored(tmp_path, *rows)
    assert [score.outcome for score in scores.values()] == ["passed", "passed", "passed", "no_answer", "error"]
    rewards = [score.reward or 0.0 for score in scores.values()]
    assert rewards[0] == pytest.approx(1, abs=1e-6)
    assert rewards[0] > rewards[1] > rewards[2] > rewards[3] == rewards[4]
    assert scores["huge"].detail["reason"] == "too_large"
    assert scores["same"].detail["diagnostics"] == {"block_match": 1, "text": 1, "position": 1, "color": 1}
    assert 0.5 < scores["close"].detail["diagnostics"]["block_match"] < 1
    assert len(list((tmp_path / "screenshots").rglob("*.png"))) == 3
    assert scored(tmp_path, *rows) == scores, "the same again, from the screenshots that were kept"


@pytest.mark.usefixtures("one_browser")
def test_reference_pages_are_checked(tmp_path: Path) -> None:
    pages = {
        "fine": REFERENCE,
        "blank": "<html><body style='background:#cc2222'></body></html>",
        "huge": f"<html><body><p>{'x' * 2_100_000}</p></body></html>",
        "same": REFERENCE.replace("><", "> <"),
        "leak": f"<html><body>{HEAD}</body></html>",
    }
    requests = {"leak": f"A page with {HEAD}, please."}
    tasks = [
        Task(id=name, problem_description=requests.get(name, "A bakery's page."), ground_truth=page)
        for name, page in pages.items()
    ]
    findings = check_tasks(HtmlKind(), tasks, Silent(), DataCheckConfig(workers=1), {})
    found = {finding.task_id: (finding.problem, finding.unusable) for finding in findings}
    assert found == {"blank": ("trivial", False), "huge": ("invalid", True), "leak": ("leak", False)}
