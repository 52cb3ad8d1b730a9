"""The plan of a rollout, for `sweet rollout --dry-run`: dialogues are counted, and each has as many turns and tokens as
in the run's newest finished rollout."""

from __future__ import annotations

from collections.abc import Sequence

from sweet.rollouts.assignments import assignments_of
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.metrics import RolloutWork
from sweet.rollouts.prepare import check_choosing, load_dialogues
from sweet.runs.damage import whole_rows
from sweet.runs.run import Run
from sweet.stages.artifacts import is_model
from sweet.stages.base import Reporter
from sweet.stages.meta import RolloutsMeta
from sweet.stages.plans import Plan, begun_file, earlier_work, times
from sweet.tasks.trajectory import Trajectory
from sweet.units import count


def plan_rollout(run: Run | None, config: RolloutConfig, reporter: Reporter) -> Plan[RolloutWork]:
    """Return the plan of `run_rollout`; `run` is None where there is no run yet."""
    digest, planned = config.digest(), load_dialogues(run, config, reporter)
    config, kind, tasks, judge = planned.config, planned.kind, planned.tasks, planned.judge
    check_choosing(kind, tasks, config)
    finished: set[str] = set()
    if run is not None:
        begun = begun_file(run, "rollouts", digest, planned.inputs, tasks_digest=planned.tasks_digest)
        finished = set() if begun is None else {row.id for row in whole_rows(begun, Trajectory)}
        reporter.say(f"Finished already: {count(len(finished), 'dialogue')}.")
    requested = [assignment.id for assignment in assignments_of(tasks, config, planned.humans)]
    missing, assumed = len(set(requested) - finished), []
    earlier = earlier_work(run, "rollout")
    if earlier is not None:
        assumed.append(f"A dialogue has as many turns and tokens as one of {earlier.artifact.id}.")

    def in_all(metric: str, scale: float = 1.0) -> int | None:
        return times(missing, scale, None if earlier is None else earlier.of_a_dialogue(metric))

    def side(models: Sequence[str], prefix: str, scale: float = 1.0) -> tuple[int | None, int | None]:
        """Return the tokens that a side reads and writes; zero where it is scripted."""
        if not any(map(is_model, models)):
            return 0, 0
        return in_all(f"{prefix}prompt_tokens"), in_all(f"{prefix}completion_tokens", scale)

    candidates, turns = config.best_of or 1, in_all("turns")
    before = 1 if earlier is None else RolloutsMeta.of(earlier.artifact).best_of or 1
    read, written = side([config.agent], "", candidates / before)
    human_read, human_written = side(config.sims, "human_")
    work = RolloutWork(
        tasks=len(tasks),
        dialogues=len(requested),
        missing=missing,
        turns=turns,
        tokens_read=read,
        tokens_written=written,
        tokens_judged=None if judge is None else 0,
        human_tokens_read=human_read,
        human_tokens_written=human_written,
    )
    if judge is not None and (judge.computed or judge.asked):
        observed = times(candidates if judge.asked else 1, read)
        judged = None if observed is None or written is None or not is_model(config.agent) else observed + written
        work = work.model_copy(update={"tokens_judged": judged})
        assumed.append(
            "The judge reads what the agent reads and writes, a language model for each candidate again. The "
            "training-time information and the judge's own prompt and answers are not counted."
        )
    return Plan(work=work, assumed=assumed)
