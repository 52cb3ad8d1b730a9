"""What a ranking reads, and what it ranks by: the artifacts of the run, the turns, the agent and the judge."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sweet.datasets.layout import is_imported, rewards_of
from sweet.errors import SweetError, UsageError
from sweet.hints import stage
from sweet.judges.base import ScoreReplies
from sweet.judges.control import CreditScorer, check_credit_known
from sweet.judges.lookahead import AskedHuman, check_lookahead
from sweet.judges.opening import ChosenJudge, critic_settings
from sweet.judges.options import LOOKAHEAD, RUN_CRITICS, find_critic
from sweet.learn.rows import CandidateRow, TurnKey
from sweet.llm.base import Reply
from sweet.llm.scripted import SCRIPTED, has_model
from sweet.ranking.config import RankConfig, check_options
from sweet.ranking.turns import best_dialogues, first_turns, published_order, sample_turns, turns_with_replies
from sweet.runs.jsonl import read_jsonl
from sweet.runs.lineage import made_of
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.artifacts import agent_of, given_model, is_model, recorded_model
from sweet.stages.critics import used_protocol
from sweet.stages.frame import AskedModel
from sweet.stages.meta import CandidatesMeta, RolloutsMeta
from sweet.stages.unseen_tasks import check_not_test
from sweet.tasks.base import Task
from sweet.tasks.trajectory import Trajectory


@dataclass(frozen=True)
class Ranking:
    """A ranking that is ready to run.

    Attributes:
        critic: None where another judge ranks.
        replies: the ranking whose replies are judged again; None where replies are sampled.
        scores: by which dialogues are the best; None where turns of all are ranked.
        recorded: its rows.
        dialogues: by id, without those that a fault ended.
        agent: the model that is asked for replies; None where they are recorded.
        left_out: dialogues that a fault ended: none of their turns is ranked, as nothing is learned from them.
        scorer: knows the credit of the tasks.
    """

    critic: Artifact | None
    replies: Artifact | None
    rollouts: Artifact
    scores: Artifact | None
    recorded: Mapping[TurnKey, CandidateRow]
    dialogues: Mapping[str, Trajectory]
    agent: AskedModel | None
    turns: Sequence[TurnKey]
    left_out: int
    judge: ChosenJudge
    scorer: CreditScorer

    @property
    def inputs(self) -> list[Artifact]:
        """The artifacts that are read."""
        return [a for a in (self.critic, self.replies, self.rollouts, self.scores) if a is not None]

    @property
    def models(self) -> list[AskedModel]:
        """The models that are asked for text."""
        return [*([] if self.agent is None else [self.agent]), *self.judge.asked]

    @property
    def tasks(self) -> dict[str, Task]:
        """The tasks of the turns, by id."""
        return _tasks_of(self.dialogues, self.turns)

    @property
    def title(self) -> str:
        """What is ranked, for messages."""
        if self.agent is None:
            return f"the replies of {self.replies.id if self.replies else self.rollouts.id}"
        return f"replies of {self.agent.name} in {self.rollouts.id}"

    def meta(self) -> CandidatesMeta:
        """Return the `meta` of the candidates: who replied, and who judged."""
        replied = self.agent.name if self.agent is not None else None
        return CandidatesMeta(
            agent=CandidatesMeta.of(self.replies).agent if self.replies else replied,
            replies=None if self.replies is None else self.replies.id,
            protocol=None if self.critic is None else used_protocol(self.critic, self.judge.settings),
            sim=None if self.judge.human is None else self.judge.human.name,
        ).model_copy(update=self.judge.meta())


def choose_ranking(run: Run, config: RankConfig, function: ScoreReplies | None = None) -> Ranking:
    """Find what a ranking reads, and choose its turns and its judge.

    Args:
        function: judges instead of the judge that `config` names.

    Raises:
        UsageError: options do not go together; or an artifact is missing or not finished, or was made from dialogues
            on test tasks.
        InputError: one is not as it was finished.
    """
    check_options(config)
    critic, replies, rollouts = find_inputs(run, config)
    dialogues, ended_by_fault = [], set()
    for dialogue in read_jsonl(run.file(rollouts), Trajectory):
        if dialogue.ended_by_fault:
            ended_by_fault.add(dialogue.id)
        else:
            dialogues.append(dialogue)
    recorded: dict[TurnKey, CandidateRow] = {}
    agent = scores = None
    judge = _choose_judge(run, config, critic, rollouts, function)
    if replies is None:
        name = given_model(run, config.agent) if config.agent else agent_of(run, rollouts, "agent")
        agent = AskedModel("agent", name, config.agent_url, tools=any(dialogue.tools for dialogue in dialogues))
        eligible = dialogues
        if config.dialogues == "best":
            scores = _scores_of(run, rollouts)
            eligible = best_dialogues(dialogues, rewards_of(run, scores))
        if critic is not None and used_protocol(critic, judge.settings) == "upstream":
            ordered = eligible if is_imported(rollouts) else published_order(eligible)
            turns = first_turns(ordered, fraction=config.fraction, limit=config.limit)
        else:
            share = math.ceil(config.fraction * sum(len(dialogue.agent_turns) for dialogue in dialogues))
            turns = sample_turns(eligible, seed=config.seed, limit=min(share, config.limit or share))
    else:
        path = run.file(replies)
        recorded = {row.key: row for row in read_jsonl(path, CandidateRow) if row.trajectory_id not in ended_by_fault}
        turns = turns_with_replies(dialogues, recorded, path)
    if not turns:
        what = "The dialogues that no fault ended have no turn of the agent to rank."
        raise SweetError(what, where=rollouts.id, fix="sweet rollout")
    scorer = CreditScorer.for_rollouts(run, rollouts)
    by_id = {dialogue.id: dialogue for dialogue in dialogues}
    if judge.name == "oracle":
        ranked = ((by_id[name], index) for name, index in turns)
        triples = ((d.task, d.observation(index, None), Reply.of(d.dialogue_history[index])) for d, index in ranked)
        check_credit_known(scorer, triples)
    if judge.human is not None:
        check_lookahead(scorer.kind, _tasks_of(by_id, turns).values(), scripted=judge.human.model is None)
    return Ranking(critic, replies, rollouts, scores, recorded, by_id, agent, turns, len(ended_by_fault), judge, scorer)


def find_inputs(run: Run, config: RankConfig) -> tuple[Artifact | None, Artifact | None, Artifact]:
    """Find the critic, the earlier ranking and the dialogues; without an option the newest critic, and the dialogues
    that `_default_rollouts` chooses."""
    critic = None
    if config.judge in RUN_CRITICS:
        critic = find_critic(run, config.judge, config.from_, needed_by="rank")
    replies = None
    if config.replies is not None:
        replies = run.find("candidates", config.replies, needed_by="rank --replies")
        rollouts = run.input_of(replies, "rollouts")
    else:
        rollouts_id = config.rollouts or run.read_instead("rollouts")
        default = None if rollouts_id is not None else _default_rollouts(run, critic)
        rollouts = default or run.find("rollouts", rollouts_id, needed_by="rank")
    inputs = [artifact for artifact in (critic, replies, rollouts) if artifact is not None]
    check_not_test(run, inputs, allow=config.allow_test, needed_by="rank")
    run.verify(rollouts, sums=False)
    return critic, replies, rollouts


def _scores_of(run: Run, rollouts: Artifact) -> Artifact:
    """Return the newest scores of dialogues. Raises UsageError where they have none."""
    newest = next(made_of(run.manifest(), "scores", rollouts), None)
    if newest is None:
        what = f"{rollouts.id} has no scores, by which its best dialogues would be known."
        raise UsageError(what, where="--dialogues best", fix=stage("eval", run.path, from_=rollouts.id))
    return run.find("scores", run.read_instead("scores") or newest.id, needed_by="rank")


def _default_rollouts(run: Run, critic: Artifact | None) -> Artifact | None:
    """Return the newest dialogues on the split that the critic learned from, even on more or fewer of its tasks; for
    another judge on the split train. Dialogues of an evaluation on another split are not chosen. None where the run
    has no finished rollouts."""
    done = run.manifest().of_kind("rollouts", "done")
    if not done:
        return None
    if critic is None:
        return next((artifact for artifact in reversed(done) if RolloutsMeta.of(artifact).split == "train"), done[-1])
    learned_from = run.input_of(critic, "rollouts")
    keys = ("task", "tasks", "split")
    same_split = [a for a in done if all(a.meta.get(key) == learned_from.meta.get(key) for key in keys)]
    return same_split[-1] if same_split else learned_from


def _choose_judge(
    run: Run, config: RankConfig, critic: Artifact | None, rollouts: Artifact, function: ScoreReplies | None
) -> ChosenJudge:
    shared_options = {name: getattr(config, name) for name in ("packing", "protocol")}
    settings = critic_settings(config, batch_tokens=config.micro_batch_tokens, **shared_options)
    if critic is not None or config.judge not in ("untrained", LOOKAHEAD):
        return ChosenJudge(config.judge, config, settings, critic=critic, function=function)
    start = config.reference or agent_of(run, rollouts, "reference")
    human = _human_of(run, config, rollouts) if config.judge == LOOKAHEAD else None
    return ChosenJudge(config.judge, config, settings, start=start, human=human)


def _human_of(run: Run, config: RankConfig, rollouts: Artifact) -> AskedHuman:
    """Return the human that is asked: that of the options, else that of the dialogues.

    Raises:
        UsageError: none is named, and the dialogues had several, one with a persona, or one that is not known.
    """
    name = config.sim
    meta = RolloutsMeta.of(rollouts)
    if name is None:
        name = recorded_model(run, rollouts, "sim") or SCRIPTED
        if meta.humans or (name != SCRIPTED and not is_model(name)):
            what = "The judge asks one human, without a persona, and that of these dialogues is another."
            raise UsageError(what, where=rollouts.id, fix="--sim MODEL")
    model = AskedModel("sim", name, config.sim_url) if has_model(name) else None
    return AskedHuman(name, model, specified=meta.human == "spec", sandbox=config.sandbox)


def _tasks_of(dialogues: Mapping[str, Trajectory], turns: Iterable[TurnKey]) -> dict[str, Task]:
    return {dialogues[name].task_id: dialogues[name].task for name, _ in turns}
