"""The critic that sees screenshots of pages: training, ranking, choosing dialogues, and rendering what is missing.

The pages of these runs say nothing of their looks in their text, and their screenshots are put into the run's store by
hand: what the critic learns here, it learns from pictures.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from sweet.errors import SweetError, UsageError
from sweet.learn import head
from sweet.learn.estimate import image_activations
from sweet.learn.job import FILE, Job
from sweet.learn.rows import CandidateRow
from sweet.learn.vision_processor import vision_processor
from sweet.llm.pretrained import load_config, load_image_processor
from sweet.preferences.config import LabelConfig, PairConfig
from sweet.preferences.label import run_label
from sweet.preferences.pair import run_pair
from sweet.ranking.config import RankConfig
from sweet.ranking.stage import run_rank
from sweet.render.firefox import find_firefox
from sweet.render.page import RenderFailed, RenderSettings, Screenshot, page_key
from sweet.render.store import SCREENSHOTS, ScreenshotStore
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.scoring.best_of import measure_best_of
from sweet.stages.base import Silent
from sweet.stages.critics import CriticSettings, load_critic
from sweet.tasks.base import Task
from sweet.tasks.trajectory import Trajectory, Turn
from sweet.training.config import TrainActorConfig, TrainCriticConfig
from sweet.training.engines import make_job
from sweet.training.hyperparameters import defaults
from sweet.training.prepare import prepare_critic
from sweet.training.stage import plan_train_critic, run_train_actor, run_train_critic
from tests.learn.sighted import FAMILIES, make_sighted, paint
from tests.stages.chat_server import ChatServer, said
from tests.stages.counting import Copying
from tests.stages.learn_runs import make_agent, put, score
from tests.training.test_train import weights


def page(name: str) -> str:
    """A page whose text tells nothing: its looks are what the store holds for it."""
    digest = hashlib.sha256(name.encode()).hexdigest()[:6]
    return f"<html><p>{digest}</p></html>"


def shoot(run: Run, html: str, shot: bytes | RenderFailed, width: int = 40, height: int = 24) -> None:
    found = shot if isinstance(shot, RenderFailed) else Screenshot(shot, width, height, ())
    ScreenshotStore(run.path / SCREENSHOTS).put(page_key(html, RenderSettings()), found)


def dialogue(task: str, sample: int, *pages: str) -> Trajectory:
    history = [Turn(role="user", content="A page.")]
    for number, html in enumerate(pages):
        history.append(Turn(role="assistant", content=html, output=html))
        if number < len(pages) - 1:
            history.append(Turn(role="user", content="Not quite."))
    problem = Task(id=task, problem_description="A page.", ground_truth=page(f"reference {task}"))
    name = f"{task}-{sample}"
    return Trajectory(id=name, task=problem, dialogue_history=tuple(history), answer=pages[-1], sample=sample)


def make_run(folder: Path, agent: str, tasks: int = 6, turns: int = 2, side: int = 24) -> Run:
    """On each task two dialogues: the last page of one is red, which is right, that of the other blue."""
    run, draw = Run.create(folder / "run", task="html"), random.Random(0)
    dialogues = []
    for number in range(tasks):
        task = f"task-{number}"
        shoot(run, page(f"reference {task}"), paint(draw.choice(["white", "green", "black"]), corner="gray"))
        for sample, reward in enumerate(draw.choice([(0.9, 0.3), (0.3, 0.9)])):
            names = [f"{task} {sample} {turn}" for turn in range(turns)]
            for name in names[:-1]:
                shoot(run, page(name), paint("gray"))
            shade = draw.randrange(160, 256)
            colour = f"#{shade:02x}1010" if reward == 0.9 else f"#1010{shade:02x}"
            corner = draw.choice([None, "white", "gray"])
            shoot(run, page(names[-1]), paint(colour, 40, side, corner), 40, side)
            dialogues.append((dialogue(task, sample, *map(page, names)), reward))
    meta: dict[str, Any] = {"agent": agent, "agent_system": "You build pages.", "tasks": "toy", "split": "train"}
    rollouts = put(run, "rollout", "rollouts", [t for t, _ in dialogues], **meta)
    put(run, "eval", "scores", [score(t, reward) for t, reward in dialogues], [rollouts])
    run_label(run, LabelConfig(), Silent())
    return run


@pytest.fixture(scope="module")
def sighted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("sighted")
    return {family: make_sighted(folder / family, family) for family in FAMILIES}


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_agent(tmp_path_factory.mktemp("models") / "agent")


@pytest.fixture
def run(tmp_path: Path, agent: str) -> Run:
    return make_run(tmp_path, agent)


@pytest.fixture
def no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Any:
        raise UsageError("There is no Firefox.", fix="install it")

    monkeypatch.setattr("sweet.render.browsers.find_firefox", none)


@pytest.fixture
def painted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """In the place of browsers: red pages, but for one that does not load; what was rendered."""
    rendered: list[str] = []

    class Painter:
        def __init__(self, store: ScreenshotStore, settings: RenderSettings) -> None:
            self.store, self.settings = store, settings

        async def shoot(self, html: str) -> Screenshot:
            rendered.append(html)
            broken = "hang" in html
            found = RenderFailed("timeout", "it took too long") if broken else Screenshot(paint("red"), 40, 24, ())
            self.store.put(page_key(html, self.settings), found)
            if isinstance(found, RenderFailed):
                raise found
            return found

    @asynccontextmanager
    async def browsers(store: Path, settings: RenderSettings) -> AsyncIterator[Painter]:
        yield Painter(ScreenshotStore(store), settings)

    monkeypatch.setattr("sweet.render.browsers.open_browsers", browsers)
    return rendered


def config(model: str, **changes: Any) -> TrainCriticConfig:
    usual = {"variant": "regression", "model": model, "epochs": 1, "lr": 2e-3, "batch": 2, "image_pixels": 3200}
    return TrainCriticConfig(**{**usual, **changes})


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.usefixtures("no_browser")
def test_a_critic_learns_from_pictures_alone(tmp_path: Path, agent: str, sighted: dict[str, str], family: str) -> None:
    run = make_run(tmp_path, agent, tasks=60, turns=1, side=48)
    settings = config(sighted[family], epochs=3, lr=5e-3, beta=2.0, batch=4, holdout=0.5, keep="last")
    result = run_train_critic(run, settings, Silent())
    assert (result.metrics.examples, result.metrics.heldout) == (30, 30)
    assert result.metrics.as_json()["heldout_accuracy"] >= 0.9  # with grey pictures it stays about 0.6
    folder = run.file(result.artifacts[0])
    assert (folder / head.FILE).exists()
    assert load_image_processor(str(folder)).size["longest_edge"] == 3200


@pytest.mark.usefixtures("no_browser")
def test_the_pipeline_from_screenshots_to_an_actor(run: Run, sighted: dict[str, str], painted: list[str]) -> None:
    run_train_critic(run, config(sighted["qwen2_vl"]), Silent())
    assert painted == []  # the run had them all
    drawn = [page("new"), "No page yet.", "<html><p>hang</p></html>"]
    options = RankConfig(candidates=3, fraction=0.5, agent="agent")
    with ChatServer("agent", lambda _: said(*drawn)).running() as url:
        ranked = run_rank(run, options.model_copy(update={"agent_url": [url]}), Silent())
    assert sorted(painted) == sorted([drawn[0], drawn[2]])
    rows = list(read_jsonl(run.file(ranked.artifacts[0]), CandidateRow))
    assert len(rows) == 12
    for row in rows:
        scores = [candidate.score for candidate in row.candidates]
        assert [candidate.text for candidate in row.candidates] == drawn
        assert len(set(scores)) == 3
        assert row.taken is not None
        assert (row.basis, row.taken.logprob) == ("regression", None)
    assert run_pair(run, PairConfig(), Silent()).metrics.pairs > 0
    actor = run_train_actor(run, TrainActorConfig(limit=4, lr=1e-3), Silent())
    assert actor.metrics.steps == defaults("sweet", large=False).epochs


def test_ranking_resumes_with_the_missing_turns(run: Run, sighted: dict[str, str], painted: list[str]) -> None:
    run_train_critic(run, config(sighted["qwen2_vl"]), Silent())
    options = RankConfig(candidates=2, agent="agent", fraction=1, concurrency=1, fail_on_error=0.9)
    server = ChatServer("agent", lambda body: said(page(str(body["seed"])), "None."), lasts=4)
    with server.running() as url, pytest.raises(SweetError):
        run_rank(run, options.model_copy(update={"agent_url": [url], "retry_timeout": 0}), Silent())
    with ChatServer("agent", lambda body: said(page(str(body["seed"])), "None.")).running() as url:
        run_rank(run, options.model_copy(update={"agent_url": [url]}), Silent())
    artifact = run.find("candidates", None, needed_by="test")
    keys = [row.key for row in read_jsonl(run.file(artifact), CandidateRow)]
    assert len(keys) == len(set(keys)) == 24
    assert len(painted) == len(set(painted)) == 24


@pytest.mark.parametrize("target", ["preference", "real"])
def test_interrupted_and_resumed_equals_uninterrupted(run: Run, sighted: dict[str, str], target: str) -> None:
    settings = config(sighted["qwen2_5_vl"], target=target, save_every=1, epochs=2)
    copying = Copying(run, 3, "train-critic")
    whole = run_train_critic(run, settings, copying)
    killed = copying.killed()
    again = run_train_critic(killed, settings.model_copy(update={"resume": True}), Silent())
    first, second = run.file(whole.artifacts[0]), killed.file(again.artifacts[0])
    assert torch.equal(weights(first), weights(second))
    assert (first / head.FILE).read_bytes() == (second / head.FILE).read_bytes()


@pytest.mark.parametrize("protocol", ["paper", "upstream"])
def test_it_chooses_dialogues(run: Run, sighted: dict[str, str], protocol: str) -> None:
    run_train_critic(run, config(sighted["qwen3_vl"], protocol=protocol), Silent())
    scores = [score(t, 0.9 if i % 2 else 0.3) for i, t in enumerate(_dialogues(run))]
    told = measure_best_of(
        run, run.artifact("rollouts-1"), scores, run.artifact("critic-1"), CriticSettings("cpu"), Silent()
    ).as_json()
    assert told["critic"] == "critic-1"
    assert set(told["n"]) == {"1", "2"}


def test_another_screenshot_is_another_score(run: Run, sighted: dict[str, str]) -> None:
    artifact = run_train_critic(run, config(sighted["qwen2_vl"], epochs=4), Silent()).artifacts[0]

    def scores() -> dict[int, float]:
        critic: Any = load_critic(run, artifact, Silent(), CriticSettings(device="cpu"))
        return dict(critic.turn_scores(_dialogues(run)[:1], None)[0])

    before = scores()
    shoot(run, page("task-0 0 1"), paint("yellow", corner="black"))
    after = scores()
    assert before[1] == after[1]
    assert abs(before[3] - after[3]) > 1e-5


def test_pages_that_did_not_load_are_described_in_text(run: Run, sighted: dict[str, str]) -> None:
    shoot(run, page("task-0 0 1"), RenderFailed("blocked", "it went away"))
    shoot(run, page("reference task-0"), RenderFailed("too_large", "too much"))
    assert run_train_critic(run, config(sighted["qwen2_vl"]), Silent()).metrics.steps == 3


def test_missing_screenshots_are_rendered_once(run: Run, sighted: dict[str, str], painted: list[str]) -> None:
    _lose(run, page("task-0 0 1"), page("reference task-1"))
    with pytest.raises(SweetError, match=r"2 pages without a screenshot"):
        plan_train_critic(run, config(sighted["qwen2_vl"], holdout=0.0), Silent()).as_json()
    for _ in range(2):
        run_train_critic(run, config(sighted["qwen2_vl"], holdout=0.0), Silent())
    assert sorted(painted) == sorted([page("task-0 0 1"), page("reference task-1")])


@pytest.mark.usefixtures("no_browser")
def test_without_a_browser_a_missing_screenshot_is_an_error(run: Run, sighted: dict[str, str]) -> None:
    _lose(run, page("task-0 0 1"))
    with pytest.raises(UsageError, match=r"Without a screenshot: 1 page, .*no Firefox") as caught:
        run_train_critic(run, config(sighted["qwen2_vl"], holdout=0.0), Silent())
    assert caught.value.fix == "install it"


@pytest.mark.usefixtures("one_browser")
def test_a_missing_screenshot_is_rendered_in_a_real_browser(run: Run, sighted: dict[str, str]) -> None:
    try:
        find_firefox()
    except UsageError as error:
        pytest.skip(f"pages cannot be rendered here: {error.what}")
    _lose(run, page("task-0 0 1"))
    assert run_train_critic(run, config(sighted["qwen2_vl"], holdout=0.0), Silent()).metrics.steps == 3
    shot = ScreenshotStore(run.path / SCREENSHOTS).get(page_key(page("task-0 0 1"), RenderSettings()))
    assert isinstance(shot, Screenshot)
    assert shot.width == 1280


@pytest.mark.usefixtures("one_browser")
def test_it_chooses_pages_in_a_dialogue_under_way(run: Run, sighted: dict[str, str]) -> None:
    try:
        find_firefox()
    except UsageError as error:
        pytest.skip(f"pages cannot be rendered here: {error.what}")
    run_train_critic(run, config(sighted["qwen2_vl"], epochs=1), Silent())
    rollout = RolloutConfig(task="html", tasks="pages", agent="scripted", num_tasks=1, max_turns=2, best_of=3)
    result = run_rollout(run, rollout, Silent())
    [played] = read_jsonl(run.file(result.artifacts[0]), Trajectory)
    for index in played.agent_turns:
        choice = played.dialogue_history[index].choice
        assert choice is not None
        assert choice.basis == "regression"
        assert None not in choice.advantages
        assert sum(value or 0 for value in choice.advantages) == pytest.approx(0, abs=1e-4), "above the mean"


@pytest.mark.usefixtures("no_browser")
def test_the_plan_counts_the_tokens_of_pictures(run: Run, sighted: dict[str, str]) -> None:
    small, large = (
        plan_train_critic(run, config(sighted["qwen2_vl"], image_pixels=pixels, holdout=0.0), Silent()).as_json()
        for pixels in (3136, 28 * 28 * 8)
    )
    assert small["tokens"] == large["tokens"] == small["tokens_computed"]  # 40 x 24 pixels fit either
    _lose(run, page("task-0 0 1"))
    shoot(run, page("task-0 0 1"), paint("red", 80, 80), 80, 80)
    grown = plan_train_critic(run, config(sighted["qwen2_vl"], image_pixels=6400, holdout=0.0), Silent()).as_json()
    assert grown["tokens"] == small["tokens"] + 100 - 15


@pytest.mark.usefixtures("no_browser")
def test_a_large_critic_of_pages_passes_over_the_dialogues_eight_times(
    run: Run, sighted: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweet.training.hyperparameters.LARGE", 1)
    plan = plan_train_critic(run, config(sighted["qwen2_vl"], epochs=None, holdout=0.0), Silent()).as_json()
    assert plan["epochs"] == 8


@pytest.mark.usefixtures("no_browser")
def test_ranks_receive_the_screenshots(run: Run, sighted: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("deepspeed")
    settings = config(sighted["qwen2_vl"], engine="deepspeed", devices=2, zero=3, holdout=0.0)
    training, _ = prepare_critic(run, settings, Silent())
    job = make_job(tmp_path / "critic-1", training, "digest")
    job.write(tmp_path / FILE)
    found = Job.read(tmp_path / FILE)
    assert found == job
    assert found.vision is not None
    assert vision_processor(found.vision).processor.size["longest_edge"] == settings.image_pixels
    assert [len(sequence.images) for sequence in found.pool] == [3] * 12
    store = ScreenshotStore(run.path / SCREENSHOTS)
    first = found.pool[found.examples[0].chosen[0]].images[0].path
    assert first in {store.picture(page_key(page(f"reference task-{n}"), RenderSettings())) for n in range(6)}


def test_the_plan_divides_the_model_of_a_critic_that_sees_pages(run: Run, sighted: dict[str, str]) -> None:
    pytest.importorskip("deepspeed")
    pytest.importorskip("peft")
    one, two = (
        plan_train_critic(run, config(sighted["qwen2_vl"], holdout=0.0, **ranks), Silent()).as_json()
        for ranks in ({}, {"engine": "deepspeed", "devices": 2, "zero": 3})
    )
    assert two["memory"]["weights"] == one["memory"]["weights"] / 2
    assert two["tokens_computed"] == one["tokens_computed"] == one["tokens"]
    adapter = plan_train_critic(run, config(sighted["qwen2_vl"], holdout=0.0, lora=2), Silent()).as_json()
    images = image_activations(load_config(sighted["qwen2_vl"]), 3 * 15 * 2, mixed=False)
    # At least one preference in a micro-batch, each with three screenshots a side.
    assert one["memory"]["activations"] >= adapter["memory"]["activations"] + round(images)
    # Without any screenshot a single device shares the openings of texts; ranks compute each sequence.
    for html in [page(f"task-{n} {sample} {turn}") for n in range(6) for sample in range(2) for turn in range(2)]:
        shoot(run, html, RenderFailed("blocked", "it went away"))
    for n in range(6):
        shoot(run, page(f"reference task-{n}"), RenderFailed("blocked", "it went away"))
    one, two = (
        plan_train_critic(run, config(sighted["qwen2_vl"], holdout=0.0, **ranks), Silent()).as_json()
        for ranks in ({}, {"engine": "deepspeed", "devices": 2, "zero": 3})
    )
    assert two["tokens_computed"] == two["tokens"] == one["tokens"] > one["tokens_computed"]


def test_unsupported_options_are_refused(run: Run, sighted: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="shown screenshots"):
        run_train_critic(run, config(sighted["qwen2_vl"], variant="advantage"), Silent())


def test_an_advantage_critic_reads_text(run: Run, sighted: dict[str, str]) -> None:
    settings = TrainCriticConfig(model=sighted["qwen2_vl"], epochs=1, lr=1e-3)
    artifact = run_train_critic(run, settings, Silent()).artifacts[0]
    assert not (run.file(artifact) / "preprocessor_config.json").exists()


def test_an_adapter_is_written_with_its_vision_processor(run: Run, sighted: dict[str, str]) -> None:
    pytest.importorskip("peft")
    for output in ("merged", "adapter"):
        settings = config(sighted["qwen2_vl"], lora=2, lora_output=output, epochs=2)
        artifact = run_train_critic(run, settings, Silent()).artifacts[0]
        critic: Any = load_critic(run, artifact, Silent(), CriticSettings(device="cpu"))
        assert critic.reader.encoder.vision.processor.size["longest_edge"] == 3200
        assert len(critic.turn_scores(_dialogues(run)[:1], None)[0]) == 2


def _dialogues(run: Run) -> list[Trajectory]:
    return list(read_jsonl(run.file(run.artifact("rollouts-1")), Trajectory))


def _lose(run: Run, *pages: str) -> None:
    store = ScreenshotStore(run.path / SCREENSHOTS)
    for html in pages:
        store.picture(page_key(html, RenderSettings())).with_suffix(".json").unlink()
