"""`sweet gateway`: serves the model and the human to other programs until it is stopped, and records their sessions.

A session is written when its program ends it. At the end (Ctrl-C, SIGTERM) the rollouts are finished with the sessions
that there are, and a `scores` artifact has the rewards that programs gave. The same command goes on with both, after a
kill too: what happened in sessions under way is on the disk (`sweet.rollouts.steps`).
"""

from __future__ import annotations

import os
import secrets
import zlib
from contextlib import AsyncExitStack

from sweet.errors import UsageError
from sweet.gathering import run_main, stop_signal
from sweet.hints import stage
from sweet.rollouts.gateway.config import GatewayConfig
from sweet.rollouts.gateway.sessions import Session
from sweet.rollouts.metrics import RolloutMetrics
from sweet.rollouts.play.config import PlayWork
from sweet.rollouts.prepare import Dialogues, load_dialogues
from sweet.rollouts.runner import FinishedDialogues
from sweet.rollouts.sides import check_agent, check_human
from sweet.rollouts.steps import StepsFile
from sweet.runs.jsonl import JsonlWriter, read_jsonl, scan_jsonl
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.artifacts import IMPORTED
from sweet.stages.base import Reporter, StageResult
from sweet.stages.frame import Frame, Rows
from sweet.stages.meta import ScoresMeta
from sweet.tasks.scores import given_score
from sweet.tasks.trajectory import Trajectory, dump
from sweet.units import count

KEY = "SWEET_GATEWAY_KEY"
"""The environment variable of the gateway's token; without it one is drawn."""


def run_gateway(run: Run, config: GatewayConfig, reporter: Reporter) -> StageResult[RolloutMetrics]:
    """Serve until SIGINT or SIGTERM, and say the address and the token as soon as the server answers.

    Raises:
        UsageError: the configuration, the model, the token or the address cannot be used.
    """
    token = os.environ.get(KEY) or secrets.token_hex(16)
    if not token.isascii() or not token.isprintable() or "/" in token or " " in token:
        raise UsageError("The key of a gateway has printable ASCII characters, without / and blanks.", where=KEY)
    dialogues = load_dialogues(run, config.rollout(), reporter)
    check_agent(dialogues.kind, dialogues.config)
    check_human(dialogues.kind, dialogues.tasks, dialogues.config)
    with dialogues.frame("gateway", run, config, reporter) as frame:
        rows = frame.rows("rollouts", dialogues.meta(config.model), Trajectory)
        finished = FinishedDialogues(scan_jsonl(rows.path), sim=dialogues.humans.title)
        with StepsFile(rows.path, finished.ids) as steps:
            if finished.ids or steps.under_way:
                frame.say(f"Recorded: {count(len(finished.ids), 'session')}; under way: {len(steps.under_way):,}.")
            run_main(_serve(frame, config, dialogues, (rows, steps, finished), token))
        metrics = finished.metrics(failures=frame.failures, seconds=frame.seconds)
        rollouts = frame.finish(rows, metrics)
        scores = _given_scores(frame, rollouts, dialogues)
        frame.say(f"To go on: {stage('gateway', run.path, resume=True)}")
        return frame.result(metrics, rollouts, *scores)


def plan_gateway(run: Run | None, config: GatewayConfig, reporter: Reporter) -> PlayWork:
    """Return the plan of `run_gateway`: the tasks that programs may name, and a dialogue on each."""
    tasks = len(load_dialogues(run, config.rollout(), reporter).tasks)
    return PlayWork(tasks=tasks, dialogues=tasks)


async def _serve(
    frame: Frame,
    config: GatewayConfig,
    dialogues: Dialogues,
    record: tuple[Rows, StepsFile, FinishedDialogues],
    token: str,
) -> None:
    from sweet.llm.listening import HTTPError, listening
    from sweet.llm.server import make_app
    from sweet.rollouts.gateway.app import Gateway

    rows, steps, finished = record

    class Recorded(Gateway):
        """Begins sessions, from their recorded steps if there are some, and writes those that have ended."""

        def begin(self, name: str) -> Session:
            if name in finished.ids:
                raise HTTPError(409, "The session has ended.", "session_ended")
            return Session(name, steps.of(name), human=dialogues.humans.name_of(zlib.crc32(name.encode()), 0))

        def end(self, session: Session) -> None:
            for row in map(dump, reversed(session.trajectories(self.kind, seed=self.seed) if session.calls else [])):
                rows.write(row)
                finished.add(row)
            steps.forget(session.name)
            del self.sessions[session.name]

    async with AsyncExitStack() as stack:
        agent = await dialogues.open_agent(frame.client, frame, stack)
        humans = await dialogues.open_simulated_humans(frame.client, stack, frame.run.path)
        gateway = Recorded(agent, humans, dialogues, token)
        for name in [*steps.under_way]:
            session = gateway.sessions[name] = gateway.begin(name)
            if session.ended:  # it was killed before it wrote it
                gateway.end(session)
        stop = stack.enter_context(stop_signal())
        host, *names = config.host.split(",")
        url = await stack.enter_async_context(listening(make_app(gateway), host, config.port, names))
        frame.say(f"Serving at {url} until Ctrl-C; the key of a session is {token}/SESSION.")
        await stop.wait()


def _given_scores(frame: Frame, rollouts: Artifact, dialogues: Dialogues) -> list[Artifact]:
    """Write the rewards that programs gave, as scores; nothing if they gave none."""
    rewarded = [row for row in read_jsonl(frame.run.file(rollouts), Trajectory) if row.reward is not None]
    if not rewarded:
        return []
    meta = ScoresMeta(scoring={"scorer": IMPORTED}, rollouts=rollouts.id)
    draft = frame.artifact("scores", meta, ".jsonl")
    draft.path.unlink(missing_ok=True)
    with JsonlWriter(draft.path) as writer:
        for row in rewarded:
            writer.write(given_score(row, row.reward or 0.0, dialogues.kind.rewards))
    return [frame.attempt.finish_artifact(draft, len(rewarded), made_from=[rollouts])]
