"""`sweet data export --to trl`: the pairs of replies as data sets that TRL's trainers load.

`preference.jsonl` (DPOTrainer and others) has one row for each pair, `kto.jsonl` (KTOTrainer) one for each different
reply of the pairs: chosen ones are desirable, rejected ones are not. Both are conversational: the prompt is the list of
messages that the agent had read, the completion one message of the agent, so that a trainer renders them by the chat
template of its model. A reply that is chosen in one pair and rejected in another of the same turn has no label; there
is none for it in `kto.jsonl`. A reply without a rejected one (`sweet pair --unpaired best`) is better than no other,
and is in neither data set.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic_core import to_json

from sweet.datasets.exporting import DataExportConfig
from sweet.datasets.metrics import TrlExportMetrics
from sweet.datasets.skeletons import new_folder
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.stages.base import Reporter, StageResult
from sweet.stages.rows import Pair
from sweet.tasks.base import Message, chat_rows
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
    labels: dict[tuple[str, int, str, str | None], set[bool]] = {}
    prompts: dict[tuple[str, int], tuple[Message, ...]] = {}
    preferences = alone = 0
    with new_folder(config.out) as folder:
        with (folder / PREFERENCE).open("wb") as file:
            for pair in read_jsonl(run.file(pairs), Pair):
                if pair.rejected is None:
                    alone += 1
                    continue
                prompts[(pair.trajectory_id, pair.turn)] = pair.observation
                for label, text, thought in _replies(pair):
                    kept = thought if config.include_thoughts else None
                    labels.setdefault((pair.trajectory_id, pair.turn, text, kept), set()).add(label)
                file.write(_line(preference_row(pair, thoughts=config.include_thoughts)))
                preferences += 1
        plain = {key: found for key, found in labels.items() if len(found) == 1}
        with (folder / KTO).open("wb") as file:
            for (dialogue, turn, text, thought), found in plain.items():
                prompt = chat_rows(prompts[(dialogue, turn)])
                row = {"prompt": prompt, "completion": [_reply(text, thought)], "label": True in found}
                file.write(_line(row))
    desirable = sum(True in found for found in plain.values())
    ambiguous = len(labels) - len(plain)
    if ambiguous:
        reporter.say(f"Chosen in one pair and rejected in another, so without a label: {count(ambiguous, 'reply')}.")
    if alone:
        reporter.say(f"Without a rejected reply, so not exported: {count(alone, 'reply')}.")
    metrics = TrlExportMetrics(
        preferences=preferences,
        replies=len(plain),
        desirable=desirable,
        ambiguous=ambiguous,
        out=str(config.out),
    )
    return StageResult("data export", run.path, metrics)


def preference_row(pair: Pair, *, thoughts: bool = False) -> dict[str, Any]:
    """Return a pair, with a rejected reply, as TRL's conversational preference with an explicit prompt.

    Args:
        thoughts: also the thoughts before the replies, as `reasoning_content`.
    """
    prompt = chat_rows(pair.observation)
    (_, chosen, chosen_thought), (_, rejected, rejected_thought) = _replies(pair)
    return {
        "prompt": prompt,
        "chosen": [_reply(chosen, chosen_thought if thoughts else None)],
        "rejected": [_reply(rejected, rejected_thought if thoughts else None)],
    }


def _replies(pair: Pair) -> Iterator[tuple[bool, str, str | None]]:
    yield True, pair.chosen, pair.chosen_thought
    if pair.rejected is not None:
        yield False, pair.rejected, pair.rejected_thought


def _reply(text: str, thought: str | None) -> dict[str, str]:
    return {"role": "assistant", "content": text, **({"reasoning_content": thought} if thought else {})}


def _line(row: dict[str, Any]) -> bytes:
    return to_json(row) + b"\n"
