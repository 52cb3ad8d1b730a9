"""`sweet data export --to trl`: the pairs of replies as data sets that TRL's trainers load.

`preference.jsonl` (DPOTrainer and others) has one row for each pair, `kto.jsonl` (KTOTrainer) one for each different
reply of the pairs: chosen ones are desirable, rejected ones are not. Both are conversational: the prompt is the list of
messages that the agent had read, the completion one message of the agent, so that a trainer renders them by the chat
template of its model; the tools that were offered are the column `tools`. A reply that is chosen in one pair and
rejected in another of the same turn has no label; there is none for it in `kto.jsonl`. A reply without a rejected one
(`sweet pair --unpaired best`) is better than no other, and is in neither data set.
"""

from __future__ import annotations

import json
from typing import Any

from sweet.datasets.exporting import DataExportConfig
from sweet.datasets.layout import published_line
from sweet.datasets.metrics import TrlExportMetrics
from sweet.datasets.skeletons import new_folder
from sweet.learn.rows import Candidate, Pair
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.stages.base import Reporter, StageResult
from sweet.tasks.base import chat_rows
from sweet.units import count

PREFERENCE, KTO = "preference.jsonl", "kto.jsonl"


def run_trl_export(run: Run, config: DataExportConfig, reporter: Reporter) -> StageResult[TrlExportMetrics]:
    """Write both data sets into the new directory `config.out`.

    Raises:
        UsageError: the run has no pairs, or the directory is not empty.
        InputError: a row of the pairs is damaged.
    """
    assert config.out is not None, "check_options"
    pairs = run.find("pairs", config.from_, needed_by="data export --to trl")
    reporter.say(f"Exporting {pairs.id}.")
    labels: dict[tuple[str, int, str], set[bool]] = {}
    prompts: dict[tuple[str, int], dict[str, Any]] = {}
    preferences = alone = 0
    with new_folder(config.out) as folder:
        with (folder / PREFERENCE).open("wb") as file:
            for pair in read_jsonl(run.file(pairs), Pair):
                if pair.rejected is None:
                    alone += 1
                    continue
                tools = {"tools": [tool.row() for tool in pair.tools]} if pair.tools else {}
                prompt = prompts[pair.trajectory_id, pair.turn] = {"prompt": chat_rows(pair.observation), **tools}
                chosen, rejected = (_reply(reply, config.include_thoughts) for reply in (pair.chosen, pair.rejected))
                file.write(published_line({**prompt, "chosen": [chosen], "rejected": [rejected]}))
                for label, reply in ((True, chosen), (False, rejected)):
                    labels.setdefault((pair.trajectory_id, pair.turn, json.dumps(reply)), set()).add(label)
                preferences += 1
        plain = {key: values for key, values in labels.items() if len(values) == 1}
        with (folder / KTO).open("wb") as file:
            for (dialogue, turn, text), values in plain.items():
                prompt = prompts[dialogue, turn]
                file.write(published_line({**prompt, "completion": [json.loads(text)], "label": True in values}))
    ambiguous = len(labels) - len(plain)
    if ambiguous:
        reporter.say(f"Chosen in one pair and rejected in another, so without a label: {count(ambiguous, 'reply')}.")
    if alone:
        reporter.say(f"Without a rejected reply, so not exported: {count(alone, 'reply')}.")
    metrics = TrlExportMetrics(
        preferences=preferences,
        replies=len(plain),
        desirable=sum(True in values for values in plain.values()),
        ambiguous=ambiguous,
        out=str(config.out),
    )
    return StageResult("data export", run.path, metrics)


def _reply(reply: Candidate, thoughts: bool) -> dict[str, Any]:
    thought = {"reasoning_content": reply.thought} if thoughts and reply.thought else {}
    return {**chat_rows([reply.message])[0], **thought}
