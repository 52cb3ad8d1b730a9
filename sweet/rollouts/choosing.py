"""Best of N within a dialogue (the paper's figure 3a): N replies are sampled at each turn of the agent, a judge scores
them, and the dialogue goes on with the best.

The other candidates are not kept: the turn records the advantages of all (`sweet.tasks.trajectory.Choice`), and the
sampling seed gives the same candidates again.
"""

from __future__ import annotations

from functools import partial

from sweet.errors import UsageError
from sweet.hints import Hint, option
from sweet.judges.base import JudgedTurn
from sweet.judges.control import CreditScorer, check_credit_known
from sweet.judges.critic import load_trained_judge, untrained_loader
from sweet.judges.opening import ChosenJudge
from sweet.judges.options import LOOKAHEAD, JudgeName, check_judge_options
from sweet.llm.scripted import has_model
from sweet.rollouts.config import CHOOSERS_OF_OPTION, RolloutConfig
from sweet.runs.run import Run
from sweet.stages.critics import CriticSettings, check_reference, check_turn_tokens
from sweet.stages.rows import Candidate
from sweet.tasks.base import Task
from sweet.tasks.kind import TaskKind, opening
from sweet.tasks.trajectory import Choice


def choose(judged: JudgedTurn) -> Choice:
    """Return the choice of the candidate with the highest advantage, the first of equal ones.

    Candidates that could not be judged are not chosen, unless all are: then the first one is, which is an ordinary
    sample of the agent.
    """
    advantages = [reply.advantage if isinstance(reply, Candidate) else None for reply in judged.replies]
    known = [(advantage, -place) for place, advantage in enumerate(advantages) if advantage is not None]
    return Choice(
        index=-max(known)[1] if known else 0,
        advantages=tuple(advantages),
        basis=judged.basis,
        unjudged=judged.failures[0].reason if judged.failures else None,
    )


def judge_name(config: RolloutConfig) -> JudgeName:
    """Return the judge that chooses with --best-of."""
    return config.judge or "critic"


def check_choosing(kind: TaskKind, tasks: list[Task], config: RolloutConfig) -> None:
    """Check the options of the choice among candidates.

    Raises:
        UsageError: they do not go together, or the judge cannot judge these tasks.
    """
    given = {name: getattr(config, name) for name in ("judge", *CHOOSERS_OF_OPTION)}
    if (config.best_of or 1) == 1:
        name = next((name for name, value in given.items() if value not in (None, [])), None)
        if name is not None:
            what = Hint(option(name), " chooses among several replies, and one is sampled at each turn.")
            raise UsageError(what, where=option(name), fix=Hint(option("best_of", 8), ", or omit ", option(name)))
        return
    judge = judge_name(config)
    if judge == LOOKAHEAD:
        raise UsageError(
            "What comes next is not known while a dialogue is played.",
            where=option("judge", judge),
            fix=Hint(option("judge", "critic"), ", or a ranking"),
        )
    check_judge_options(judge, given, CHOOSERS_OF_OPTION)
    if config.temperature == 0:
        raise UsageError(
            "At temperature 0 all candidates are the same reply.",
            where=option("temperature", 0),
            fix=Hint("a higher temperature, or omit ", option("best_of")),
        )
    if judge == "oracle":
        scorer = CreditScorer(kind, config.max_turns)
        check_credit_known(scorer, ((task, opening(kind, task, config.max_turns), "") for task in tasks))


def choose_judge(run: Run | None, config: RolloutConfig) -> ChosenJudge | None:
    """Return the judge that the options name; None if one reply is sampled at each turn.

    Raises:
        UsageError: the run, or None in place of it, has no such critic; or the model that judges `untrained` is not
            known.
    """
    if (config.best_of or 1) == 1:
        return None
    judge = judge_name(config)
    settings = CriticSettings(config.device, config.max_length, turn_tokens=config.turn_tokens)
    if judge == "critic":
        if run is None:
            raise UsageError(
                "A critic of the run chooses, and there is no run yet.",
                where=option("judge", "critic"),
                fix=Hint("name a run that has a critic, or another judge: ", option("judge", "untrained")),
            )
        critic = run.find("critic", config.critic, needed_by="rollout --best-of")
        check_reference(critic, config.reference, config.reference_context)
        check_turn_tokens(critic, None, config.turn_tokens)
        how = (config.reference, None, config.reference_context)
        load = partial(load_trained_judge, run.path.absolute(), critic.id, settings, *how)
        return ChosenJudge(judge, config, critic=critic, load=load)
    if judge == "untrained":
        start = config.reference or config.agent
        if not has_model(start):
            raise UsageError(
                "The judge untrained is the agent's model, and the agent is scripted.",
                where=option("agent", start),
                fix=option("reference", "MODEL"),
            )
        return ChosenJudge(judge, config, start=start, load=untrained_loader(start, settings))
    return ChosenJudge(judge, config)
