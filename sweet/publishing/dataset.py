"""The data of a run as a dataset of the model hub: dialogues, candidates, preferences and pairs.

Each is a subset with its own features, and a split of the tasks is a split of it. The rows are flat and have the same
columns whatever the run contains, so that readers get the types that the card declares: `messages` for dialogues and
prompts, text for answers, null where something is not known. Thoughts, token ids and timings are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from sweet.datasets.layout import newest_rewards
from sweet.errors import UsageError
from sweet.learn.rows import CandidateRow, Pair, Preference
from sweet.runs.jsonl import read_jsonl
from sweet.runs.lineage import input_of
from sweet.runs.manifest import Artifact, Kind
from sweet.runs.run import Run
from sweet.stages.artifacts import agent_name, agent_system
from sweet.stages.base import Reporter
from sweet.stages.meta import RolloutsMeta
from sweet.tasks.base import Message
from sweet.tasks.splits import SPLITS, TRAIN
from sweet.tasks.trajectory import Trajectory

Feature = dict[str, Any]


def _copied(features: list[Feature]) -> list[Feature]:
    """Return the columns without shared parts, for which YAML would write references that readers of cards change."""
    return [{**one, **({"list": _copied(one["list"])} if "list" in one else {})} for one in features]


def _of(dtype: str, *names: str) -> list[Feature]:
    return [{"name": name, "dtype": dtype} for name in names]


_MESSAGES = [
    *_of("string", "role", "content"),
    {"name": "tool_calls", "list": _of("string", "id", "name", "arguments")},
    *_of("string", "tool_call_id"),
]
_SCORED = [*_of("string", "text"), *_of("float64", "advantage", "sampler", "logprob", "reference", "score")]
FEATURES: dict[str, list[Feature]] = {
    "dialogues": [
        *_of("string", "artifact", "id", "task_id", "request", "reference", "hidden"),
        {"name": "tests", "list": _of("string", "name", "call")},
        {"name": "messages", "list": _MESSAGES},
        *_of("string", "tools", "answer", "outcome", "agent", "human"),
        *_of("int64", "sample"),
        *_of("float64", "reward"),
    ],
    "candidates": [
        *_of("string", "artifact", "trajectory_id", "task_id"),
        *_of("int64", "turn"),
        *_of("string", "basis"),
        {"name": "prompt", "list": _MESSAGES},
        {"name": "candidates", "list": [*_SCORED, *_of("bool", "ended")]},
        *_of("string", "taken"),
    ],
    "preferences": [
        *_of("string", "artifact", "task_id", "chosen", "rejected"),
        *_of("float64", "chosen_reward", "rejected_reward"),
    ],
    "pairs": [
        *_of("string", "artifact", "id", "task_id", "trajectory_id"),
        *_of("int64", "turn"),
        *({"name": name, "list": _MESSAGES} for name in ("prompt", "chosen", "rejected")),
        *_of("float64", "chosen_advantage", "rejected_advantage"),
    ],
}
"""The columns of each subset, as the hub's dataset cards declare them."""


@dataclass
class WrittenData:
    """The files of a dataset.

    Attributes:
        files: by their paths in the repository.
        rows: of each file, by subset and split.
    """

    files: dict[str, Path] = field(default_factory=dict)
    rows: dict[tuple[str, str], int] = field(default_factory=dict)

    def configs(self) -> list[dict[str, Any]]:
        """Return the subsets as the front matter of a card names them."""
        subsets = dict.fromkeys(subset for subset, _ in self.rows)
        return [
            {
                "config_name": subset,
                "data_files": [
                    {"split": split, "path": _path(subset, split)} for found, split in self.rows if found == subset
                ],
                **({"default": True} if subset == "dialogues" else {}),
            }
            for subset in subsets
        ]

    def info(self) -> list[dict[str, Any]]:
        """Return the columns of each subset, in the same place."""
        subsets = dict.fromkeys(subset for subset, _ in self.rows)
        return [{"config_name": subset, "features": _copied(FEATURES[subset])} for subset in subsets]


