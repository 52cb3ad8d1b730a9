"""What a stranger's settings would start is asked for once, and the user's own is not."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sweet.errors import UsageError
from sweet.inspection.next_commands import suggest_next
from sweet.online.config import TrainOnlineConfig
from sweet.pipeline.config import LoopConfig
from sweet.pipeline.recipe import resolve, write_run
from sweet.plugins import CREDIT, TASKS
from sweet.ranking.config import RankConfig
from sweet.rollouts.config import RolloutConfig
from sweet.runs import trust
from sweet.runs.manifest import Kind
from sweet.runs.run import Run
from sweet.runs.stages import RECIPE, STAGES, stage_named
from sweet.runs.trust import risks, unlisted
from sweet.scoring.config import EvalConfig
from sweet.stages.base import PlannedConfig, Silent, StageConfig
from sweet.stages.resuming import with_settings_of_unfinished
from sweet.training.config import TrainActorConfig, TrainCriticConfig

EVIL = "http://evil.example/v1"


@pytest.fixture(autouse=True)
def mine(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The home of a user who has begun nothing yet."""
    use_home(tmp_path_factory.mktemp("mine"), monkeypatch)


def use_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))


def stopped(path: Path, stage: str, config: PlannedConfig) -> Run:
    """A run in which a stage was interrupted while it wrote."""
    run = Run.create(path, task="code")
    made: Kind = next(one.makes for one in STAGES if one.name == stage)
    with suppress(KeyboardInterrupt), run.attempt(stage, config) as attempt:
        path = attempt.start_artifact(made).path
        if not path.is_dir():
            path.write_text("{}\n")
        raise KeyboardInterrupt
    return run


def foreign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stage: str, config: PlannedConfig) -> Run:
    """A run that somebody else has begun."""
    with monkeypatch.context() as theirs:
        use_home(tmp_path / "theirs", theirs)
        return stopped(tmp_path / "run", stage, config)


def resume(run: Run, stage: str, **given: Any) -> Any:
    known = stage_named(stage)
    assert known is not None
    return with_settings_of_unfinished(run, stage, known.config(resume=True, **given), Silent())[1]


SETTINGS: list[tuple[str, PlannedConfig, str]] = [
    ("rollout", RolloutConfig(agent_url=[EVIL], agent="m"), f"your API key to {EVIL} (--agent-url)"),
    ("rollout", RolloutConfig(sim_url=[EVIL], sim="m"), f"your API key to {EVIL} (--sim-url)"),
    (
        "rank",
        RankConfig(judge="llm", judge_model="m", judge_url=[EVIL]),
        f"your API key to {EVIL} (--judge-url)",
    ),
    ("rollout", RolloutConfig(vllm_options=["--trust-remote-code"], agent="evil/m"), "vllm with --trust-remote-code"),
    ("rollout", RolloutConfig(vllm_options=["--trust-remote-code"], agent="evil/m"), "load the model evil/m, with"),
    ("rollout", RolloutConfig(vllm_options=["--tool-parser-plugin", "p.py"]), "vllm with --tool-parser-plugin p.py"),
    ("train-critic", TrainCriticConfig(engine="deepspeed", hostfile=Path("hosts")), "on the hosts of hosts"),
    ("train-actor", TrainActorConfig(engine="openrlhf", model="evil/m"), "load the model evil/m, with its code"),
    ("eval", EvalConfig(ray="evil.example:6379"), "join the Ray cluster evil.example:6379"),
    ("rollout", RolloutConfig(harness="python evil.py"), "start python evil.py (--harness)"),
    ("train-online", TrainOnlineConfig(harness="python evil.py"), "start python evil.py (--harness)"),
    ("eval", EvalConfig(sandbox="unsafe"), "run the code of answers without a jail"),
    ("train-actor", TrainActorConfig(log_to=("wandb",)), "with your key to Weights & Biases"),
    ("train-actor", TrainActorConfig(engine="tinker"), "the service of TINKER_BASE_URL, which bills them (--engine)"),
    ("rollout", RolloutConfig(agent="m", local_engine="tinker"), "TINKER_BASE_URL, which bills them (--local-engine)"),
    ("train-online", TrainOnlineConfig(sim_url=[EVIL], sim="m"), f"to {EVIL} (--sim-url)"),
]


