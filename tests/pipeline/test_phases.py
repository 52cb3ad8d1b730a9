"""The servers that each stage of the loop needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweet.errors import UsageError
from sweet.gpus import Gpu
from sweet.online.config import TrainOnlineConfig
from sweet.pipeline.phases import Phase, phase_of
from sweet.pipeline.plan import check_phases
from sweet.pipeline.servers import Servers
from sweet.preferences.config import LabelConfig, PairConfig
from sweet.ranking.config import RankConfig
from sweet.rollouts.config import RolloutConfig
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.stages.base import Silent, StageConfig
from sweet.training.config import TrainActorConfig, TrainCriticConfig
from tests.pipeline.reading import parse

ALL = ("sim", "agent", "judge")
MODELS: dict[Any, str] = {"agent": "a", "sim": "h"}


@pytest.mark.parametrize(
    ("config", "served", "expected"),
    [
        (RolloutConfig(**MODELS, split="test"), ALL, Phase(MODELS, 0)),
        (RolloutConfig(**MODELS), ("sim",), Phase({"sim": "h"}, 1)),
        (RolloutConfig(**MODELS), (), Phase({}, 1)),
        (RolloutConfig(**MODELS, agent_url=["http://x"]), ("sim",), Phase({"sim": "h"}, 0)),
        (RolloutConfig(**MODELS, sim_url=["http://x"]), ALL, Phase({"agent": "a"}, 0)),
        (RolloutConfig(agent="a"), ALL, Phase({"agent": "a"}, 0)),
        (RolloutConfig(task="html", agent="scripted"), ALL, Phase({}, 0)),
        (RolloutConfig(**MODELS, best_of=4), ALL, Phase(MODELS, 1)),
        (RolloutConfig(**MODELS, best_of=4, judge="llm", judge_model="j"), ALL, Phase(MODELS | {"judge": "j"}, 0)),
        (RankConfig(agent="a"), ALL, Phase({"agent": "a"}, 1)),
        (RankConfig(agent="a", judge="random"), ALL, Phase({"agent": "a"}, 0)),
        (RankConfig(agent="a", judge="llm", judge_model="j"), ("judge",), Phase({"judge": "j"}, 1)),
        (RankConfig(replies="candidates-1", judge="oracle"), ALL, Phase({}, 0)),
        (RankConfig(agent="a", judge="lookahead", sim="h"), ALL, Phase(MODELS, 1)),
        (RankConfig(agent="a", judge="lookahead"), ALL, Phase({"agent": "a"}, 1)),
        (TrainCriticConfig(), ALL, Phase({}, 1)),
        (TrainActorConfig(), ALL, Phase({}, 1)),
        (TrainOnlineConfig(**MODELS), ALL, Phase({"sim": "h"}, 1)),
        (TrainOnlineConfig(**MODELS, sim_url=["http://x"]), ALL, Phase({}, 1)),
        (TrainOnlineConfig(**MODELS), ("agent",), Phase({}, 1)),
        (TrainOnlineConfig(**MODELS, devices=3), ALL, Phase({"sim": "h"}, 3)),
        *((config, ALL, None) for config in (EvalConfig(), LabelConfig(), PairConfig())),
    ],
)
def test_a_stage_needs_the_servers_of_its_models(
    config: StageConfig, served: Any, expected: Phase | None, tmp_path: Path
) -> None:
    assert phase_of(Run.create(tmp_path / "run"), config, served) == expected


@pytest.mark.parametrize(
    ("tables", "gpus", "message"),
    [
        ("[servers.sim]\ngpus = 2\n[servers.agent]\nreplicas = 'fill'", 3, None),
        ("[servers.sim]\ngpus = 2\n[servers.agent]\nreplicas = 'fill'", 2, "3 GPUs .*1 × 2 for sim"),
        ("[servers.agent]\ngpus = 2", 3, None),
        ("[servers.agent]\ngpus = 3", 3, "4 GPUs .*1 for the stage itself"),
        ("[servers.agent]\ngpus = 3\n[rank]\njudge = 'random'", 3, None),
        ("[servers.sim]\ngpus = 3\n[evaluation]\nbest-of = 2", 3, "4 GPUs"),
        ("[servers.agent]\noptions = ['--max-model-len', '512']", 2, "server has 512 tokens, .* up to 1,024"),
        ("task = 'html'\n[rollout]\npictures = 'photo'", 0, "photograph of pages has not been downloaded"),
        ("algorithm = 'grpo'\n[servers.sim]\n[train-online]\ndevices = 3", 3, "4 GPUs .*3 for the stage itself"),
    ],
)
def test_what_every_stage_needs_is_checked_before_the_first(
    tables: str, gpus: int, message: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweet.render.window.asset_folder", lambda: tmp_path)
    recipe = parse(
        f"[train]\nagent = 'a'\nsim = 'h'\nsim-url = {[] if 'sim' in tables else ['http://x']}\n{tables}", "r"
    )
    servers = Servers(Run.create(tmp_path / "run"), recipe.servers.by_role(), tmp_path / "log", Silent())
    vars(servers)["gpus"] = [Gpu(str(number)) for number in range(gpus)]
    if message is None:
        check_phases(servers, recipe)
    else:
        with pytest.raises(UsageError, match=message):
            check_phases(servers, recipe)
