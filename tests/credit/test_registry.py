"""Credit rules of other packages: they are found and checked, and errors name the package and the method."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sweet.cli.app import run as sweet
from sweet.credit.names import RULES, rule_names
from sweet.credit.registry import rule_class
from sweet.errors import SweetError, UsageError
from sweet.inspection.doctor import check_rules
from sweet.inspection.next_commands import suggest_next
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.training.config import TrainActorConfig
from sweet.training.stage import run_train_actor
from tests.cli.completing import offered
from tests.learn.builders import build_trajectory
from tests.packages import write_package
from tests.stages.learn_runs import make_agent, make_run, put

GOOD = """
from sweet.credit.base import Batch, Credit, CreditRule, Hyperparameters
from sweet.learn.components import Objective, PolicyGradient

class Rule(CreditRule):
    name = "thirds"
    reads = "scores"
    large = small = Hyperparameters(lr=1e-4, nll=0.0, epochs=1, batch=8)
    scale: float = 1.0

    def objective(self, beta, nll, protocol):
        return Objective(None, nll, policy=PolicyGradient())

    def credit(self, batch, models):
        return [Credit(name, policy={1: self.scale * reward}) for name, reward in batch.rewards.items()]
"""

Install = Callable[..., None]


def replaced(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Make a package of one module with the rule `thirds` importable."""
    number = iter(range(100))

    def put(source: str, name: str = "sweet-thirds", point: str = "Rule", rule: str = "thirds") -> None:
        # Another module name each time: what was imported once is not read again.
        module = f"{name}-{tmp_path.name}-{next(number)}".replace("-", "_")
        site = tmp_path / module
        for folder in write_package(site, name, "", {rule: f"{module}:{point}"}, group="sweet.credit"):
            monkeypatch.syspath_prepend(folder)
        (site / f"{module}.py").write_text(source)

    return put


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path, make_agent(tmp_path / "agent"), tasks=2)


def config(*options: str) -> TrainActorConfig:
    return TrainActorConfig(algorithm="thirds", rule_option=list(options), device="cpu")


def test_a_rule_of_another_package_trains(install: Install, run: Run) -> None:
    install(GOOD)
    assert rule_names() == [*RULES, "thirds"]
    result = run_train_actor(run, config("scale=0.5"), Silent())
    meta = result.artifacts[0].meta
    assert (meta["algorithm"], meta["rule_option"], meta["lr"]) == ("thirds", ["scale=0.5"], 1e-4)
    assert result.metrics.ratio is not None
    assert rule_class("thirds").__name__ == "Rule"


def test_it_is_completed_and_listed(install: Install, tmp_path: Path) -> None:
    assert check_rules()[0].found.startswith("only the built-in ones: sweet, multi-turn-dpo, ")
    install(GOOD)
    [check] = check_rules()
    assert (check.name, check.status, check.found) == ("--algorithm thirds", "ok", "sweet-thirds 1.0")
    assert offered("train-actor", "--algorithm", "th") == ["thirds"]


