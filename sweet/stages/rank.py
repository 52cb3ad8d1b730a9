"""`sweet rank`: candidates at a sample of turns, and the critic's advantage of each.

A turn is one request for `candidates` replies to what the agent had seen there. While the next turns are sampled, the
critic and its reference score the ones that have come back, together with the reply that was really given. A turn is
named by (dialogue, index), so the same command goes on with the turns that are missing.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from sweet.errors import SweetError, UsageError
from sweet.llm.base import ChatClient, Completion, RequestFailed, Sampling
from sweet.llm.local import START_UP, EngineChoice, Local
from sweet.runs.jsonl import JsonlWriter, read_jsonl
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.base import (
    BEHIND_DASHES,
    OPERATIONAL,
    Packing,
    Progress,
    Reporter,
    StageConfig,
    StageResult,
    digest_of,
)
from sweet.stages.dialogue import agent_of, agent_system
from sweet.stages.engine import belongs_to, plan_models
from sweet.stages.failures import check_failures, first_cause
from sweet.stages.rows import Candidate, CandidateRow
from sweet.tasks.base import Message, Recipe
from sweet.tasks.trajectory import Trajectory

if TYPE_CHECKING:
    from sweet.learn.critic import Critic, TurnReplies, Verdict

CPU_TOKENS = 8192
"""More than a training's: nothing is kept for a backward pass, and what begins alike is cut up less."""

SCORED_TOGETHER = 64
"""Turns that are scored at once: enough to fill batches, few enough that an interruption loses little."""


class RankConfig(StageConfig):
    from_: str | None = None
    """The critic to rank by; the newest finished one where not given."""
    rollouts: str | None = None
    """Dialogues to rank turns of; the newest ones on the critic's own tasks where not given."""
    candidates: int = Field(default=16, ge=2)
    """Replies sampled at each turn."""
    fraction: float = Field(default=0.1, gt=0, le=1)
    """Share of the turns, drawn by the seed."""
    limit: int | None = Field(default=None, ge=1)
    """Rank at most this many turns."""
    agent: str | None = None
    """The model that is asked: micro, a directory or a hub id; the agent of the rollouts where not given."""
    agent_url: list[str] = Field(default_factory=list, json_schema_extra=OPERATIONAL)
    """OpenAI-compatible server of the agent; may be given several times. Without one it runs in this process."""
    reference: str | None = None
    """The frozen model the advantage is measured against; the one the critic started from where not given."""
    temperature: float = Field(default=1.0, gt=0)
    """Sampling temperature."""
    max_tokens: int = Field(default=1024, ge=1)
    """Tokens of one reply at most."""
    max_length: int | None = Field(default=None, ge=8)
    """Tokens of a scored sequence at most; longer ones lose early turns. The critic's context where not given."""
    recipe: Recipe | None = None
    """paper or upstream, as sweet.learn.critic tells; the critic's own recipe where not given."""
    seed: int = Field(default=0, ge=0)
    """Seed of the sample of turns and of the replies."""
    concurrency: int = Field(default=64, ge=1, json_schema_extra=OPERATIONAL)
    """Turns asked for at once."""
    micro_batch_tokens: int | None = Field(default=None, ge=1, json_schema_extra=OPERATIONAL)
    """Tokens of one forward pass of the critic; 8192 on a CPU, 16384 on a GPU."""
    packing: Packing = Field(default="tree", json_schema_extra=OPERATIONAL)
    """tree: what the replies of a dialogue share is computed once. plain: each reply by itself, to check against."""
    patience: float = Field(default=20.0, ge=0, json_schema_extra=OPERATIONAL)
    """Seconds for which an unreachable server is tried again."""
    fail_on_error: float = Field(default=0.1, ge=0, json_schema_extra=OPERATIONAL)
    """Failed turns that are still no error: a share below 1, or a count."""
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", json_schema_extra=OPERATIONAL)
    """Where the critic and the embedded engine run."""
    engine: EngineChoice = Field(default="auto", json_schema_extra=OPERATIONAL)
    """What runs an agent without an address: vllm, started and ended here, where it is installed and fits the machine
    (auto), always, or never (embedded). The agent micro is always embedded."""
    start_up: float = Field(default=START_UP, gt=0, json_schema_extra=OPERATIONAL)
    """Seconds that a vllm started here may take until it answers."""
    vllm_options: list[str] = Field(default_factory=list, json_schema_extra=BEHIND_DASHES)
    """What follows -- goes to the vllm that is started here, as it stands (in a configuration file: vllm-options)."""


