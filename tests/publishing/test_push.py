"""`sweet data push` against a hub on the loopback interface, by the hub's own client: data, models, cards, refusals."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from sweet.errors import UsageError
from sweet.learn.rows import Candidate, CandidateRow, Preference
from sweet.llm.pretrained import load_model
from sweet.publishing.card import Trained, measurements
from sweet.publishing.config import PushConfig
from sweet.publishing.dataset import FEATURES, public_name
from sweet.publishing.stage import run_push
from sweet.results.collect import collect
from sweet.results.facts import ScoresFact
from sweet.results.pages import markdown
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.tasks.base import Message
from sweet.training.config import TrainActorConfig
from sweet.training.stage import run_train_actor
from tests import programs
from tests.datasets.test_trl import ALONE, PAIRS
from tests.publishing.hub import TOKEN, WritableHub, serve_writable_hub
from tests.stages.heard import Heard
from tests.stages.learn_runs import make_agent, make_dialogues, make_run, put, score

HOSTILE = "x`| <b>@all</b>\n---\nlicense: mit"


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(make_agent(tmp_path_factory.mktemp("models") / "agent"))


@pytest.fixture
def run(tmp_path: Path, agent: Path) -> Run:
    """A run with every kind of data, and an actor that was evaluated on tasks of another split."""
    made = Run.create(tmp_path / "run", task="code")
    dialogues = make_dialogues(tasks=3, samples=2)
    rollouts = put(
        made,
        "rollout",
        "rollouts",
        [one for one, _ in dialogues],
        agent=str(agent),
        tasks="/secret/t.jsonl",
        split="train",
    )
    scores = put(made, "eval", "scores", [score(one, reward) for one, reward in dialogues], [rollouts], scorer="strict")
    first, second = dialogues[0][0], dialogues[1][0]
    preference = Preference(
        task_id=first.task_id, chosen=first.id, rejected=second.id, chosen_reward=1, rejected_reward=0.1
    )
    put(made, "label", "preferences", [preference], [scores, rollouts])
    row = CandidateRow(
        trajectory_id=first.id,
        task_id=first.task_id,
        turn=1,
        observation=(Message(role="user", content="5"),),
        candidates=(Candidate(text="a", advantage=0.5), Candidate(text="b", advantage=-0.5, logprob=-1.0)),
        taken=None,
    )
    candidates = put(made, "rank", "candidates", [row], [rollouts])
    pairs = put(made, "pair", "pairs", [*PAIRS, ALONE], [candidates])
    trained(made, agent, [pairs, rollouts])
    return made


def trained(made: Run, agent: Path, inputs: list[Any], **meta: Any) -> None:
    from tests.stages.learn_runs import AnyConfig

    with made.attempt("train-actor", AnyConfig(number=7), inputs=inputs) as attempt:
        draft = attempt.start_artifact("actor", meta={"base": str(agent), "algorithm": "sweet", "lr": 0.1} | meta)
        draft.path.mkdir(parents=True, exist_ok=True)
        for file in agent.iterdir():
            (draft.path / file.name).write_bytes(file.read_bytes())
        (draft.path / "optimizer.pt").write_bytes(b"not for others")
        attempt.finish_artifact(draft)


@pytest.fixture
def hub() -> Iterator[WritableHub]:
    with serve_writable_hub() as running:
        yield running


def push(hub: WritableHub, *words: str | Path, token: str = TOKEN) -> tuple[int, str, str]:
    environment = os.environ | {"HF_ENDPOINT": hub.address, "HF_TOKEN": token, "HF_HUB_OFFLINE": "0"}
    environment |= {"HF_HUB_DISABLE_TELEMETRY": "1"}
    done = programs.run(["-m", "sweet", "data", "push", *words], env=environment)
    return done.returncode, done.stdout, done.stderr


def test_the_data_of_a_run_is_pushed_as_subsets_with_splits(run: Run, hub: WritableHub) -> None:
    code, out, err = push(hub, run.path, "me/data", "--license", "cc-by-4.0", "--json")
    assert code == 0, err
    metrics = json.loads(out)["metrics"]
    assert metrics["rows"] == {"dialogues/train": 6, "candidates/train": 1, "preferences/train": 1, "pairs/train": 5}
    assert metrics["url"].startswith(hub.address)
    found = hub.repositories["datasets/me/data"]
    assert found.private
    assert found.messages == ["Push by sweet"]
    assert set(found.files) == {"README.md", *(f"{name}/train.jsonl" for name in FEATURES)}
    for subset, features in FEATURES.items():
        rows = [json.loads(line) for line in found.files[f"{subset}/train.jsonl"].splitlines()]
        assert all(list(row) == [feature["name"] for feature in features] for row in rows), subset
    assert (rows[-1]["rejected"], rows[-1]["rejected_advantage"]) == (None, None), "the last of the pairs is kept alone"
    rewards = [json.loads(line)["reward"] for line in found.files["dialogues/train.jsonl"].splitlines()]
    assert rewards == [reward for _, reward in make_dialogues(tasks=3, samples=2)]
    card = found.files["README.md"].decode()
    assert "license: cc-by-4.0" in card
    assert "/secret" not in card
    assert "`t.jsonl`" in card
    assert TOKEN not in "".join([out, err, *(file.decode() for file in found.files.values())])


def test_an_adapter_whose_base_others_do_not_have_is_merged(tmp_path: Path, hub: WritableHub) -> None:
    """Its system prompt stays; what is pushed loads, and computes what the adapter does."""
    pytest.importorskip("peft", reason="peft is not installed")
    base = make_agent(tmp_path / "base")
    run = make_run(tmp_path, base)
    config = TrainActorConfig(algorithm="rft", lora=4, epochs=1, lr=1e-2, lora_output="adapter", from_=["scores-1"])
    adapter = run.file(run_train_actor(run, config, Silent()).artifacts[0])
    code, out, err = push(hub, run.path, "me/actor", "--actor", "last", "--license", "mit")
    assert code == 0, out + err
    found = hub.repositories["models/me/actor"].files
    assert not [name for name in found if "adapter" in name]
    assert {"config.json", "generation_config.json", "model.safetensors"} <= found.keys()
    assert any(name.startswith("prompts-code/") for name in found)
    assert b"library_name: transformers" in found["README.md"]
    pushed = tmp_path / "pushed"
    pushed.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (pushed / name).write_bytes(found[name])
    own, other = (dict(load_model(str(path), "cpu").named_parameters()) for path in (adapter, pushed))
    assert all(torch.equal(weights, other[name]) for name, weights in own.items())


def test_the_real_library_loads_what_was_pushed(run: Run, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed (pip install '.[data]')")
    run_push(run, "me/data", PushConfig(out=tmp_path / "data"), Silent())
    for subset, rows in (("dialogues", 6), ("candidates", 1), ("preferences", 1), ("pairs", 5)):
        loaded = datasets.load_dataset(str(tmp_path / "data"), subset, split="train", cache_dir=str(tmp_path / "cache"))
        assert len(loaded) == rows
        assert list(loaded.features) == [feature["name"] for feature in FEATURES[subset]]
    assert loaded[1]["prompt"] == [{"role": "system", "content": "s"}, {"role": "user", "content": "5 and 7"}]


def test_a_model_is_pushed_with_its_card(run: Run, hub: WritableHub) -> None:
    code, _, err = push(hub, run.path, "me/agent", "--actor", "last", "--public")
    assert code == 0, err
    found = hub.repositories["models/me/agent"]
    assert not found.private
    assert found.messages == ["Push by sweet"]
    assert "model.safetensors" in found.files
    assert "optimizer.pt" not in found.files
    actor = run.file(run.artifact("actor-1"))
    assert found.files["model.safetensors"] == (actor / "model.safetensors").read_bytes()
    card = found.files["README.md"].decode()
    for part in (
        "by the method `sweet`",
        "`pairs-1`",
        "`rollouts-1`",
        "lr 0.1",
        "sweet rollout runs/played",
        "vllm serve",
    ):
        assert part in card
    assert "not evaluated in this run" in card
    assert "license of the base `agent` is not known" in card
    assert str(actor.parent.parent) not in card
    again, _, err = push(hub, run.path, "me/agent", "--actor", "actor-1")
    assert again == 0, err
    assert len(found.messages) == 2, "an existing repository gets another commit"


def test_the_card_alone_can_be_written_and_no_hub_is_asked(run: Run, hub: WritableHub, tmp_path: Path) -> None:
    code, out, err = push(hub, run.path, "me/agent", "--actor", "last", "--out", tmp_path / "card", "--json")
    assert code == 0, err
    assert [file.name for file in (tmp_path / "card").iterdir()] == ["README.md"], "the card, and no weights"
    assert json.loads(out)["metrics"]["url"] is None
    assert hub.requests == []
    assert "nothing was pushed" in err
    assert "(--license)" in err


def test_who_may_not_write_is_told_so_and_no_token_is_shown(run: Run, hub: WritableHub) -> None:
    wrong = "hf_anotherSecretThatIsWrong987654"
    code, out, err = push(hub, run.path, "me/data", token=wrong)
    assert code != 0
    assert "does not let you write" in err
    assert "hf auth login" in err
    assert wrong not in out + err
    hub.broken = True
    code, out, err = push(hub, run.path, "me/data")
    assert code != 0
    assert "answered with an error" in err
    assert TOKEN not in out + err
    hub.broken, hub.full = False, True
    code, out, err = push(hub, run.path, "me/data")
    assert code == 2
    assert "storage limit reached" in " ".join(err.replace("│", "").split())


@pytest.mark.parametrize("answer", ["<html>Log in to the network", '{"message": 7}', "[1, 2]", '"\\ud800"', ""])
def test_an_address_that_is_no_hub_is_an_error_with_what_to_do(run: Run, hub: WritableHub, answer: str) -> None:
    hub.strange = answer.encode()
    code, out, err = push(hub, run.path, "me/data")
    assert code == 3, err
    assert "HF_ENDPOINT" in err
    assert TOKEN not in out + err


def test_an_evaluation_is_in_the_card_with_what_it_does_not_show(run: Run, tmp_path: Path) -> None:
    dialogues = [(one.model_copy(update={"id": f"e{one.id}"}), reward) for one, reward in make_dialogues(4, 1)]
    rollouts = put(
        run,
        "rollout",
        "rollouts",
        [one for one, _ in dialogues],
        agent="actor-1",
        tasks=HOSTILE,
        split="test",
        sim="scripted",
    )
    put(run, "eval", "scores", [score(one, reward) for one, reward in dialogues], [rollouts], scorer="strict")
    run_push(run, "me/agent", PushConfig(actor="actor-1", out=tmp_path / "card"), Silent())
    card = (tmp_path / "card" / "README.md").read_text()
    assert "license: mit" not in card.split("---")[1]
    assert "\n---\nlicense" not in card.split("---", 2)[2]
    assert "<b>" not in card.replace("`", "", 0).split("## Results")[0]
    assert "## Lineage" in card
    assert "not compared with the model that it was trained from" in card
    assert "scripted human alone" in card


def test_what_was_not_shown_follows_from_the_results(run: Run) -> None:
    report, manifest = collect(run), run.manifest()

    def not_shown(results: Sequence[ScoresFact]) -> str:
        return markdown("not_shown.md.j2", **measurements(results, [], manifest))

    assert "not evaluated" in not_shown([]).splitlines()[0]
    scored = [one.model_copy(update={"trained_on_tasks": 0, "sim": "scripted"}) for one in report.results]
    unseen = not_shown(scored)
    assert "trained on them" not in unseen
    assert "scripted human alone" in unseen
    some = not_shown([scored[0].model_copy(update={"trained_on_tasks": 2, "sim": "model"})])
    assert "some that it was trained on" in some
    assert "with no person" in some


@pytest.mark.parametrize("name", ["data", "a/b/c", "me/", "/x", "me/..", "me/da ta", "me/" + "x" * 120])
def test_names_that_are_no_repository_are_refused(run: Run, name: str) -> None:
    with pytest.raises(UsageError, match="repository"):
        run_push(run, name, PushConfig(out=Path("x")), Silent())


def test_what_cannot_be_pushed_is_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        run_push(run, "me/agent", PushConfig(actor="actor-9", out=tmp_path / "x"), Silent())
    with pytest.raises(UsageError, match="no finished dialogues"):
        run_push(Run.create(tmp_path / "new"), "me/data", PushConfig(out=tmp_path / "x"), Silent())
    (run.file(run.artifact("actor-1")) / "more.json").symlink_to("/etc/passwd")
    with pytest.raises(Exception, match="link"):
        run_push(run, "me/agent", PushConfig(actor="last", out=tmp_path / "x"), Heard())


@pytest.mark.parametrize(
    ("base", "named"),
    [("org/model", True), ("micro", False), ("org/a b", False), ("a|</script>\n# H/x", False), ("../x", False)],
)
def test_a_card_names_only_a_base_that_the_hub_could_have(run: Run, base: str, named: bool) -> None:
    """It refuses a card with any other."""
    trained = Trained(run.artifact("actor-1"), base, None, "", adapter=False)
    assert trained.base_on_hub == (base if named else None)


def test_names_lose_the_folders_of_this_machine() -> None:
    assert public_name("/home/me/tasks.jsonl / test") == "tasks.jsonl / test"
    assert public_name("/models/a, org/b:terse") == "a, org/b:terse"
    assert public_name("~/x/model") == "model"
    assert public_name("~nobody-of-this-name/model") == "model"
    assert public_name("x" * 9000) == "x" * 9000
    assert public_name("a\0b/c") == "a\0b/c"
    assert public_name("micro / test") == "micro / test"
