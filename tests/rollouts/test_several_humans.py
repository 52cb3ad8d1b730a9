"""Several humans in one rollout: models at servers, the scripted human, and personas."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sweet.errors import UsageError
from sweet.humans.personas import HEAD, packaged, text_in
from sweet.rollouts.assignments import plan_humans
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.lineage import role
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.stages.meta import RolloutsMeta
from sweet.tasks.code.kind import CodeKind
from sweet.tasks.micro import generator
from tests import programs
from tests.rollouts.human_servers import human_server
from tests.rollouts.small import SAMPLES, TASKS, config, rows

STORED = generator.load("train")[:TASKS]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", task="code")


def test_one_human_is_recorded_as_before_there_were_several() -> None:
    assert RolloutConfig().digest() == RolloutConfig(sim=["scripted"], persona=[]).digest()
    assert RolloutConfig(sim=["a"]).sim == "a"
    assert RolloutConfig(sim=["a"]).model_dump(mode="json")["sim"] == "a"
    assert RolloutConfig(sim=["a", "b"]).sims == ["a", "b"]
    assert RolloutConfig.option_words(RolloutConfig(sim=["a", "b"], persona=["terse"]).model_dump(mode="json")) == [
        *("--sim", "a", "--sim", "b", "--persona", "terse")
    ]
    assert RolloutConfig.option_words(RolloutConfig().model_dump(mode="json")) == []


@pytest.mark.parametrize("sim", [[], ["a", "a"], [3], 3])
def test_invalid_humans(sim: Any) -> None:
    with pytest.raises(ValueError, match="sim"):
        RolloutConfig(sim=sim)


def test_tasks_are_spread_evenly_and_keep_their_human(run: Run) -> None:
    result = run_rollout(run, config(persona=["plain", "terse", "unsure"]), Silent())
    found = rows(run)
    humans = {task.id: {row["human"] for row in found if row["task"]["id"] == task.id} for task in STORED}
    names = ["scripted", "scripted:terse", "scripted:unsure"]
    assert humans == {task.id: {names[place % 3]} for place, task in enumerate(STORED)}
    counted = result.metrics.as_json()["humans"]
    assert {name: one["dialogues"] for name, one in counted.items()} == dict.fromkeys(names, TASKS * SAMPLES // 3)
    assert sum(one["turns"] for one in counted.values()) == result.metrics.turns
    meta = RolloutsMeta.of(run.artifact("rollouts-1"))
    assert (meta.sim, meta.humans) == (", ".join(names), names)

    path = run.file(run.artifact("rollouts-1"))
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole[:5]))
    resumed = run_rollout(run, config(persona=["plain", "terse", "unsure"]), Silent())
    assert resumed.artifacts[0].id == "rollouts-1"
    assert {row["id"]: row["human"] for row in rows(run)} == {row["id"]: row["human"] for row in found}
    assert resumed.metrics.as_json()["humans"] == counted


def test_the_humans_of_samples_take_turns(run: Run) -> None:
    run_rollout(run, config(persona=["plain", "terse"], spread="samples"), Silent())
    for task in STORED:
        assert {row["human"] for row in rows(run) if row["task"]["id"] == task.id} == {"scripted", "scripted:terse"}
    with pytest.raises(UsageError, match="One human cannot be spread"):
        run_rollout(run, config(spread="samples"), Silent())
    with pytest.raises(UsageError, match="One dialogue of each task cannot"):
        run_rollout(run, config(spread="samples", samples=1, persona=["plain", "terse"]), Silent())


def test_a_dialogue_with_one_plain_human_names_none(run: Run) -> None:
    result = run_rollout(run, config(num_tasks=2, samples=1), Silent())
    assert not any("human" in row for row in rows(run))
    assert "humans" not in result.metrics.as_json()
    meta = run.artifact("rollouts-1").meta
    assert (meta["humans"], meta["personas_digest"]) == (None, None)


def test_each_model_is_asked_at_the_server_that_serves_it(run: Run) -> None:
    with human_server(STORED, "ada") as (ada_url, ada), human_server(STORED, "bob") as (bob_url, bob):
        sides = config(sim=["ada", "bob", "scripted"], sim_url=[bob_url, ada_url], persona=["plain", "terse"])
        result = run_rollout(run, sides, Silent())
    names = [f"{sim}{persona}" for sim in ("ada", "bob", "scripted") for persona in ("", ":terse")]
    assert Counter(row["human"] for row in rows(run)) == dict.fromkeys(names, TASKS * SAMPLES // len(names))
    assert result.metrics.failed == 0
    attempt = run.manifest().attempts[-1]
    assert attempt.environment["human"] == ", ".join(names)
    for human in (ada, bob):
        texts = Counter(text_in(prompt) for prompt in human.asked)
        assert set(texts) == {"", packaged()["terse"].text}
        assert HEAD not in texts


def test_servers_and_models_that_do_not_match(run: Run) -> None:
    with (
        human_server(STORED, "ada") as (ada_url, _),
        human_server(STORED, "bob") as (bob_url, _),
        human_server(STORED, "carl") as (carl_url, _),
    ):
        with pytest.raises(UsageError, match=r"No server serves eve: .* serves ada; .* serves bob"):
            run_rollout(run, config(sim=["ada", "eve"], sim_url=[ada_url, bob_url]), Silent())
        with pytest.raises(UsageError, match=r"serves none of ada, bob\. It serves: carl") as error:
            run_rollout(run, config(sim=["ada", "bob"], sim_url=[ada_url, carl_url, bob_url], new=True), Silent())
        assert error.value.where == carl_url
        with pytest.raises(UsageError, match="does not serve eve"):
            run_rollout(run, config(sim="eve", sim_url=[ada_url], new=True), Silent())


def test_another_text_of_a_persona_is_another_rollout(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    with human_server(STORED, "ada") as (url, ada):
        # The scripted human that is served plays a text that it knows under any name.
        text = packaged()["terse"].text
        file.write_text(f'mine = """\n{text}\n"""\n')
        sides = config(sim="ada", sim_url=[url], persona_file=file, num_tasks=2, samples=1)
        run_rollout(run, sides, Silent())
        assert {row["human"] for row in rows(run)} == {"ada:mine"}
        file.write_text(f'mine = """\n{packaged()["unsure"].text}\n"""\n')
        run_rollout(run, sides, Silent())
        assert {text_in(prompt) for prompt in ada.asked} == {text, packaged()["unsure"].text}
    manifest = run.manifest()
    first, second = (manifest.artifact(f"rollouts-{number}") for number in (1, 2))
    assert first is not None
    assert second is not None
    assert role(manifest, first) != role(manifest, second), "neither replaces the other"


def test_the_names_of_humans_are_distinct(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('b = "x"\n')
    with pytest.raises(UsageError, match="the same name, a:b"):
        plan_humans(CodeKind(), config(sim=["a:b", "a"], persona=["plain", "b"], persona_file=file))


def test_the_command_line(tmp_path: Path) -> None:
    words = ["rollout", "run", "--num-tasks", "4", "--max-turns", "3", "--max-tokens", "32", "--json"]
    done = programs.run([*programs.SWEET, *words, "--persona", "terse", "--persona", "unsure"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["metrics"]["humans"]) == {"scripted:terse", "scripted:unsure"}
    again = programs.run([*programs.SWEET, *words[:-1], "--persona", "terse", "--persona", "unsure"], cwd=tmp_path)
    assert "By human" in again.stdout
    assert "{" not in again.stdout
    refused = programs.run([*programs.SWEET, *words, "--persona", "german"], cwd=tmp_path)
    assert refused.returncode == 2
    assert "cannot play the persona german" in refused.stderr
    twice = programs.run([*programs.SWEET, *words, "--sim", "a", "--sim", "a"], cwd=tmp_path)
    assert twice.returncode == 2
    assert "each must be given once" in twice.stderr