@dataclass(frozen=True)
class Place:
    """A turn to rank: the dialogue and the index of the turn in its history."""

    trajectory: Trajectory
    turn: int

    @property
    def key(self) -> tuple[str, int]:
        return (self.trajectory.id, self.turn)


def run_rank(run: Run, config: RankConfig, reporter: Reporter) -> StageResult:
    """Sample and score candidates, and write one row a turn.

    Raises:
        TooManyFailures: more turns failed than `fail_on_error` allows; the others are kept.
    """
    critic = run.find("critic", config.from_, needed_by="rank")
    rollouts = _rollouts(run, critic, config.rollouts)
    agent = config.agent or agent_of(rollouts, "--agent")
    reporter.say(f"Ranking replies of {agent} in {rollouts.id} by {critic.id}.")
    places = sample_places(list(read_jsonl(run.file(rollouts), Trajectory)), config)
    if not places:
        raise SweetError("The dialogues have no turn of the agent.", where=rollouts.id, fix="sweet rollout")
    local = plan_models(config, [(agent, config.agent_url)], reporter, others=1)
    with run.attempt("rank", config, inputs=[critic, rollouts]) as attempt:
        draft = attempt.start_artifact("candidates", meta={"agent": agent, "critic": critic.id}, resume=True)
        kept = {row.key for row in read_jsonl(draft.path, CandidateRow)} if draft.path.exists() else set()
        missing = [place for place in places if place.key not in kept]
        if kept:
            reporter.say(f"{len(kept)} turns are there already, {len(missing)} to go.")
        with JsonlWriter(draft.path) as writer, JsonlWriter(attempt.metrics_path) as log:
            if missing:
                judge = load_critic(run, critic, config)
                system = agent_system(run, rollouts)
                desk = _Desk(config, agent, system, judge, writer, log, reporter, belongs_to(local, attempt))
                asyncio.run(desk.rank(missing))
                attempt.environment["agent_model"] = desk.served
            rows = writer.rows
        metrics = _metrics(read_jsonl(draft.path, CandidateRow)) | {"failed": len(places) - rows}
        attempt.metrics.update(metrics)
        artifact = attempt.finish_artifact(draft, rows=rows)
        result = StageResult("rank", run.path, metrics, [artifact])
        failed, log_path = len(places) - rows, attempt.metrics_path
        check_failures(failed, len(missing), config.fail_on_error, what="turns", log=log_path, result=result)
    return result


def sample_places(trajectories: list[Trajectory], config: RankConfig) -> list[Place]:
    """The share of turns that the seed draws, whatever the order of the dialogues; those of a dialogue together.

    Turns that are scored together share what they begin with.
    """
    everything = [Place(trajectory, turn) for trajectory in trajectories for turn in trajectory.agent_turns]
    drawn = sorted(everything, key=lambda place: digest_of([config.seed, *place.key]))
    count = math.ceil(config.fraction * len(everything))
    chosen = drawn[: count if config.limit is None else min(count, config.limit)]
    first: dict[str, int] = {}
    for number, place in enumerate(chosen):
        first.setdefault(place.trajectory.id, number)
    return sorted(chosen, key=lambda place: (first[place.trajectory.id], place.turn))


