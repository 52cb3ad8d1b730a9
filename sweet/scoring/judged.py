"""Scores that a language model has given finished dialogues, recorded as they come (`logs/ATTEMPT.jsonl`).

They have been paid for: an evaluation that was stopped, by Ctrl-C, an error or the limit of its cost, and is begun
again does not ask for them again. They hold for the same model, prompt and limit of tokens, of which each row has the
digest.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from sweet.errors import InputError
from sweet.judges.llm import JudgePrompt, Score
from sweet.runs.jsonl import JsonlWriter, read_jsonl
from sweet.runs.manifest import LOGS
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.stages.base import digest_of


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    dialogue: str
    judge: str
    digit: int = Field(ge=1, le=9)
    expected: float | None = Field(ge=1, le=9)


class JudgedDialogues:
    """The scores that were recorded for an artifact, and those that come.

    Args:
        artifact: the scores that are being written; the attempts before this one that began them are read.
        rows: the log of the attempt.

    Attributes:
        known: scores by the ids of dialogues.

    Raises:
        InputError: a log is damaged.
    """

    def __init__(self, run: Run, artifact: str, config: EvalConfig, prompt: JudgePrompt, rows: JsonlWriter) -> None:
        self._judge = digest_of([config.judge_model, prompt.text, config.judge_tokens])
        self._rows = rows
        self.known: dict[str, Score] = {}
        for attempt in run.manifest().attempts:
            log = run.path / LOGS / f"{attempt.id}.jsonl"
            if artifact in attempt.outputs and log != rows.path and log.exists():
                self._read(log)

    def _read(self, log: Path) -> None:
        try:
            for row in read_jsonl(log, _Row):
                if row.judge == self._judge:
                    self.known[row.dialogue] = Score(row.digit, row.expected)
        except InputError as error:
            error.fix = "delete this file: the model is then asked again about the dialogues in it"
            raise

    def add(self, dialogue: str, score: Score) -> None:
        """Record a score."""
        self.known[dialogue] = score
        self._rows.write(_Row(dialogue=dialogue, judge=self._judge, digit=score.digit, expected=score.expected))