def write_data(run: Run, folder: Path, reporter: Reporter) -> WrittenData:
    """Write the finished artifacts of a run into a folder, each subset and split as one file.

    Raises:
        UsageError: the run has no dialogues.
        InputError: a row is damaged.
    """
    manifest = run.manifest()
    written = WrittenData()
    for kind, (subset, rows_of) in _SUBSETS.items():
        for artifact in manifest.of_kind(kind, "done"):
            root = input_of(manifest, artifact, "rollouts")
            split = None if root is None else RolloutsMeta.of(root).split
            place = (subset, split if split in SPLITS else TRAIN)
            path = _path(*place)
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("ab") as file, reporter.progress(artifact.id, artifact.rows) as bar:
                for row in rows_of(run, artifact):
                    file.write(to_json({"artifact": artifact.id, **row}, inf_nan_mode="null") + b"\n")
                    written.rows[place] = written.rows.get(place, 0) + 1
                    bar.advance()
            if place in written.rows:
                written.files[path] = target
            else:
                target.unlink()
    if not written.rows:
        raise UsageError("The run has no finished dialogues to push.", where=run.path, fix="sweet rollout")
    return written


def _path(subset: str, split: str) -> str:
    return f"{subset}/{split}.jsonl"


def _dialogues(run: Run, rollouts: Artifact) -> Iterator[dict[str, Any]]:
    rewards, system = newest_rewards(run, rollouts), agent_system(run, rollouts)
    agent = public_name(agent_name(run.manifest(), rollouts) or "") or None
    human = public_name(RolloutsMeta.of(rollouts).sim or "") or None
    for one in read_jsonl(run.file(rollouts), Trajectory):
        yield {
            "id": one.id,
            "task_id": one.task_id,
            "request": one.task.problem_description,
            "reference": one.task.ground_truth,
            "hidden": one.task.hidden_information or None,
            "tests": [{"name": name, "call": call} for name, call in one.task.test_cases.items()],
            "messages": _messages(one.messages(system)),
            "tools": None if one.tools is None else to_json([tool.row() for tool in one.tools]).decode(),
            "answer": one.answer,
            "outcome": one.outcome,
            "agent": agent,
            "human": one.human or human,
            "sample": one.sample,
            "reward": rewards.get(one.id, one.reward),
        }


def _messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return messages with the same columns, whether or not they call tools."""
    return [
        {
            "role": message.role,
            "content": message.content,
            "tool_calls": [call.model_dump() for call in message.tool_calls] if message.tool_calls else None,
            "tool_call_id": message.tool_call_id,
        }
        for message in messages
    ]


def _candidates(run: Run, artifact: Artifact) -> Iterator[dict[str, Any]]:
    columns = {"text", "advantage", "logprob", "reference", "score", "ended"}
    for row in read_jsonl(run.file(artifact), CandidateRow):
        yield {
            **row.model_dump(include={"trajectory_id", "task_id", "turn", "basis"}),
            "prompt": _messages(row.observation),
            "candidates": [
                {**one.model_dump(include=columns), "text": one.whole, "sampler": one.reply.mean_logprob}
                for one in row.candidates
            ],
            "taken": None if row.taken is None else row.taken.whole,
        }


def _preferences(run: Run, artifact: Artifact) -> Iterator[dict[str, Any]]:
    for row in read_jsonl(run.file(artifact), Preference):
        yield row.model_dump(mode="json")


def _pairs(run: Run, artifact: Artifact) -> Iterator[dict[str, Any]]:
    for row in read_jsonl(run.file(artifact), Pair):
        yield {
            **{name: getattr(row, name) for name in ("id", "task_id", "trajectory_id", "turn")},
            "prompt": _messages(row.observation),
            "chosen": _messages([row.chosen.message]),
            "rejected": None if row.rejected is None else _messages([row.rejected.message]),
            "chosen_advantage": row.chosen.advantage,
            "rejected_advantage": None if row.rejected is None else row.rejected.advantage,
        }


_SUBSETS: Mapping[Kind, tuple[str, Callable[[Run, Artifact], Iterator[dict[str, Any]]]]] = {
    "rollouts": ("dialogues", _dialogues),
    "candidates": ("candidates", _candidates),
    "preferences": ("preferences", _preferences),
    "pairs": ("pairs", _pairs),
}
"""The name and the rows of the subset that a kind of artifact becomes."""


def public_name(name: str) -> str:
    """Return names of models or datasets as others may read them: of a path on this machine the last part alone.

    Several names are separated by commas, and a dataset may be followed by its split (`tasks.jsonl / test`).
    """
    return ", ".join(" / ".join(map(_without_folders, one.split(" / "))) for one in name.split(", "))


def _without_folders(name: str) -> str:
    path = Path(name)
    is_path = path.is_absolute() or name.startswith((".", "~"))
    with suppress(OSError, ValueError):  # what no file can be called
        is_path = is_path or path.exists()
    return path.name if is_path else name
