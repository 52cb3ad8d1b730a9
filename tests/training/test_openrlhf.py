"""`--engine openrlhf`: the arguments and data for OpenRLHF, and the stage with a stand-in of its command."""

from __future__ import annotations

import importlib
import json
import runpy
import shutil
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from sweet.credit.base import Hyperparameters
from sweet.errors import SweetError, UsageError
from sweet.learn.openrlhf import PYTHON_VARIABLE, row
from sweet.learn.rows import Candidate, Pair
from sweet.learn.tokens import ChatEncoder
from sweet.llm.base import Reply
from sweet.llm.pretrained import absolute_name, model_path
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.tasks.base import Message
from sweet.training.config import TrainActorConfig, TrainCriticConfig
from sweet.training.openrlhf import arguments, command
from sweet.training.stage import plan_train_actor, run_train_actor, run_train_critic
from tests.learn.builders import TEMPLATES, build_tokenizer
from tests.learn.thinking import THINKING, play, thinking_tokenizer
from tests.stages.learn_runs import make_agent, make_run, put

USED = Hyperparameters(lr=3e-5, nll=0.01, epochs=2, batch=8)
ASKED = [Message(role="system", content="Ask."), Message(role="user", content="A price, please.")]
CHOSEN, REJECTED = Reply("What is the rate?"), Reply("5", finish_reason="length")


def pair(chosen: Reply = CHOSEN, rejected: Reply | None = REJECTED, **more: Any) -> Pair:
    fields: dict[str, Any] = {"id": "p0", "task_id": "task-0", "trajectory_id": "5-0-0", "turn": 1}
    sides = {"chosen": Candidate.of(chosen, 1.0), "rejected": rejected and Candidate.of(rejected, 0.0)}
    return Pair(**fields | {"observation": tuple(ASKED)} | sides | more)


def words(**options: Any) -> list[str]:
    """The arguments of a training with these options."""
    config = TrainActorConfig(engine="openrlhf", seed=7, **options)
    return arguments(config, USED, "base", 512, resume=config.resume)


def openrlhf(monkeypatch: pytest.MonkeyPatch) -> None:
    """The installed package without what it imports for GPUs alone."""
    pytest.importorskip("openrlhf", reason="OpenRLHF is not installed (pip install --no-deps openrlhf)")
    stand_ins: dict[str, dict[str, Any]] = {
        "openrlhf.models": {"Actor": None},
        "openrlhf.trainer.dpo_trainer": {"DPOTrainer": None},
        "openrlhf.trainer": {},
        "openrlhf.utils": {"get_strategy": None, "get_tokenizer": None, "__path__": [_folder("utils")]},
        "openrlhf.utils.utils": {"zero_pad_sequences": None},
        "openrlhf.datasets": {"RewardDataset": None, "__path__": [_folder("datasets")]},
        "openrlhf.datasets.utils": {
            "exist_and_not_none": lambda data, key: data.get(key) is not None,
            "blending_datasets": None,
        },
    }
    for name, held in stand_ins.items():
        module = types.ModuleType(name)
        vars(module).update(held)
        monkeypatch.setitem(sys.modules, name, module)


def _folder(name: str) -> str:
    spec = importlib.util.find_spec("openrlhf")
    assert spec is not None
    assert spec.submodule_search_locations
    return str(Path(spec.submodule_search_locations[0]) / name)


def test_openrlhfs_parser_accepts_our_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    openrlhf(monkeypatch)
    taken: list[Any] = []

    class Taken(Exception):
        pass

    def strategy(args: Any) -> None:
        taken.append(args)
        raise Taken

    sys.modules["openrlhf.utils"].get_strategy = strategy  # type: ignore[attr-defined]
    monkeypatch.setattr(
        sys,
        "argv",
        ["train_dpo", *words(offload="all", save_every=5, resume=True, label_smoothing=0.1, weight_decay=0.01)],
    )
    sys.modules.pop("openrlhf.cli.train_dpo", None)
    with pytest.raises(Taken):
        runpy.run_module("openrlhf.cli.train_dpo", run_name="__main__")
    (args,) = taken
    assert (args.adam.lr, tuple(args.adam.betas), args.max_norm) == (3e-5, (0.9, 0.95), 1.0)
    assert (args.model.label_smoothing, args.adam.weight_decay) == (0.1, 0.01)
    assert (args.model.beta, args.model.nll_loss_coef, args.train.max_epochs) == (0.1, 0.01, 2)
    assert (args.train.batch_size, args.train.seed, args.data.max_len) == (8, 7, 512)
    assert (args.lr_scheduler, args.lr_warmup_ratio, args.min_lr_ratio) == ("cosine_with_min_lr", 0.03, 0.1)
    assert (args.ds.zero_stage, args.ds.param_dtype, args.ds.adam_offload, args.ref.offload) == (3, "bf16", True, True)
    assert (args.ckpt.output_dir, args.ckpt.save_steps, args.ckpt.load_enable) == ("model", 5, True)
    assert args.ref.model_name_or_path == args.model.model_name_or_path == "base"
    assert not args.data.apply_chat_template


