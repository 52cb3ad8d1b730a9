"""The methods of a study, and the parts of a seed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from sweet.credit.registry import rule_class
from sweet.online.config import TrainOnlineConfig
from sweet.pipeline.steps import StepMissing
from sweet.preferences.config import PairConfig
from sweet.ranking.config import RankConfig, check_options
from sweet.study.settings import METHODS, Method, StudyConfig, StudySizes
from sweet.study.study import seed_jobs
from sweet.study.study_steps import SeedJob
from sweet.study.tuning import tuning_job, variants
from sweet.training.config import TrainActorConfig, TrainCriticConfig


def job(*names: str, figures: bool = True) -> SeedJob:
    methods = tuple(METHODS[name] for name in names)
    return SeedJob(folder=Path("study"), seed=3, sizes=StudySizes(parts=(4, 2)), methods=methods, figures=figures)


def test_after_the_largest_seed_a_study_goes_on_from_0() -> None:
    config = StudyConfig(seeds=3, seed=2**32 - 2)
    assert [one.seed for one in seed_jobs(Path("study"), config)] == [2**32 - 2, 2**32 - 1, 0]
    assert 0 < tuning_job(Path("study"), config, []).seed < 2**32 - 2


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_the_stages_accept_the_settings_of_every_method(method: Method) -> None:
    for config, options in (
        (TrainCriticConfig, method.critic),
        (RankConfig, method.rank),
        (PairConfig, method.pair),
        (TrainOnlineConfig if method.online else TrainActorConfig, method.actor),
    ):
        assert config.model_validate(options).model_dump(include=set(options)) == options
    check_options(RankConfig.model_validate(method.rank))
    if method.learns == "nothing":
        assert method.settings() == {"learns": "nothing"}
        return
    rule = rule_class(method.learns)
    assert rule.online or not method.online
    assert bool(method.critic) == (method.judge == "critic" or rule.asks_critic)
    assert (method.judge is not None) == (rule.reads in ("pairs", "candidates"))


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_every_method_is_a_round_of_the_loop(method: Method, tmp_path: Path) -> None:
    job = SeedJob(folder=tmp_path, seed=0, sizes=StudySizes(), methods=(method,))
    (tmp_path / job.run).mkdir()
    if method.learns == "nothing":
        assert job.read(lambda steps: steps.making(method)) == []
    else:
        with pytest.raises(StepMissing):  # at its first step
            job.read(lambda steps: steps.making(method))


def test_tries_multiply_numbers_alone_and_keep_whole_ones() -> None:
    method = METHODS["rft"].model_copy(update={"actor": {"lr": 1e-3, "epochs": 64, "nll": "3"}, "critic": {"lr": 0}})
    found = [one.actor for one in variants(method, 9)]
    assert len(found) == 6, "three rates, and twice the epochs"
    assert {(type(one["epochs"]), one["epochs"]) for one in found} == {(int, 64), (int, 128)}
    assert {one["lr"] for one in found} == {1e-3, 3.3e-4, 3e-3}
    assert {one["nll"] for one in found} == {"3"}


def test_protocol_and_published_settings_are_varied_separately() -> None:
    sweet, settings, protocol, both = (
        METHODS[name] for name in ("sweet", "paper-settings", "upstream-tuned", "upstream")
    )
    upstream = {"protocol": "upstream"}
    changed = {"critic": sweet.critic | upstream, "actor": sweet.actor | upstream}
    assert protocol.settings() == sweet.model_copy(update=changed).settings()
    assert settings.pair == both.pair == {"pairs": 4, "strategy": "random-halves"}
    assert settings.actor == sweet.actor | {"nll": 0.01}
    assert both.actor == settings.actor | upstream
    assert settings.critic == sweet.critic | {"nll": 0.01}
    assert both.critic == sweet.critic | upstream | {"nll": 0.0}, "the published command has no likelihood term"


def test_methods_may_be_joined_by_commas_in_any_order() -> None:
    assert StudyConfig.model_validate({"methods": "sweet, rft"}).methods == ("rft", "sweet")
    assert StudyConfig.model_validate({"methods": ["sweet,rft", "zero-shot"]}).methods == ("zero-shot", "rft", "sweet")
    assert StudyConfig().methods == tuple(METHODS)
    with pytest.raises(ValidationError, match="there is no method 'swet'"):
        StudyConfig.model_validate({"methods": "swet"})


def test_the_parts_of_a_seed() -> None:
    assert list(job("zero-shot", "rft", "beta-0", figures=False).parts()) == ["zero-shot", "rft", "beta-0"]
    assert list(job("rft", "sweet").parts()) == [
        "rft",
        "sweet",
        "best of N dialogues by sweet",
        "credit by sweet",
        "best of N replies by sweet",
        "learning curve of rft, 75 tasks",
        "learning curve of sweet, 75 tasks",
        "learning curve of rft, 150 tasks",
        "learning curve of sweet, 150 tasks",
        "learning curve of rft, 300 tasks",
        "learning curve of sweet, 300 tasks",
    ]
    assert list(job("zero-shot", "beta-0").parts()) == ["zero-shot", "beta-0", "start of the learning curves"]


def test_a_job_survives_json_unchanged() -> None:
    whole = job(*METHODS)
    assert SeedJob.model_validate_json(whole.model_dump_json()) == whole


def test_turns_and_reply_tokens_default_to_those_of_the_dataset() -> None:
    assert (StudySizes().turns, StudySizes().reply_tokens) == (6, 128)
    long = StudyConfig(tasks="micro-long").sizes()
    assert (long.turns, long.reply_tokens) == (10, 192)
    assert StudySizes(tasks="micro-long", turns=4).turns == 4
    own = {"tasks": "mine.jsonl", "reply_tokens": 64}
    assert StudySizes.model_validate({**own, "turns": 5}).turns == 5
    with pytest.raises(ValueError, match="give the turns"):
        StudySizes.model_validate(own)
