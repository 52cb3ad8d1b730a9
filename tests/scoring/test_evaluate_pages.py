"""`sweet eval` and what follows on tasks whose reward is a page's likeness, through a kind by plug-in."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sweet.credit.imitation import select_best
from sweet.errors import SweetError, UsageError
from sweet.learn.rows import CandidateRow, Preference
from sweet.preferences.config import LabelConfig, PairConfig
from sweet.preferences.label import run_label
from sweet.preferences.pair import run_pair
from sweet.ranking.config import RankConfig
from sweet.ranking.stage import run_rank
from sweet.render.page import Screenshot
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.results.compare import CompareConfig, run_compare
from sweet.scoring.stage import run_eval
from sweet.stages.base import Reporter, Silent
from sweet.tasks.scores import RewardRule, Score
from sweet.tasks.trajectory import Trajectory
from sweet.training.config import TrainActorConfig, TrainCriticConfig
from sweet.training.stage import run_train_actor, run_train_critic
from tests.render.pictures import make_clip, save_photo
from tests.stages.heard import Heard
from tests.stages.learn_runs import make_agent, put
from tests.stages.painted import Painter, page, plug_in, trajectory

REFERENCE = page("Welcome to the bakery", "Order bread online", "Open from seven")
CLOSE = page("Welcome to the bakery", "Order bread online")
FAR = page("zzz", colour="#cc2222")
HANGS = "<html><hang></html>"


@pytest.fixture
def painter(monkeypatch: pytest.MonkeyPatch) -> Painter:
    return plug_in(monkeypatch)


def make_run(path: Path, *rows: Trajectory, **meta: Any) -> Run:
    run = Run.open_or_create(path, "painted")
    put(run, "rollout", "rollouts", rows, **meta)
    return run


def evaluate(run: Run, reporter: Reporter | None = None, **settings: Any) -> tuple[dict[str, Any], list[Score]]:
    result = run_eval(run, EvalConfig(**settings), reporter or Silent())
    return result.metrics.as_json(), list(read_jsonl(run.file(result.artifacts[0]), Score))


def test_rows_and_figures(tmp_path: Path, painter: Painter) -> None:
    run = make_run(
        tmp_path / "run",
        trajectory("same", FAR, REFERENCE, reference=REFERENCE),
        trajectory("close", CLOSE, reference=REFERENCE),
        trajectory("none", reference=REFERENCE),
        trajectory("hangs", HANGS, reference=REFERENCE, task="t2"),
        trajectory("fault", CLOSE, reference=REFERENCE, task="t2", outcome="human_error"),
        trajectory("invalid", CLOSE, reference=HANGS, task="t3"),
        trajectory("elsewhere", CLOSE, reference=REFERENCE, task="t2", answer="/shots/7.png"),
    )
    listening = Heard()
    metrics, rows = evaluate(run, listening)
    told = {row.id: row for row in rows}
    assert list(told) == ["same", "close", "none", "hangs", "fault", "invalid", "elsewhere"]
    assert {name: row.outcome for name, row in told.items()} == {
        "same": "passed",
        "close": "passed",
        "none": "no_answer",
        "hangs": "error",
        "fault": "no_answer",
        "invalid": "invalid",
        "elsewhere": "passed",
    }
    same, close, none = (told[name].reward or 0.0 for name in ("same", "close", "none"))
    assert same == 1 > close > none
    assert none == told["hangs"].reward == told["fault"].reward
    assert told["elsewhere"].reward == close
    assert told["invalid"].reward is None
    assert "did not load within" in told["hangs"].detail["why"]
    assert told["hangs"].detail["reason"] == "timeout"
    assert told["fault"].detail["fault"] == "human_error"
    assert told["same"].detail["diagnostics"] == {"block_match": 1, "text": 1, "position": 1, "color": 1}
    assert 0 < told["close"].detail["diagnostics"]["block_match"] < 1
    assert set(told["none"].detail["diagnostics"].values()) == {0}

    rewards = [row.reward for row in rows if row.reward is not None]
    assert metrics["cosine"] == pytest.approx(sum(rewards) / 6, abs=1e-6)
    assert metrics["cosine_ci_low"] <= metrics["cosine"] <= metrics["cosine_ci_high"]
    assert metrics["text"] == pytest.approx(3 / 6, abs=1e-6)
    assert "success_rate" not in metrics
    assert (metrics["scorer"], metrics["similarity"]) == ("pixels-1", "pixels-1")
    assert (metrics["invalid_tasks"], metrics["faults"], metrics["trajectories"]) == (1, 1, 7)
    assert run.find("scores", needed_by="test").meta["similarity"] == "pixels-1"
    assert any("pixels-1" in line and "not comparable" in line for line in listening.said)
    assert any("t3 is invalid" in line for line in listening.warnings)
    assert len(painter.drawn) == len(set(painter.drawn)), "a page is rendered once a batch"


def test_many_batches_keep_their_order(tmp_path: Path, painter: Painter) -> None:
    rows = [trajectory(f"d{i}", page(f"line {i}"), reference=REFERENCE, task=f"t{i}") for i in range(75)]
    _, scores = evaluate(make_run(tmp_path / "run", *rows))
    assert [score.id for score in scores] == [row.id for row in rows]


def test_a_page_that_hangs_holds_up_no_other(tmp_path: Path, painter: Painter, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, others = painter.shoot, asyncio.Event()

    async def shoot(html: str) -> Screenshot:
        if "hangs" in html:
            async with asyncio.timeout(60):
                await others.wait()
        shot = await draw(html)
        if len(painter.drawn) >= 60:
            others.set()
        return shot

    monkeypatch.setattr(painter, "shoot", shoot)
    pages = [page("hangs"), *(page(f"line {i}") for i in range(74))]
    rows = [trajectory(f"d{i}", text, reference=REFERENCE, task=f"t{i}") for i, text in enumerate(pages)]
    _, scores = evaluate(make_run(tmp_path / "run", *rows))
    assert [score.outcome for score in scores] == ["passed"] * 75


def test_what_stops_the_browsers_stops_the_scoring(
    tmp_path: Path, painter: Painter, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def shoot(html: str) -> Screenshot:
        raise UsageError("A page loads Tailwind, which has not been fetched.")

    monkeypatch.setattr(painter, "shoot", shoot)
    rows = [trajectory(f"d{i}", page(f"line {i}"), reference=REFERENCE, task=f"t{i}") for i in range(75)]
    with pytest.raises(UsageError, match="not been fetched"):
        evaluate(make_run(tmp_path / "run", *rows))


def test_a_reference_from_elsewhere_is_rendered_as_pages_are(tmp_path: Path, painter: Painter) -> None:
    row = trajectory("a", REFERENCE, reference=f"<!DOCTYPE html>\n{REFERENCE}\n")
    _, scores = evaluate(make_run(tmp_path / "run", row))
    assert scores[0].reward == 1
    assert painter.drawn == [REFERENCE]


def test_nothing_to_score(tmp_path: Path, painter: Painter) -> None:
    metrics, rows = evaluate(make_run(tmp_path / "run"))
    assert rows == []
    assert metrics["cosine"] is None


def test_the_win_rate_counts_ties_half(tmp_path: Path, painter: Painter) -> None:
    theirs = make_run(
        tmp_path / "theirs", *(trajectory(f"a{i}", FAR, reference=REFERENCE, task=f"t{i}") for i in range(8))
    )
    pages = [REFERENCE] * 5 + [FAR] * 2 + [""]
    ours = make_run(
        tmp_path / "ours",
        *(
            trajectory(f"b{i}", *([text] if text else []), reference=REFERENCE, task=f"t{i}")
            for i, text in enumerate(pages)
        ),
        trajectory("b9", CLOSE, reference=REFERENCE, task="t9"),
    )
    evaluate(theirs)
    metrics, _ = evaluate(ours, compare=str(theirs.path))
    assert metrics["win_rate"] == pytest.approx((5 + 0.5 * 2) / 8)
    assert metrics["win_rate_ci_low"] < metrics["win_rate"] < metrics["win_rate_ci_high"]
    cosine = metrics["compare"]["figures"]["cosine"]
    assert (cosine["wins"], cosine["losses"], cosine["ties"]) == (5, 1, 2)
    assert cosine["difference_ci_low"] < cosine["difference"] < cosine["difference_ci_high"]
    assert metrics["compare"]["tasks"] == 8
    assert metrics["compare"]["figures"]["text"]["wins"] == 5


def test_figures_of_different_similarities_are_not_compared(tmp_path: Path, painter: Painter) -> None:
    theirs = make_run(tmp_path / "theirs", trajectory("a", FAR, reference=REFERENCE))
    ours = make_run(tmp_path / "ours", trajectory("b", CLOSE, reference=REFERENCE))
    clip = make_clip(tmp_path / "tiny")
    metrics, _ = evaluate(theirs, similarity=clip, device="cpu")
    assert metrics["scorer"].startswith("tiny@")
    with pytest.raises(UsageError, match=r"scored by tiny@.*scored by pixels-1") as caught:
        evaluate(ours, compare=str(theirs.path))
    assert str(caught.value.fix).endswith("--similarity pixels --window 1280x720 --pictures placeholder")
    assert evaluate(ours, similarity=clip, compare=str(theirs.path))[0]["compare"]["tasks"] == 1


def test_scores_at_different_windows_are_not_compared(tmp_path: Path, painter: Painter) -> None:
    """A window that is not named is that of the dialogues."""
    rows = {name: trajectory(name, CLOSE, reference=REFERENCE) for name in "ab"}
    theirs = make_run(tmp_path / "theirs", rows["a"], window="1366x682", pictures="placeholder")
    ours = make_run(tmp_path / "ours", rows["b"])
    assert evaluate(theirs)[0]["scorer"] == "pixels-1+1366x682"
    assert theirs.find("scores", needed_by="test").meta == {
        "scorer": "pixels-1+1366x682",
        "similarity": "pixels-1",
        "window": "1366x682",
        "pictures": "placeholder",
        "rollouts": "rollouts-1",
    }
    with pytest.raises(
        UsageError, match=r"scored by pixels-1\+1366x682, the other side is scored by pixels-1"
    ) as caught:
        evaluate(ours, compare=str(theirs.path))
    assert str(caught.value.fix).endswith("--similarity pixels --window 1280x720 --pictures placeholder")
    compared = evaluate(ours, window="1366x682", compare=str(theirs.path))[0]["compare"]
    assert compared["tasks"] == 1
    evaluate(ours)
    with pytest.raises(UsageError, match="scored by") as caught:
        run_compare(ours.path, theirs.path, CompareConfig())
    assert "--window 1366x682" in str(caught.value.fix)


def test_a_different_photograph_is_another_scorer(
    tmp_path: Path, painter: Painter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEET_DATA", str(tmp_path / "data"))
    run = make_run(tmp_path / "run", trajectory("a", CLOSE, reference=REFERENCE), pictures="photo@0123456789ab")
    with pytest.raises(UsageError, match="has not been downloaded") as caught:
        evaluate(run)
    assert caught.value.fix == "sweet data assets --photo"
    assert evaluate(run, pictures="placeholder")[0]["scorer"] == "pixels-1"
    listening = Heard()
    assert evaluate(run, listening, scorer="upstream")[0]["scorer"] == "pixels-1+1366x682+upstream"
    assert any("sweet data assets --photo" in line for line in listening.said)
    rule = save_photo(tmp_path / "data" / "assets")
    assert evaluate(run, scorer="upstream")[0]["scorer"] == f"pixels-1+1366x682+{rule}+upstream"
    assert evaluate(run)[0]["pictures"] == rule


def test_options_of_other_kinds_are_refused(tmp_path: Path, painter: Painter) -> None:
    run = make_run(tmp_path / "run", trajectory("a", FAR, reference=REFERENCE))
    with pytest.raises(UsageError, match="tolerance does not apply"):
        evaluate(run, tolerance=0.5)
    assert evaluate(run, sandbox="docker", workers=1)[0]["trajectories"] == 1
    code = Run.create(tmp_path / "code", "code")
    for name, value in (("similarity", "clip"), ("window", "1366x682"), ("pictures", "photo")):
        with pytest.raises(UsageError, match=f"{name} does not apply"):
            run_eval(code, EvalConfig(**{name: value}), Silent())
    pages = Run.create(tmp_path / "pages", "html")
    put(pages, "rollout", "rollouts", [trajectory("a", FAR, reference=REFERENCE)])
    with pytest.raises(UsageError, match="one scorer at a time"):
        run_eval(pages, EvalConfig(scorer="both"), Silent())


def test_preferences_are_between_rewards_that_differ(tmp_path: Path, painter: Painter) -> None:
    rows = [
        trajectory(f"d{i}", text, reference=REFERENCE, sample=i)
        for i, text in enumerate([FAR, REFERENCE, "What colour?", CLOSE, REFERENCE])
    ]
    run = make_run(tmp_path / "run", *rows)
    _, scores = evaluate(run)
    rewards = {score.id: score.reward or 0.0 for score in scores}
    result = run_label(run, LabelConfig(), Silent())
    found = list(read_jsonl(run.file(result.artifacts[0]), Preference))
    assert result.artifacts[0].meta["margin"] == 0.1
    assert result.artifacts[0].meta["scorer"] == "pixels-1"
    expected = {(a, b) for a in rewards for b in rewards if rewards[a] - rewards[b] >= 0.1}
    assert {(row.chosen, row.rejected) for row in found} == expected
    assert ("d1", "d4") not in expected
    assert run_label(run, LabelConfig(margin=0.0), Silent()).metrics.pairs == 9
    with pytest.raises(SweetError, match=r"differ enough.*--margin 1"):
        run_label(run, LabelConfig(margin=1.0), Silent())


def test_rejection_fine_tuning_keeps_what_its_kind_calls_good() -> None:
    dialogues = [("a", "t1"), ("b", "t1"), ("c", "t1"), ("d", "t2"), ("e", "t3"), ("f", "t3")]
    rewards = {"a": 0.4, "b": 0.8, "c": 0.8, "d": 1.0, "e": 0.5, "f": 0.5}
    assert select_best(dialogues, rewards, RewardRule(solved=None)) == ["b"]
    assert select_best(dialogues, rewards, RewardRule(solved=1.0)) == ["d"]


def test_the_whole_pipeline_learns_from_pages(tmp_path: Path, painter: Painter) -> None:
    """Long dialogues lose early turns; the critic sees the reference page; every stage finds the work before it."""
    agent = make_agent(tmp_path / "agent")
    lines = [f"Line {i} of a page" for i in range(4)]
    reference = page("Welcome", "Open")
    rows = []
    for task in range(4):
        for sample, last in enumerate((reference, FAR, "")):
            drafts = [page(*lines, f"draft {n} of task {task}") for n in range(3)]
            pages = [*drafts, last] if last else drafts[:1]
            row = trajectory(f"d{task}-{sample}", *pages, reference=reference, task=f"t{task}", sample=sample)
            rows.append(row if last else row.model_copy(update={"answer": HANGS}))
    run = make_run(tmp_path / "run", *rows, agent=agent, tasks="toy", split="train")
    evaluate(run)
    labelled = run_label(run, LabelConfig(), Silent())
    assert labelled.metrics.tasks_with_pairs == 4
    listening = Heard()
    critic = run_train_critic(run, TrainCriticConfig(epochs=1, lr=1e-3, max_length=600), listening)
    assert critic.metrics.as_json()["steps"] >= 1
    assert any("early turns were omitted" in line for line in listening.warnings)
    ranked = run_rank(run, RankConfig(candidates=3, fraction=0.3, max_tokens=8), Silent())
    found = list(read_jsonl(run.file(ranked.artifacts[0]), CandidateRow))
    assert all(len(row.candidates) == 3 for row in found)
    run_pair(run, PairConfig(), Silent())
    assert run_train_actor(run, TrainActorConfig(epochs=1), Silent()).metrics.as_json()["steps"] >= 1
    tuned = run_train_actor(run, TrainActorConfig(epochs=1, algorithm="rft"), Silent())
    assert tuned.metrics.examples == 4, "each task's best"
    with pytest.raises(UsageError, match="ever solved"):
        run_train_critic(run, TrainCriticConfig(variant="regression", target="binary"), Silent())
    best_of = evaluate(run, best_of_by="critic", device="cpu")[0]["best_of"]["n"]
    assert best_of["2"]["oracle"] > best_of["1"]["random"]