def load_critic(run: Run, artifact: Artifact, config: RankConfig) -> Critic:
    """The critic of the kind that it was trained as: with its head, or with its reference, checked to speak the same
    vocabulary."""
    from sweet.learn.critic import AdvantageCritic, check_same_vocabulary
    from sweet.learn.head import load_head
    from sweet.learn.regression import RegressionCritic
    from sweet.llm.pretrained import load_model, load_tokenizer, resolve_device
    from sweet.stages.training import GPU_TOKENS, context_of

    path, base = str(run.file(artifact)), config.reference or str(artifact.meta.get("base") or "micro")
    variant = artifact.meta.get("variant")
    tokenizer = load_tokenizer(path)
    model = load_model(path, config.device, tokenizer=tokenizer)
    on_gpu = resolve_device(config.device).type == "cuda"
    target: Any = artifact.meta.get("target")
    how: dict[str, Any] = {
        "recipe": config.recipe or artifact.meta.get("recipe") or "paper",
        "max_length": config.max_length or context_of(model),
        "budget": config.micro_batch_tokens or (GPU_TOKENS if on_gpu else CPU_TOKENS),
        "share": config.packing == "tree",
    }
    if variant == "regression":
        if config.reference is not None:
            what = f"{artifact.id} has a regression head, which is measured against no reference."
            raise UsageError(what, where="--reference", fix="leave it out")
        load_head(model, run.file(artifact))
        return RegressionCritic(model, tokenizer, target=target, **how)
    check_same_vocabulary(tokenizer, load_tokenizer(base), artifact.id, base)
    reference = load_model(base, config.device, tokenizer=tokenizer)
    return AdvantageCritic(model, reference, tokenizer, informed=variant != "no-info", **how)


def _rollouts(run: Run, critic: Artifact, named: str | None) -> Artifact:
    """The newest dialogues on the tasks that the critic learned from: never those of an evaluation on other tasks."""
    if named is not None:
        return run.find("rollouts", named, needed_by="rank")
    own = run.input_of(critic, "rollouts")
    same = ("task", "tasks", "split", "tasks_digest")
    alike = [
        artifact
        for artifact in run.manifest().of_kind("rollouts", "done")
        if all(artifact.meta.get(key) == own.meta.get(key) for key in same)
    ]
    return alike[-1] if alike else own