@pytest.mark.parametrize(("stage", "config", "clause"), SETTINGS)
def test_resuming_a_strangers_stage_lists_what_it_would_start_until_it_is_trusted(
    stage: str, config: PlannedConfig, clause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = foreign(monkeypatch, tmp_path, stage, config)
    with pytest.raises(UsageError) as error:
        resume(run, stage)
    assert clause in error.value.what
    assert "--trust (once)" in (error.value.fix or "")
    trusted = resume(run, stage, trust=True)
    assert trusted.model_dump(exclude={"resume"}) == config.model_dump(exclude={"resume"})
    assert resume(run, stage) == trusted, "it is remembered"


@pytest.mark.parametrize(("stage", "config", "_clause"), SETTINGS)
def test_ones_own_stage_is_resumed_wherever_the_run_lies(
    stage: str, config: PlannedConfig, _clause: str, tmp_path: Path
) -> None:
    run = stopped(tmp_path / "run", stage, config)
    resume(run, stage)
    shutil.copytree(run.path, tmp_path / "copy")
    resume(Run.open(run.path.rename(tmp_path / "moved")), stage)
    resume(Run.open(tmp_path / "copy"), stage)


def test_settings_that_start_nothing_need_no_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = RolloutConfig(agent="org/model", vllm_options=["--max-model-len", "4096", "-tp=2"], num_tasks=3)
    resume(foreign(monkeypatch, tmp_path, "rollout", plain), "rollout")


def edit(run: Run, **settings: object) -> None:
    """Change the settings of the first attempt, as a stranger may who sends the run back."""
    manifest = json.loads((run.path / "manifest.json").read_text())
    manifest["attempts"][0]["config"] |= settings
    (run.path / "manifest.json").write_text(json.dumps(manifest))


def test_a_run_that_was_changed_is_a_strangers(tmp_path: Path) -> None:
    run = stopped(tmp_path / "run", "rollout", RolloutConfig(agent="m", sim="m", sim_url=["http://localhost:8001/v1"]))
    edit(run, agent_url=[EVIL])
    with pytest.raises(UsageError, match=r"evil\.example"):
        resume(run, "rollout")
    edit(run, agent_url=[], trust=True, sim_url=[EVIL, "http://localhost:8001/v1"])
    with pytest.raises(UsageError, match=r"evil\.example"):
        resume(run, "rollout")
    edit(run, sim_url=["http://localhost:8001/v1"])
    resume(run, "rollout")


def test_a_file_counts_with_its_content(tmp_path: Path) -> None:
    model, plugin = tmp_path / "model", tmp_path / "plugin.py"
    model.mkdir()
    plugin.write_text("1")
    options = [f"--tool-parser-plugin={plugin}"]
    run = stopped(tmp_path / "run", "rollout", RolloutConfig(agent=str(model), vllm_options=options))
    (model / "modeling.py").write_text("import os")
    with pytest.raises(UsageError, match=r"load the model"):
        resume(run, "rollout")
    (model / "modeling.py").unlink()
    resume(run, "rollout")
    plugin.write_text("2")
    with pytest.raises(UsageError, match=r"plugin\.py"):
        resume(run, "rollout")


def test_what_the_user_gives_needs_no_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = foreign(monkeypatch, tmp_path, "rollout", RolloutConfig(sim="m", sim_url=[EVIL]))
    assert resume(run, "rollout", sim_url=["http://mine/v1"]).sim_url == ["http://mine/v1"]
    assert resume(run, "rollout", sim_url=[EVIL]).sim_url == [EVIL]
    with pytest.raises(UsageError, match=r"load the model m, with its code"):
        resume(run, "rollout", sim_url=[EVIL], vllm_options=["--trust-remote-code"])
    with pytest.raises(UsageError, match=r"evil\.example"):
        resume(run, "rollout")


def test_next_commands_do_not_repeat_what_a_stranger_would_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rolled_out(path: Path) -> Run:
        run = Run.create(path, task="code")
        config = RolloutConfig(agent="m", agent_url=[EVIL], sim="m", sim_url=[EVIL], vllm_options=["--x"], max_turns=3)
        with run.attempt("rollout", config) as attempt:
            draft = attempt.start_artifact("rollouts")
            draft.path.write_text("")
            attempt.finish_artifact(draft, rows=0)
        return run

    own = " ".join(suggest_next(rolled_out(tmp_path / "own").manifest(), "RUN"))
    assert EVIL in own
    with monkeypatch.context() as theirs:
        use_home(tmp_path / "theirs", theirs)
        run = rolled_out(tmp_path / "run")
    use_home(tmp_path / "another", monkeypatch)
    found = " ".join(suggest_next(run.manifest(), "RUN"))
    assert "--max-turns 3" in found
    assert EVIL not in found
    assert "--x" not in found


@pytest.mark.parametrize("reason", ["read-only", "none"])
def test_without_a_home_that_can_be_written_trust_is_asked_for_each_time(
    reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = foreign(monkeypatch, tmp_path, "rollout", RolloutConfig(sim="m", sim_url=[EVIL]))
    if reason == "none":

        def no_account(uid: int) -> None:
            raise KeyError(uid)

        monkeypatch.delenv("HOME")
        monkeypatch.delenv("XDG_DATA_HOME", raising=False)
        monkeypatch.setattr("pwd.getpwuid", no_account)
    else:
        (tmp_path / "file").write_text("")
        use_home(tmp_path / "file", monkeypatch)
    for _ in range(2):
        with pytest.raises(UsageError) as error:
            resume(run, "rollout")
        assert "each time, as it cannot be remembered: " in (error.value.fix or "")
        assert resume(run, "rollout", trust=True).sim_url == [EVIL]


RECIPES = [
    (f'[train]\nsim-url = ["{EVIL}"]', EVIL),
    (f'agent-url = ["{EVIL}"]', EVIL),
    (f'[rank]\njudge = "llm"\njudge-model = "m"\njudge-url = ["{EVIL}"]', EVIL),
    (f'[rank.llm]\njudge-url = ["{EVIL}"]', EVIL),
    (f'[evaluation]\njudge-url = ["{EVIL}"]', EVIL),
    ('[train-critic]\nengine = "deepspeed"\nhostfile = "hosts"', "on the hosts of hosts"),
    ('[train-actor.rft]\nengine = "openrlhf"', "OpenRLHF"),
    ('[eval]\nray = "evil.example:6379"', "join the Ray cluster"),
    ('sandbox = "unsafe"', "without a jail"),
    ('[rollout]\nlocal-engine = "tinker"', "TINKER_BASE_URL"),
    ('[train]\nlog-to = ["wandb"]', "Weights & Biases"),
]


@pytest.mark.parametrize(("text", "clause"), RECIPES)
def test_a_recipe_needs_trust_once_and_a_runs_own_none(
    text: str, clause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text(text)
    for config, run in ((LoopConfig(recipe=str(file)), None), (LoopConfig(), tmp_path)):
        with pytest.raises(UsageError) as error:
            resolve(config, run)
        assert clause in error.value.what, "also of a run that a stranger has made"
    found = resolve(LoopConfig(recipe=str(file), trust=True), None)
    assert resolve(LoopConfig(recipe=str(file)), None) == found, "it is remembered"
    write_run(found, tmp_path)
    resolve(LoopConfig(), tmp_path)
    use_home(tmp_path / "another", monkeypatch)
    with pytest.raises(UsageError, match=r"not given by you"):
        resolve(LoopConfig(), tmp_path)


VLLM = [
    '[servers.agent]\noptions = ["--trust-remote-code"]',
    'vllm-options = ["--max-model-len", "99", "--middleware=evil.Middleware"]',
    '[rank]\nvllm-options = ["--max-model-len", "--trust_remote_code"]',
]


@pytest.mark.parametrize("text", VLLM)
def test_options_for_vllm_of_a_file_are_those_that_tune_it(text: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    for trusted in (False, True):
        with pytest.raises(UsageError, match=r"Only options that tune vllm") as error:
            resolve(LoopConfig(recipe=str(file), trust=trusted), None)
        assert "--set" in (error.value.fix or "")
    (tmp_path / RECIPE).write_text(text)
    with pytest.raises(UsageError, match=r"start vllm with"):
        resolve(LoopConfig(), tmp_path)
    resolve(LoopConfig(trust=True), tmp_path)
    resolve(LoopConfig(), tmp_path)


def test_options_of_the_command_line_are_the_users_own(tmp_path: Path) -> None:
    options = 'servers.agent.options=["--trust-remote-code"]'
    found = resolve(LoopConfig(set_=[options], sim_url=[EVIL], sim="m"), None)
    write_run(found, tmp_path)
    assert resolve(LoopConfig(), tmp_path) == found
    file = tmp_path / "mine.toml"
    file.write_text(f'[servers.agent]\noptions = ["--x"]\n[train]\nsim-url = ["{EVIL}"]\nagent = "evil/m"')
    with pytest.raises(UsageError, match=r"load the model evil/m"):
        resolve(LoopConfig(recipe=str(file), set_=[options], sim_url=["http://mine/v1"]), None)
    given = LoopConfig(recipe=str(file), set_=[options], sim_url=["http://mine/v1"], agent="mine/m")
    assert resolve(given, None).train.agent == "mine/m"


def test_a_recipe_cannot_trust_itself(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    for text in ("[train]\ntrust = true", "[rollout]\ntrust = true"):
        file.write_text(text)
        with pytest.raises(UsageError, match=r"trust"):
            resolve(LoopConfig(recipe=str(file)), None)


@pytest.mark.parametrize(
    ("options", "others"),
    [
        ("--max-model-len 4096 --dtype=bfloat16 -tp 2 --enforce-eager", ""),
        ("--trust-remote-code", "--trust-remote-code"),
        ("--trust_remote_code", "--trust_remote_code"),
        ("--trust-remote", "--trust-remote"),
        ("--dtype --trust-remote-code", "--trust-remote-code"),
        ("--max-model-len 4096 evil/model", "evil/model"),
        ("--enforce-eager --config evil.yaml --dtype auto", "--config evil.yaml"),
        ("--reasoning-parser ./evil.py", "./evil.py"),
        ("--max-model-len=1,x", "--max-model-len=1,x"),
        ("--hf-overrides.auto_map x", "--hf-overrides.auto_map x"),
        ("evil/model --dtype auto", "evil/model"),
    ],
)
def test_options_for_vllm_beside_harmless_ones_are_found(options: str, others: str) -> None:
    assert unlisted(options.split()) == others.split()


def test_code_of_installed_packages_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(group: str) -> Mapping[str, list[Any]]:
        class Plugin:
            ours = False

            def __str__(self) -> str:
                return f"{group}-package 1.0"

        return {"other": [Plugin()]}

    assert [*risks({"task": "tau2:retail"})] == ["play the environment retail (--task)"]
    monkeypatch.setattr(trust, "plugins", installed)
    assert [*risks({"task": "other"})] == [f"import the kind of task other of the package {TASKS}-package 1.0 (--task)"]
    assert f"credit rule other of the package {CREDIT}" in next(iter(risks({"algorithm": "other"})))
    assert not risks({"task": "code", "algorithm": "rft"})


HARMLESS_TEXTS = {
    # names of models and artifacts: their weights, templates and configurations are read, without code
    *("agent", "sim", "model", "judge_model", "reference", "similarity", "critic", "from_", "rollouts", "replies"),
    # files that are read as texts and data
    *("tasks", "prompts", "persona", "persona_file", "judge_prompt", "prices", "compare"),
    # what is no name of a file or an address
    *("split", "name", "window", "thought_marks", "lora_target", "rule_option", "recipe", "set_"),
    # where a person plays: of the call, a recorded one is not used
    "serve_at",
}
"""The settings with free texts that start nothing."""


def test_every_setting_that_may_name_something_is_decided_about() -> None:
    configs: list[type[StageConfig]] = [*(stage.config for stage in STAGES), LoopConfig]
    texts = {
        name
        for config in configs
        for name, info in config.model_fields.items()
        if re.search(r"\bstr\b|Path", re.sub(r"Literal\[[^]]*\]", "", str(info.annotation)))
    }
    known = {*trust._RISKS, "vllm_options"}
    assert texts - known == HARMLESS_TEXTS