@pytest.mark.parametrize("template", TEMPLATES)
def test_openrlhf_encodes_our_rows_to_the_ids_of_the_other_engines(
    template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    openrlhf(monkeypatch)
    preprocess = runpy.run_path(str(Path(_folder("datasets")) / "reward_dataset.py"))["preprocess_data"]
    tokenizer = build_tokenizer(TEMPLATES[template])
    encoder = ChatEncoder(tokenizer)
    written = row(encoder, pair())
    prompt, chosen, rejected, _ = preprocess(
        written, prompt_key="prompt", chosen_key="chosen", rejected_key="rejected", is_dpo=True
    )
    sequences, _ = encoder.turn(ASKED, [CHOSEN, REJECTED], turn=1, name="t")
    for text, sequence in zip((chosen, rejected), sequences, strict=True):
        assert tuple(tokenizer(prompt + text, add_special_tokens=False)["input_ids"]) == sequence.ids
    assert len(tokenizer(prompt, add_special_tokens=False)["input_ids"]) == sequences[0].spans[0].start


@pytest.mark.parametrize("family", THINKING)
def test_a_thinking_agents_pair_is_written_as_the_text_of_the_ids_that_the_other_engines_learn(family: str) -> None:
    """The first side as it was sampled, the other of an import without ids, and both without them."""
    tokenizer = thinking_tokenizer(family)
    encoder, said = ChatEncoder(tokenizer), play(tokenizer, family, 2)
    index = said.agent_turns[1]
    sampled, prompt = Reply.of(said.dialogue_history[index]), said.prompt_ids(index)
    rendered = Reply(sampled.text, thought="It is 5 per hour.")
    cut_off = Reply("", finish_reason="length", thought="It is 5 per")
    for chosen, rejected in ((sampled, rendered), (rendered, cut_off), (sampled, sampled)):
        observation = said.observation(index, None)
        written = row(encoder, pair(chosen, rejected, observation=tuple(observation), prompt_token_ids=prompt))
        sequences, _ = encoder.turn(observation, [chosen, rejected], turn=index, name="t", prompt=prompt)
        texts = [written["prompt"] + written[side] for side in ("chosen", "rejected")]
        assert texts == [tokenizer.decode(sequence.ids) for sequence in sequences]
        assert [written["prompt"]] * 2 == [tokenizer.decode(s.ids[: s.spans[0].start]) for s in sequences]


def test_the_command_is_deepspeeds_launcher_with_its_module() -> None:
    found = command("py", TrainActorConfig(engine="openrlhf", devices=8, hostfile=Path("/hosts")), ["--seed"])
    assert found[:5] == ["py", "-m", "deepspeed.launcher.runner", "--hostfile=/hosts", "--num_gpus=8"]
    assert found[5:] == ["--module", "openrlhf.cli.train_dpo", "--seed"]
    assert all("," not in word and "@" not in word for word in words()), "it would cut paths there"


STAND_IN = """#!{python}
import json, pathlib, shutil, sys
words = sys.argv[1:]
if "-c" in words:
    print("0.11.0")
elif "--fail" in pathlib.Path("{state}").read_text():
    sys.exit("CUDA out of memory")
else:
    told = dict(zip(words, words[1:]))
    rows = [json.loads(line) for line in open(told["--data.dataset"])]
    shutil.copytree(told["--model.model_name_or_path"], told["--ckpt.output_dir"])
    pathlib.Path("{state}").write_text(json.dumps([words, rows]))
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python that answers for OpenRLHF; the file in which it tells what it was given."""
    state, program = tmp_path / "state", tmp_path / "python"
    state.write_text("")
    program.write_text(STAND_IN.format(python=sys.executable, state=state))
    program.chmod(0o755)
    monkeypatch.setenv(PYTHON_VARIABLE, str(program))
    return state


def with_pairs(folder: Path, **more: Any) -> Run:
    agent = make_agent(folder / "agent")
    run = make_run(folder, agent, tasks=2)
    (rollouts,) = run.manifest().of_kind("rollouts", "done")
    put(run, "pair", "pairs", [pair(id=f"p{number}", **more) for number in range(20)], [rollouts])
    return run


def test_the_stage_writes_the_pairs_and_moves_the_model_to_the_actor(tmp_path: Path, stand_in: Path) -> None:
    run = with_pairs(tmp_path)
    result = run_train_actor(run, TrainActorConfig(engine="openrlhf", device="cpu", devices=2), Silent())
    words, told = json.loads(stand_in.read_text())
    assert len(told) == result.metrics.examples == 20
    assert "--num_gpus=2" in words
    actor = run.file(result.artifacts[0])
    assert (actor / "config.json").is_file()
    assert not (actor / "openrlhf").exists()
    assert run.manifest().attempts[-1].environment["openrlhf"] == "0.11.0"


def test_a_relative_model_path_is_resolved_before_openrlhf_starts(
    tmp_path: Path, stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = with_pairs(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(PYTHON_VARIABLE, "./python")
    for model in ("agent", "micro"):
        run_train_actor(run, TrainActorConfig(engine="openrlhf", device="cpu", model=model), Silent())
        words, _ = json.loads(stand_in.read_text())
        assert words[words.index("--model.model_name_or_path") + 1] == absolute_name(model_path(model))
        assert words[words.index("--ref.model_name_or_path") + 1].startswith("/")


def test_fewer_pairs_than_a_step_are_refused(tmp_path: Path, stand_in: Path) -> None:
    run = with_pairs(tmp_path)
    config = TrainActorConfig(engine="openrlhf", device="cpu", batch=21)
    assert plan_train_actor(run, config, Silent()).as_json()["steps"] == 0
    with pytest.raises(UsageError, match="20 pairs"):
        run_train_actor(run, config, Silent())
    assert plan_train_actor(run, config.model_copy(update={"batch": 8, "epochs": 3}), Silent()).as_json()["steps"] == 6


def test_replies_without_a_rejected_one_are_refused(tmp_path: Path, stand_in: Path) -> None:
    run = with_pairs(tmp_path, rejected=None)
    with pytest.raises(UsageError, match="compares two replies, and p0 has one") as caught:
        run_train_actor(run, TrainActorConfig(engine="openrlhf", device="cpu"), Silent())
    assert "--unpaired omit" in str(caught.value.fix)
    assert not run.manifest().of_kind("actor"), "before anything is written"


def test_a_failure_is_reported_with_the_last_lines_of_its_log(tmp_path: Path, stand_in: Path) -> None:
    run = with_pairs(tmp_path)
    stand_in.write_text("--fail")
    with pytest.raises(SweetError, match="CUDA out of memory"):
        run_train_actor(run, TrainActorConfig(engine="openrlhf", device="cpu"), Silent())
    assert run.manifest().artifacts[-1].status == "partial"


def test_a_training_that_is_stopped_when_its_files_are_removed_is_finished_and_not_done_again(
    tmp_path: Path, stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, config = with_pairs(tmp_path), TrainActorConfig(engine="openrlhf", device="cpu", resume=True)
    remove = shutil.rmtree

    def stopped(folder: Path, **how: Any) -> None:
        remove(folder, **how)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("sweet.training.openrlhf.shutil.rmtree", stopped)
        with pytest.raises(KeyboardInterrupt):
            run_train_actor(run, config, Silent())
    stand_in.write_text("--fail")
    actor = run_train_actor(run, config, Silent()).artifacts[0]
    assert actor.status == "done"
    assert (run.file(actor) / "config.json").is_file()


def test_unsupported_options_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = with_pairs(tmp_path)
    with pytest.raises(UsageError, match="the critic have none"):
        run_train_critic(run, TrainCriticConfig(engine="openrlhf"), Silent())
    with pytest.raises(UsageError, match="rft have none"):
        run_train_actor(run, TrainActorConfig(engine="openrlhf", algorithm="rft"), Silent())
    with pytest.raises(UsageError, match="no credit rule called 'rfd'"):
        run_train_actor(run, TrainActorConfig(engine="openrlhf", algorithm="rfd"), Silent())
    with pytest.raises(UsageError, match="of the whole dialogue"):
        run_train_actor(run, TrainActorConfig(engine="openrlhf", protocol="upstream"), Silent())
    with pytest.raises(UsageError, match="a loss of its own"):
        run_train_actor(run, TrainActorConfig(engine="openrlhf", rule_option=["likelihood=sum"]), Silent())
    (tmp_path / "adapter").mkdir()
    told = {"peft_type": "LORA", "base_model_name_or_path": str(tmp_path / "agent")}
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(told))
    with pytest.raises(UsageError, match="LoRA adapter"):
        run_train_actor(
            run, TrainActorConfig(engine="openrlhf", device="cpu", model=str(tmp_path / "adapter")), Silent()
        )
    monkeypatch.setenv(PYTHON_VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="cannot be run"):
        run_train_actor(run, TrainActorConfig(engine="openrlhf", device="cpu"), Silent())
