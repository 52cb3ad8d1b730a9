"""Recipes: every option has one place, and what is written is what is read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.errors import InputError, SweetError, UsageError
from sweet.pipeline.config import LoopConfig
from sweet.pipeline.recipe import TABLES, packaged, read_run, resolve, write_run
from sweet.runs.stages import RECIPE
from sweet.stages.prices import Prices
from sweet.tasks.micro.family import MICRO
from tests.pipeline.reading import parse


def recipe(text: str) -> Any:
    return parse(text, "mine.toml")


def test_a_stage_gets_its_table_and_shared_keys() -> None:
    found = recipe('device = "cpu"\n[rank]\nfraction = 0.2\n[rollout]\ntop-p = 0.9\n[evaluation]\ntemperature = 0.0')
    assert found.of("rank") == {"fraction": 0.2, "device": "cpu"}
    assert found.of("rollout") == {"top_p": 0.9, "device": "cpu"}
    assert found.of("rollout", "evaluation") == {"top_p": 0.9, "device": "cpu", "temperature": 0.0}
    assert "device" not in found.of("pair")


@pytest.mark.parametrize(
    ("text", "where", "fix"),
    [
        ("[rank]\nfration = 0.2", "mine.toml, key rank.fration", "write rank.fraction"),
        ("[ranks]\nfraction = 0.2", "mine.toml, table ranks", "write rank"),
        ("fration = 0.2", "mine.toml, key fration", "write fraction"),
        ("[rank]\nfraction = 2", "mine.toml, key rank.fraction", "sweet rank --help"),
        ('[rollout]\nsplit = "test"', "mine.toml, key rollout.split", "omit it"),
        ('[rollout]\nagent = "x"', "mine.toml, key rollout.agent", "set agent in [train]"),
        ("[train]\nredo = true", "mine.toml, key train.redo", "omit it"),
        ("[prices.agent]\nprompt = -1", "mine.toml, key prices.agent.prompt", None),
        ("[evaluation]\nsamples = 3", "mine.toml, key evaluation.samples", "set samples in [train]"),
        ("[train-actor.sweat]\nlr = 0.1", "mine.toml, table train-actor.sweat", "write train-actor.sweet"),
        ("[train-actor.rft]\nlearning = 0.1", "mine.toml, key train-actor.rft.learning", "write train-actor.rft.lr"),
        (
            "[train-actor.rft]\nlr = -1",
            "mine.toml, key train-actor.rft.lr",
            "sweet train-actor --help",
        ),
        (
            '[train-actor.rft]\nalgorithm = "sweet"',
            "mine.toml, key train-actor.rft.algorithm",
            "set it in [train-actor]",
        ),
        ('[rank.random]\njudge = "oracle"', "mine.toml, key rank.random.judge", "set it in [rank]"),
        ("[rank.critic]\nfraction = 0.1", "mine.toml, table rank.critic", "write rank.oracle"),
        ("[pair.sweet]\npairs = 1", "mine.toml, key pair.sweet", "write pair.seed"),
        ("rollout = 3", "mine.toml, key rollout", "write [rollout]"),
        ("[[servers]]\ngpus = 3", "mine.toml, key servers", "write [servers]"),
        (
            "[train-actor]\nrule-option = {a = 1}",
            "mine.toml, table train-actor.rule-option",
            "write train-actor.rule-option = …",
        ),
        ("[rollout]\ntemperature = inf", "mine.toml, key rollout.temperature", "sweet rollout --help"),
        (f"[train-actor]\nseed = {2**47}", "mine.toml, key train-actor.seed", "sweet train-actor --help"),
    ],
)
def test_what_is_wrong_is_named(text: str, where: str, fix: str | None) -> None:
    with pytest.raises(UsageError) as error:
        recipe(text)
    assert (str(error.value.where), error.value.fix) == (where, fix)


def test_text_that_is_not_toml_is_refused_with_its_line() -> None:
    with pytest.raises(InputError, match="not TOML") as error:
        recipe("[rank]\nfraction 0.2")
    assert "2" in str(error.value.where)


@pytest.mark.parametrize("written", ["[servers]\nsim = 1", "[prices]\nagent = 1"])
def test_an_error_names_no_class_of_the_program(written: str) -> None:
    with pytest.raises(UsageError, match=r"^[a-z.]+: should be a valid dictionary, not 1\. · where"):
        recipe(written)


def test_an_empty_text_and_a_switch_are_no_values() -> None:
    with pytest.raises(UsageError, match=r"^rollout\.judge-model: must not be empty\. · where"):
        recipe('[rollout]\njudge_model = ""')
    with pytest.raises(UsageError, match=r"^train-actor\.lora: must be a value, not True\. · where"):
        recipe("[train-actor]\nlora = true")


@pytest.mark.parametrize("table", ["", "rollout", "train-actor.grpo", "servers.sim"])
def test_an_option_that_is_spelled_in_two_ways_is_refused(table: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f"{table and f'[{table}]'}\nmax-turns = 4\nmax_turns = 3", encoding="utf-8")
    with pytest.raises(UsageError, match="two ways") as error:
        resolve(LoopConfig(recipe=str(path)), None)
    assert error.value.where == f"{path}, key {f'{table}.max-turns'.lstrip('.')}"


def test_a_recipe_may_begin_with_a_mark_of_byte_order(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[rollout]\nmax-turns = 4", encoding="utf-8-sig")
    assert resolve(LoopConfig(recipe=str(path)), None).of("rollout")["max_turns"] == 4


@pytest.mark.parametrize("wrong", ["nope=1", "likelihood=x"])
def test_options_of_the_rule_are_checked_before_anything_is_played(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(UsageError, match="The rule sweet") as error:
        resolve(LoopConfig(agent="micro", set_=[f"train-actor.rule-option={wrong}"]), None)
    assert error.value.where == f"--set, key train-actor.rule-option = {wrong}"
    path = tmp_path / "mine.toml"
    path.write_text(f'[train-actor]\nrule-option = ["{wrong}"]')
    with pytest.raises(UsageError, match="The rule sweet") as error:
        resolve(LoopConfig(agent="micro", recipe=str(path)), None)
    assert error.value.where == f"{path}, key train-actor.rule-option = {wrong}"


def test_a_set_with_a_huge_number_is_one_sentence() -> None:
    for value in ("9" * 6000, "[" * 6000):
        with pytest.raises(UsageError, match=r"^rank\.limit: .{,300} · where"):
            resolve(LoopConfig(set_=[f"rank.limit={value}"]), None)


@pytest.mark.parametrize(
    "text",
    [f"a = {'[' * 5000}", f"a = {'{b=' * 5000}", f"a = {'9' * 5000}", f"[rank]\nlimit = 0x{'f' * 5000}"],
)
def test_deep_and_huge_toml_is_one_sentence(text: str) -> None:
    with pytest.raises(InputError) as error:
        recipe(text)
    assert len(str(error.value)) < 300


def test_options_override_sets_and_sets_override_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[train]\nrounds = 2\nsamples = 5\nagent = "a"\n[rank]\nfraction = 0.2\n')
    found = resolve(
        LoopConfig(recipe=str(file), rounds=3, set_=["rank.fraction=0.3", "train.samples=7", "rank.agent-x=1"][:2]),
        None,
    )
    assert (found.train.rounds, found.train.samples, found.train.agent) == (3, 7, "a")
    assert found.of("rank") == {"fraction": 0.3}


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        (["lora-target=a=1", "lora_target=b=2"], ["a=1", "b=2"]),
        (["lora-target=a=1", 'lora_target=["b=2"]', "lora-target=c=3"], ["b=2", "c=3"]),
    ],
)
def test_values_of_a_list_are_added_however_its_option_is_spelled(sets: list[str], expected: list[str]) -> None:
    found = resolve(LoopConfig(set_=[f"train-actor.{one}" for one in sets]), None)
    assert found.of("train-actor")["lora_target"] == expected


@pytest.mark.parametrize("bad", ["rank.fraction", "fraction=1", "rank.fration=1", "rnk.fraction=1", "rank.fraction=x"])
def test_a_bad_set_is_refused(bad: str) -> None:
    with pytest.raises(UsageError) as error:
        resolve(LoopConfig(set_=[bad]), None)
    assert f"--set {bad}" in str(error.value.where)


def test_the_default_recipe_suits_the_agent() -> None:
    assert resolve(LoopConfig(), None).of("pair")["strategy"] == "best-worst"
    assert resolve(LoopConfig(agent="other"), None).of("pair")["strategy"] == "random-halves"
    rollout = resolve(LoopConfig(), None).of("rollout")
    assert (rollout["max_turns"], rollout["max_tokens"]) == (MICRO.turns, MICRO.reply_tokens)


@pytest.mark.parametrize("name", sorted(packaged()))
def test_packaged_recipes_are_valid(name: str, tmp_path: Path) -> None:
    found = resolve(LoopConfig(recipe=name), None)
    write_run(found, tmp_path)
    again = read_run(tmp_path)
    assert again is not None
    assert again.outcome() == found.outcome()


def test_an_unknown_recipe_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="Did you mean paper"):
        resolve(LoopConfig(recipe="papr"), None)
    with pytest.raises(SweetError, match="no such recipe"):
        resolve(LoopConfig(recipe="none.toml"), None)


NUMBERS = {
    "rank": ("candidates", "limit"),
    "pair": ("pairs",),
    "train-critic": ("epochs", "batch"),
    "train": ("rounds",),
}


@given(
    st.dictionaries(
        st.sampled_from([(table, key) for table, keys in NUMBERS.items() for key in keys]), st.integers(2, 10**6)
    ),
    st.text(min_size=1, max_size=20),
)
def test_what_is_written_is_read_again(values: dict[tuple[str, str], int], agent: str) -> None:
    import tempfile

    config = LoopConfig(set_=[f"{table}.{key}={value}" for (table, key), value in values.items()], agent=agent)
    with tempfile.TemporaryDirectory() as folder:
        found = resolve(config, None)
        write_run(found, Path(folder))
        again = read_run(Path(folder))
        assert again is not None
        assert again.outcome() == found.outcome()
        assert again.train.agent == agent


def test_the_name_of_a_run_cannot_break_its_recipe(tmp_path: Path) -> None:
    run = tmp_path / "two\nlines"
    run.mkdir()
    write_run(resolve(LoopConfig(), None), run)
    assert read_run(run) is not None


def test_the_written_recipe_has_every_option_and_no_password(tmp_path: Path) -> None:
    found = resolve(LoopConfig(agent_url=["http://me:secret@host/v1"]), None)
    write_run(found, tmp_path)
    text = (tmp_path / RECIPE).read_text()
    assert "secret" not in text
    assert "# temperature = 1.0" in text
    assert all(f"[{table}]" in text for table in TABLES)


def test_prices_are_kept(tmp_path: Path) -> None:
    found = recipe("[prices.agent]\nprompt = 2.5\ncompletion = 10")
    write_run(found, tmp_path)
    again = read_run(tmp_path)
    assert again is not None
    assert again.prices == found.prices == Prices.model_validate({"agent": {"prompt": 2.5, "completion": 10}})


def test_servers_and_prices_can_be_set_too(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[servers.sim]\ngpus = 4\n")
    sets = ["servers.sim.startup-timeout=60", "servers.agent.replicas=fill", 'servers.agent.options=["--x"]']
    sets += ["prices.sim.prompt=0.5"]
    found = resolve(LoopConfig(recipe=str(file), set_=sets), None)
    write_run(found, tmp_path)
    again = read_run(tmp_path)
    assert again is not None
    assert (again.servers, again.prices) == (found.servers, found.prices)
    sim, agent = found.servers.sim, found.servers.agent
    assert sim is not None
    assert agent is not None
    assert (sim.gpus, sim.startup_timeout, agent.replicas, agent.options) == (4, 60, "fill", ["--x"])


@pytest.mark.parametrize(
    ("assignment", "message", "key"),
    [
        ("servers.sim.gpu=2", "there is no gpu. Did you mean gpus?", "servers.sim"),
        ("servers.human.gpus=2", "there is no human", "servers"),
        ("servers.sim=2", "servers.sim: should be", "servers.sim"),
        ("servers.sim.gpus.x=2", "servers.sim.gpus: should be a valid integer", "servers.sim.gpus"),
        ("prices.agen.prompt=2", "prices: there is no agen. Did you mean agent?", "prices"),
        ("prices.agent.promt=2", "prices.agent: there is no promt. Did you mean prompt?", "prices.agent"),
        ("prices.agent.prompt=x", "prices.agent.prompt: should be a valid number, not 'x'", "prices.agent.prompt"),
    ],
)
def test_a_bad_set_of_such_a_table_is_refused(assignment: str, message: str, key: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as error:
        resolve(LoopConfig(set_=[assignment]), None)
    assert error.value.where == f"--set {assignment}, key {key}"


CHOICES = """
[rank]
fraction = 0.2
[rank.advantage]
reference-context = "dialogue"
[rank.oracle]
fraction = 1.0
[train-actor]
nll = 1.0
[train-actor.sweet]
nll = 2.0
rule-option = ["likelihood=sum"]
[train-online.grpo]
lr = 0.5
"""


@pytest.mark.parametrize(
    ("given", "table", "expected"),
    [
        ({}, "train-actor", {"nll": 2.0, "rule_option": ["likelihood=sum"]}),
        ({"algorithm": "rft"}, "train-actor", {"nll": 1.0}),
        ({"set_": ["train-actor.algorithm=rft"]}, "train-actor", {"nll": 1.0, "algorithm": "rft"}),
        ({"set_": ["train-actor.nll=3"]}, "train-actor", {"nll": 3.0, "rule_option": ["likelihood=sum"]}),
        (
            {"set_": ["train-actor.rule-option=likelihood=mean"]},
            "train-actor",
            {"nll": 2.0, "rule_option": ["likelihood=mean"]},
        ),
        ({"algorithm": "grpo"}, "train-online", {"lr": 0.5}),
        ({"algorithm": "rloo"}, "train-online", {}),
        ({}, "rank", {"fraction": 0.2, "reference_context": "dialogue"}),
        ({"set_": ["rank.judge=oracle"]}, "rank", {"fraction": 1.0, "judge": "oracle"}),
        ({"set_": ["rank.judge=oracle", "rank.fraction=0.5"]}, "rank", {"fraction": 0.5, "judge": "oracle"}),
        ({"set_": ["train-critic.variant=regression"]}, "rank", {"fraction": 0.2}),
    ],
)
def test_a_table_in_a_table_counts_where_it_is_chosen(
    given: dict[str, Any], table: str, expected: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(CHOICES)
    found = resolve(LoopConfig(recipe=str(file), **given), None)
    assert found.of(table) == expected
    write_run(found, tmp_path)
    assert read_run(tmp_path) == found, "another algorithm can be chosen for the run later"
