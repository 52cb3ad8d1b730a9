"""How often the human leaked in the dialogues of two evaluations, on the tasks that both have, paired by task.

An agent that is trained against a simulated human finds what makes it say the solution before it finds better
questions. A success rate that rises together with the leak rate is then no better agent, so a comparison shows both.
The dialogues are read, because the rows of scores do not have them.
"""

from __future__ import annotations

from collections.abc import Collection

from sweet.runs.jsonl import scan_jsonl
from sweet.scoring.results.evaluation import Evaluation
from sweet.scoring.results.metrics import Caveat, ComparedLeaks
from sweet.scoring.results.statistics import compare
from sweet.stages.leaks import LeakTally, model_plays
from sweet.tasks.trajectory import leaks_of
from sweet.units import rate


def compare_leaks(a: Evaluation, b: Evaluation, shared: Collection[str]) -> ComparedLeaks | None:
    """Return the leaks of both sides; None where no model plays the human of both, or dialogues are missing.

    Raises:
        InputError: a row of the dialogues is damaged.
    """
    if not all(model_plays(side.played.get("sim")) for side in (a, b)):
        return None
    tallies = [_tally(side, set(shared)) for side in (a, b)]
    ours, theirs = (tally.metrics() for tally in tallies)
    rates = [tally.by_task() for tally in tallies]
    if ours is None or theirs is None or not rates[0].keys() & rates[1].keys():
        return None
    found = compare(rates[1], rates[0])
    p_value = float(f"{found.p_value:.6g}")
    return ComparedLeaks(a=ours, b=theirs, difference=found.difference.rate(), p_value=p_value, test=found.test)


def leak_caveats(leaks: ComparedLeaks | None) -> list[Caveat]:
    """Return the warning that the human leaks more often on one side, if the interval of the difference excludes 0."""
    if leaks is None or leaks.difference.ci_low <= 0 <= leaks.difference.ci_high:
        return []
    rates = [side.leak_rate for side in (leaks.a, leaks.b)]
    shown = [rate(one.value, one.ci_low, one.ci_high) for one in rates]
    text = f"Dialogues in which the human leaked the solution: {shown[0]} in A, {shown[1]} in B."
    return [Caveat(about="leak_rate", text=text, a=rates[0].value, b=rates[1].value)]


def _tally(side: Evaluation, wanted: set[str]) -> LeakTally:
    tally = LeakTally()
    if side.rollouts is None or not (path := side.run.file(side.rollouts)).is_file():
        return tally
    for row in scan_jsonl(path):
        task = row.get("task")
        name = task.get("id") if isinstance(task, dict) else None
        if isinstance(name, str) and name in wanted and model_plays(row.get("human") or side.played.get("sim")):
            tally.add(name, leaks_of(row))
    return tally