class _Desk:
    """Asks for the candidates of many turns at once and has them scored as they come."""

    def __init__(
        self,
        config: RankConfig,
        agent: str,
        system: str,
        judge: Critic,
        writer: JsonlWriter,
        log: JsonlWriter,
        reporter: Reporter,
        local: Local,
    ) -> None:
        self.local = local
        self.config, self.agent, self.system, self.judge = config, agent, system, judge
        self.writer, self.log, self.reporter = writer, log, reporter
        self.failed = 0
        self.served = agent
        self.ready: asyncio.Queue[tuple[Place, Completion] | None] = asyncio.Queue()

    async def rank(self, places: list[Place]) -> None:
        from sweet.llm.connect import open_client

        config = self.config
        opened = open_client(
            self.agent,
            config.agent_url,
            concurrency=config.concurrency,
            role="agent",
            patience=config.patience,
            device=config.device,
            local=self.local,
        )
        async with opened as client:
            self.served = client.model
            with self.reporter.progress("turns", len(places)) as bar:
                try:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(self._ask_all(places, client, bar))
                        group.create_task(self._score_all(bar))
                except BaseExceptionGroup as errors:
                    raise first_cause(errors) from errors

    async def _ask_all(self, places: list[Place], client: ChatClient, bar: Progress) -> None:
        waiting = iter(places)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self.config.concurrency, len(places))):
                group.create_task(self._ask(waiting, client, bar))
        await self.ready.put(None)

    async def _ask(self, waiting: Iterator[Place], client: ChatClient, bar: Progress) -> None:
        config = self.config
        for place in waiting:
            sampling = Sampling(
                temperature=config.temperature,
                max_tokens=config.max_tokens,
                n=config.candidates,
                seed=int(digest_of([config.seed, "reply", *place.key])[:8], 16) >> 1,
                logprobs=True,
            )
            try:
                completion = await client.chat(self._observation(place), sampling)
            except RequestFailed as error:
                self.failed += 1
                self.log.write({"dialogue": place.trajectory.id, "turn": place.turn, "error": str(error)})
                bar.advance()
                bar.note(failed=self.failed)
            else:
                await self.ready.put((place, completion))

    async def _score_all(self, bar: Progress) -> None:
        """Score what has come, in another thread, so that sampling goes on meanwhile."""
        batch: list[tuple[Place, Completion]] = []
        more = True
        while more:
            item = await self.ready.get()
            more = item is not None
            if item is not None:
                batch.append(item)
            if batch and (not more or len(batch) >= SCORED_TOGETHER):
                for row in await asyncio.to_thread(self._score, batch):
                    self.writer.write(row)
                bar.advance(len(batch))
                batch = []

    def _observation(self, place: Place) -> list[Message]:
        return place.trajectory.observation(place.turn, self.system)

    def _score(self, batch: list[tuple[Place, Completion]]) -> list[CandidateRow]:
        turns = [self._replies(place, completion) for place, completion in batch]
        rows = []
        for (place, _), turn, verdicts in zip(batch, turns, self.judge.judge(turns), strict=True):
            *candidates, taken = [_candidate(turn, i, verdict) for i, verdict in enumerate(verdicts)]
            rows.append(
                CandidateRow(
                    trajectory_id=place.trajectory.id,
                    task_id=place.trajectory.task_id,
                    turn=place.turn,
                    observation=tuple(turn.observation),
                    candidates=tuple(candidates),
                    taken=taken,
                )
            )
        return rows

    def _replies(self, place: Place, completion: Completion) -> TurnReplies:
        """The candidates, and behind them the reply that was really given."""
        from sweet.learn.critic import TurnReplies
        from sweet.learn.tokens import ReplyText

        said = place.trajectory.dialogue_history[place.turn]
        told = [(reply.text, reply.token_ids, reply.finish_reason, reply.logprobs) for reply in completion.replies]
        told.append((said.said, said.token_ids, said.finish_reason or "stop", said.logprobs))
        return TurnReplies(
            name=f"Dialogue {place.trajectory.id}, turn {place.turn}",
            turn=place.turn,
            observation=self._observation(place),
            hidden=place.trajectory.task.hidden,
            replies=[ReplyText(text, ids, finish != "length") for text, ids, finish, _ in told],
            sampler=[sum(logprobs) / len(logprobs) if logprobs else None for *_, logprobs in told],
            drawn=len(completion.replies),
        )


def _candidate(turn: TurnReplies, index: int, verdict: Verdict) -> Candidate:
    reply = turn.replies[index]
    return Candidate(
        text=reply.text,
        token_ids=reply.token_ids,
        ended=reply.ended,
        advantage=round(verdict.advantage, 6),
        logprob=_rounded(verdict.logprob),
        reference=_rounded(verdict.reference),
        score=_rounded(verdict.score),
        tokens=verdict.tokens,
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _metrics(rows: Iterator[CandidateRow]) -> dict[str, Any]:
    """Counts, and how far the critic sets the candidates of a turn apart."""
    turns = candidates = distinct = 0
    spread = taken = 0.0
    for row in rows:
        values = [candidate.advantage for candidate in row.candidates]
        turns += 1
        candidates += len(values)
        distinct += len({candidate.text for candidate in row.candidates})
        spread += max(values) - min(values)
        taken += row.taken.advantage
    count = max(turns, 1)
    return {
        "turns": turns,
        "candidates": candidates,
        "distinct": distinct,
        "mean_spread": round(spread / count, 6),
        "mean_taken_advantage": round(taken / count, 6),
    }