def test_the_next_command_repeats_a_rule_that_is_not_installed_any_more(
    install: Install, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(GOOD)
    actor = run_train_actor(run, config(), Silent()).artifacts[0]
    played = [build_trajectory(f"new-{i}", turns=2, task=f"task-{i}") for i in range(2)]
    rollouts = put(run, "rollout", "rollouts", played, agent=str(run.file(actor)), split="train", tasks="toy")
    rows = [{"id": d.id, "task_id": d.task_id, "reward": i, "passed": i, "total": 1, "outcome": "failed"}
            for i, d in enumerate(played)]  # fmt: skip
    put(run, "eval", "scores", rows, [rollouts])
    monkeypatch.setattr("sweet.plugins.entry_points", lambda group: ())
    assert rule_names() == [*RULES]
    found = suggest_next(run.manifest(), "RUN")
    assert any("train-actor" in line and "--algorithm thirds" in line for line in found), found


def test_without_its_package_a_rule_is_unknown_and_the_nearest_is_suggested(install: Install) -> None:
    with pytest.raises(UsageError, match="no credit rule called 'thirds'") as error:
        rule_class("thirds")
    assert "install the package that has 'thirds'" in str(error.value.fix)
    with pytest.raises(UsageError) as error:
        rule_class("grppo")
    assert error.value.fix == "--algorithm grpo"


def test_two_packages_of_one_rule(install: Install) -> None:
    install(GOOD)
    install(GOOD, name="sweet-even")
    with pytest.raises(UsageError, match=r"sweet-even 1\.0, sweet-thirds 1\.0") as error:
        rule_class("thirds")
    assert error.value.fix == "pip uninstall sweet-thirds"


def test_built_in_names_are_reserved(install: Install) -> None:
    install(replaced('"thirds"', '"grpo"'), rule="grpo")
    assert rule_class("grpo").__module__ == "sweet.credit.groups"
    [check] = check_rules()
    assert check.status == "problem"
    assert "has the name of a built-in one" in check.found


@pytest.mark.parametrize(
    ("source", "point", "said"),
    [
        ("import no_such_module", "Rule", "cannot be imported: ModuleNotFoundError"),
        ("1 / 0", "Rule", "cannot be imported: ZeroDivisionError"),
        ("raise SystemExit(3)", "Rule", "cannot be imported: SystemExit"),
        (GOOD, "Missing", "cannot be imported: AttributeError"),
        ("Rule = 3", "Rule", "is not a class derived from sweet.credit.base.CreditRule but 3"),
        (replaced('    reads = "scores"\n', ""), "Rule", "lacks reads"),
        (replaced("def credit(", "def other("), "Rule", "lacks credit"),
        (replaced('name = "thirds"', 'name = "even"'), "Rule", "calls itself 'even'"),
        (replaced('reads = "scores"', 'reads = "rewards"'), "Rule", "reads 'rewards', and there are rollouts, scores"),
        (replaced("Hyperparameters(lr=1e-4, nll=0.0, epochs=1, batch=8)", "8"), "Rule", "has int instead of Hyperpara"),
    ],
)
def test_a_rule_that_cannot_be_loaded_is_reported(install: Install, source: str, point: str, said: str) -> None:
    install(source, point=point)
    with pytest.raises(UsageError) as error:
        rule_class("thirds")
    assert "The credit rule 'thirds' (sweet-thirds 1.0) " in error.value.what
    assert said in error.value.what
    assert "entry point thirds = " in str(error.value.where)
    [check] = check_rules()
    assert (check.status, said in check.found, check.fix) == ("problem", True, "correct sweet-thirds")


def crediting(returned: str) -> str:
    head, _ = GOOD.split("        return [Credit(name")
    return head + f"        name = sorted(batch.rewards)[0]\n        return {returned}\n"


@pytest.mark.parametrize(
    ("method", "source", "said"),
    [
        ("objective", replaced("return Objective(None", "return 1 / 0 or Objective(None"), "raised ZeroDivisionError"),
        ("objective", replaced("return Objective(None", "return None and Objective(None"), "NoneType instead of Obj"),
        ("credit", crediting("batch.no_such"), "raised AttributeError"),
        ("credit", crediting("None"), "returned NoneType instead of list[Credit]"),
        ("credit", crediting("[3]"), "returned int instead of Credit"),
        ("credit", crediting("[Credit('elsewhere')]"), "a credit of 'elsewhere', which is no dialogue of the batch"),
        ("credit", crediting("[Credit(3.5)]"), "a credit of float instead of a dialogue's id"),
        ("credit", crediting("[Credit(name, policy={2: 1.0})]"), "weights of turn 2, which is none of the agent's"),
        ("credit", crediting("[Credit(name, policy={1: float('nan')})]"), "the weight nan, which is no finite number"),
        ("credit", crediting("[Credit(name, policy={1: ['a']})]"), "the weight 'a', which is no finite number"),
        ("credit", crediting("[Credit(name, likelihood=1e999)]"), "the weight inf, which is no finite number"),
    ],
)
def test_an_error_of_a_method_names_it_and_its_package(
    install: Install, run: Run, method: str, source: str, said: str
) -> None:
    install(source)
    with pytest.raises(SweetError) as error:
        run_train_actor(run, config(), Silent())
    assert f"{method} of the credit rule 'thirds' (sweet-thirds 1.0) " in error.value.what
    assert said in error.value.what
    if "raised" in said:
        assert "/sweet_thirds_test_an_error" in str(error.value.where)


def test_weights_of_tokens_that_do_not_fit_name_the_turn(install: Install, run: Run) -> None:
    install(crediting("[Credit(name, policy={1: [1.0, 2.0]})]"))
    with pytest.raises(UsageError, match="Its advantages are not those of its") as error:
        run_train_actor(run, config(), Silent())
    assert error.value.where == "5-0-0, turn 1"


def test_errors_meant_for_the_user_pass_unchanged(install: Install, run: Run) -> None:
    raising = "(_ for _ in ()).throw(UsageError('only with a moon'))"
    install("from sweet.errors import UsageError\n" + crediting(raising))
    with pytest.raises(UsageError, match=r"^only with a moon"):
        run_train_actor(run, config(), Silent())


@pytest.mark.usefixtures("workplace")
def test_an_error_of_a_rule_is_shown_without_traceback(
    install: Install, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    install(crediting("1 / 0"))
    assert sweet(["train-actor", str(run.path), "--algorithm", "thirds", "--device", "cpu"]) == 1
    errors = " ".join(capsys.readouterr().err.split())
    assert "credit of the credit rule 'thirds' (sweet-thirds 1.0) raised ZeroDivisionError" in errors
    assert "Traceback" not in errors
