"""The cards of what is pushed: README.md of a model or a dataset, written from the manifest and the report of the run.

A card says what is known and what was not shown. Text of the run (names of models, datasets and humans) is in code
spans, names that are paths on this machine lose their folders, and addresses of servers and command lines are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from sweet.errors import UsageError
from sweet.installation import VERSION
from sweet.publishing.dataset import WrittenData, public_name
from sweet.publishing.hub import check_name
from sweet.report.quote import PAPER, p_value_text, rate_name, rate_text, trained_on
from sweet.report.schema import ComparisonFact, Report, ScoresFact, number
from sweet.runs.lineage import ancestors
from sweet.runs.manifest import Artifact, Manifest
from sweet.scoring.results.statistics import TESTS
from sweet.stages.meta import RolloutsMeta, TrainedMeta
from sweet.tasks.micro import PACKAGED
from sweet.units import count, percent, rate
from sweet.view import safe_markdown
from sweet.view.report.markdown_report import code

_HYPERPARAMETERS = ("protocol", "lr", "epochs", "batch", "beta", "nll", "turn_tokens", "lora", "lora_alpha")


@dataclass(frozen=True)
class Trained:
    """A trained model of a run.

    Attributes:
        base: the model that it started from, by a name that others may read.
        base_license: the license of that; None if it is not known.
        system: the system prompt of its dialogues.
        adapter: whether it is a LoRA adapter.
    """

    artifact: Artifact
    base: str
    base_license: str | None
    system: str
    adapter: bool

    @property
    def base_on_hub(self) -> str | None:
        """The base as the hub names it; None where it is no model of the hub."""
        with suppress(UsageError):  # the hub refuses a card with any other name
            check_name(self.base)
            return self.base
        return None


def model_card(name: str, trained: Trained, license: str | None, manifest: Manifest, report: Report) -> str:
    """Return the card of a trained model.

    Args:
        name: ORG/NAME.
        license: of the model; None if it is not stated.
    """
    data: dict[str, Any] = {
        "library_name": "peft" if trained.adapter else "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["sweet-rl", "colbench", "multi-turn", "conversational"],
    }
    data |= {"license": license} if license else {}
    data |= {"base_model": trained.base_on_hub} if trained.base_on_hub else {}
    return _card(data, list(_model_parts(name, trained, license, manifest, report)))


def critic_card(name: str, trained: Trained, license: str | None, manifest: Manifest, report: Report) -> str:
    """Return the card of a critic; the arguments are as of `model_card`."""
    data: dict[str, Any] = {"library_name": "peft" if trained.adapter else "transformers"}
    data["tags"] = ["sweet-rl", "colbench", "multi-turn", "credit-assignment", "reward-model"]
    data |= {"license": license} if license else {}
    data |= {"base_model": trained.base_on_hub} if trained.base_on_hub else {}
    return _card(data, list(_critic_parts(name, trained, license, manifest, report)))


def _critic_parts(
    name: str, trained: Trained, license: str | None, manifest: Manifest, report: Report
) -> Iterator[str]:
    artifact, variant = trained.artifact, TrainedMeta.of(trained.artifact).variant or "advantage"
    kind = "A LoRA adapter of" if trained.adapter else "Trained from"
    yield f"# {name.split('/')[1]}"
    yield (
        f"**This is a critic, not a chat model.** {kind} {code(trained.base)} on dialogues on tasks of the kind "
        f"{code(report.task)}, it gives each turn of an agent its share in the outcome of the dialogue. Trained with "
        "sweet, a program for SWEET-RL and ColBench."
    )
    yield "## What it reads\n\n" + _READS["no-info" if variant == "no-info" else "informed"]
    yield "## What it computes\n\n" + _COMPUTES["regression" if variant == "regression" else "advantage"]
    measured = _measured(artifact, manifest)
    if measured:
        yield "## Results\n\n" + _list(measured)
    yield "## What was not shown\n\n" + _list(_not_shown_of_critic(measured))
    yield "## Data and method\n\n" + _list(_data(trained, manifest))
    yield "## Lineage\n\n" + _lineage(manifest, artifact)
    use = f"In the run that it was trained in:\n\n```sh\nsweet rank RUN --from {artifact.id}\n```"
    if trained.system:
        use += f"\n\nThe dialogues had this system prompt:\n\n{_fenced(trained.system)}"
    yield f"## Use\n\n{use}"
    yield "## License\n\n" + _license(trained, license)
    yield f"## Citation\n\nThe method:\n\n```bibtex\n{PAPER}\n```"


_READS = {
    "informed": "**The hidden information of the task**, such as its reference solution, in front of the dialogue. An "
    "agent never sees that, so this model can be asked only where it is known: in training, and where replies are "
    "measured. What it is given must not reach an agent that is evaluated.",
    "no-info": "The dialogue alone. Unlike the critics of the method it does not see the hidden information of the "
    "task; it is the control of an ablation.",
}
"""What a critic reads, by whether it sees the training-time information."""

_COMPUTES = {
    "advantage": "The advantage of a reply is the mean over its tokens of the log-probability under this model minus "
    "that under the model that it was trained from, both after the same text. What it would write itself means "
    "nothing.",
    "regression": "The mean of the last hidden states up to the end of a reply, times the weights in "
    "`regression_head.safetensors`, plus its bias if it has one. What the model would write itself means nothing.",
}
"""What a critic computes, by its variant."""


def _measured(critic: Artifact, manifest: Manifest) -> list[str]:
    """Return what the run knows of how well a critic orders dialogues and replies."""
    found = []
    attempt = manifest.attempt(critic.attempt)
    accuracy = None if attempt is None else number(attempt.metrics.get("heldout_accuracy"))
    if attempt is not None and accuracy is not None:
        chosen = (
            "" if attempt.config.get("keep") == "last" else "; they chose the epoch that was kept, so it is too high"
        )
        found.append(
            f"of the held-out preferences between dialogues it orders {percent(accuracy)} as rewards do{chosen}"
        )
    for candidates in manifest.of_kind("candidates", "done"):
        made = manifest.attempt(candidates.attempt)
        metrics = {} if made is None else made.metrics
        value, low, high = (number(metrics.get(f"agreement{end}")) for end in ("", "_ci_low", "_ci_high"))
        if candidates.meta.get("critic") == critic.id and value is not None:
            found.append(
                f"{code(candidates.id)}: of {metrics.get('couples')} couples of replies whose worth the tasks know it "
                f"orders {rate(value, low, high)} as the tasks do, chance is 50 %"
            )
    return found


def _not_shown_of_critic(measured: Sequence[str]) -> list[str]:
    found = [] if measured else ["How well it orders dialogues or replies was not measured in this run."]
    return [
        *found,
        "It learned from dialogues of one agent: how it judges replies of others, or of an agent that was trained "
        "against it, is not known. Agents learn to say what a critic overrates.",
        "Whether an agent that learns from it becomes better is a result of that agent, not of this model.",
        "It is the result of one training; how far results vary between seeds is not known from it.",
    ]


def dataset_card(name: str, data: WrittenData, license: str | None, manifest: Manifest, report: Report) -> str:
    """Return the card of a run's data; the arguments are as of `model_card`."""
    head: dict[str, Any] = {
        "task_categories": ["text-generation", "reinforcement-learning"],
        "tags": ["sweet-rl", "colbench", "multi-turn", "preferences"],
        "configs": data.configs(),
        "dataset_info": data.info(),
    }
    head |= {"license": license} if license else {}
    return _card(head, list(_dataset_parts(name, data, license, manifest, report)))


def _card(data: dict[str, Any], parts: Sequence[str]) -> str:
    from huggingface_hub import CardData

    return f"---\n{CardData(**data).to_yaml()}\n---\n\n" + "\n\n".join(part for part in parts if part) + "\n"


def _model_parts(name: str, trained: Trained, license: str | None, manifest: Manifest, report: Report) -> Iterator[str]:
    artifact, meta = trained.artifact, TrainedMeta.of(trained.artifact)
    results = [result for result in report.results if result.agent == artifact.id and result.status == "done"]
    compared = [one for one in report.comparisons if any(result.id == one.after for result in results)]
    kind = "A LoRA adapter of" if trained.adapter else "Trained from"
    yield f"# {name.split('/')[1]}"
    yield (
        f"{kind} {code(trained.base)} by the method {code(meta.method or 'not recorded')} on tasks of the kind "
        f"{code(report.task)}: the agent asks a person for what a vague request leaves out, turn by turn, and then "
        "delivers the result. Trained with sweet, a program for SWEET-RL and ColBench."
    )
    yield from _results(results, compared)
    yield "## What was not shown\n\n" + _list(not_shown(results, compared, manifest))
    yield "## Data and method\n\n" + _list(_data(trained, manifest))
    yield "## Lineage\n\n" + _lineage(manifest, trained.artifact)
    yield "## Use\n\n" + _use(name, trained, report.task)
    yield "## License\n\n" + _license(trained, license)
    yield f"## Citation\n\nThe method:\n\n```bibtex\n{PAPER}\n```"


def _results(results: Sequence[ScoresFact], compared: Sequence[ComparisonFact]) -> Iterator[str]:
    rows = [
        [
            code(public_name(result.dataset)),
            str(result.tasks or "–"),
            str(result.trajectories or "–"),
            code(public_name(result.sim)),
            code(rate_name(rate.name)),
            rate_text(rate),
        ]
        for result in results
        for rate in result.rates
    ]
    if not rows:
        return
    header = ["tasks", "number", "dialogues", "human", "figure", "mean [95 %]"]
    yield "## Results\n\n" + safe_markdown.table(header, rows, "-rr--r")
    yield "Intervals are 95 % bootstrap intervals over tasks. " + " ".join(
        dict.fromkeys(trained_on(result) for result in results)
    )
    for one in compared:
        for measure in one.measures:
            yield (
                f"On the same {count(one.tasks, 'task')} the model that it was trained from reaches "
                f"{measure.before_text}, this one {measure.after_text}: a paired difference in "
                f"{code(rate_name(measure.name))} of {measure.difference_text} {measure.bounds_text}, "
                f"{p_value_text(measure.p_value)} ({TESTS[measure.test]})."
            )


def not_shown(results: Sequence[ScoresFact], compared: Sequence[ComparisonFact], manifest: Manifest) -> list[str]:
    """Return in sentences what the run does not show of a model: what was not measured, or may be chance."""
    found: list[str] = []
    if not results:
        found.append("It was not evaluated in this run: nothing is known of what it can do.")
    elif not any(result.trained_on_tasks == 0 for result in results):
        found.append(
            "It was not evaluated on tasks of which it is known that it was not trained on them."
            if any(result.trained_on_tasks is None for result in results)
            else "It was evaluated only on tasks among which there are some that it was trained on."
        )
    if results and not compared:
        found.append("It was not compared with the model that it was trained from, on the same tasks.")
    for one in compared:
        found += [
            f"The difference from the model that it was trained from in {code(rate_name(measure.name))} may be "
            f"zero: {measure.difference_text} {measure.bounds_text}."
            for measure in one.measures
            if measure.low <= 0 <= measure.high
        ]
        found += [f"The comparison has a caveat: {code(warning)}" for warning in one.warnings]
    humans = dict.fromkeys(result.sim for result in results)
    if humans and all(human.partition(":")[0] == "scripted" for human in humans):
        found.append(
            "It spoke with a scripted human alone, whose answers follow rules: no language model and no person replied."
        )
    elif humans and not any(human.startswith("person") for human in humans):
        found.append("It spoke with simulated humans alone, and with no person.")
    found.append(
        "It is the result of one training; how far results vary between seeds is not known from it."
        if len(manifest.of_kind("actor", "done")) <= 1
        else "The run has several trainings, which may differ in more than their seed: variation between seeds is not "
        "measured."
    )
    found.append(
        "Nothing else was measured: other tasks and languages, what the base could do and may have lost, and safety."
    )
    return found


def _data(trained: Trained, manifest: Manifest) -> list[str]:
    meta = TrainedMeta.of(trained.artifact)
    method = f"method: {code(meta.method or 'not recorded')}"
    if trained.artifact.kind == "critic":
        method = f"critic of the variant {code(meta.variant or 'advantage')}"
    found = [f"base: {code(trained.base)}", method]
    values = meta.as_json()
    known = [f"{name} {values[name]}" for name in _HYPERPARAMETERS if values.get(name) is not None]
    if known:
        found.append(f"settings: {code(', '.join(known))}")
    for artifact in ancestors(manifest, trained.artifact):
        if artifact.kind == "rollouts":
            played = RolloutsMeta.of(artifact)
            rows = "" if artifact.rows is None else f"{count(artifact.rows, 'dialogue')} "
            human = f", with the human {code(public_name(played.sim))}" if played.sim else ""
            found.append(
                f"learned from {rows}on {code(public_name(played.tasks or 'tasks'))}, split "
                f"{code(played.split or 'not recorded')}{human}"
            )
    return found


def _lineage(manifest: Manifest, artifact: Artifact) -> str:
    rows = []
    for one in ancestors(manifest, artifact):
        attempt = manifest.attempt(one.attempt)
        version = "" if attempt is None else str(attempt.environment.get("sweet") or "")
        inputs = ", ".join(ref.id for ref in one.inputs)
        rows.append(
            [
                code(one.id),
                code(one.attempt),
                f"{one.rows:,}" if one.rows is not None else "–",
                code(inputs),
                code((one.sha256 or "")[:16]),
                code(version),
            ]
        )
    header = ["artifact", "made by", "rows", "from", "sha256 (beginning)", "sweet"]
    return safe_markdown.table(header, rows, "--r---")


def _use(name: str, trained: Trained, task: str) -> str:
    serve = f"vllm serve BASE --enable-lora --lora-modules agent={name}" if trained.adapter else f"vllm serve {name}"
    option = "" if task == "code" else f" --task {task}"
    lines = [
        "Answers are code of a model: run them in a sandbox, as `sweet eval` does.",
        f"```sh\nsweet rollout runs/played{option} --agent {name}\n{serve}\n```",
    ]
    if trained.system:
        lines.append(f"It was trained with this system prompt:\n\n{_fenced(trained.system)}")
    return "\n\n".join(lines)


def _fenced(text: str) -> str:
    fence = "`" * max(4, _most_backticks(text) + 1)
    return f"{fence}text\n{text}\n{fence}"


def _most_backticks(text: str) -> int:
    """Return the length of the longest run of backticks in a text, which a fence around it must exceed."""
    return max((len(list(run)) for letter, run in groupby(text) if letter == "`"), default=0)


def _license(trained: Trained, license: str | None) -> str:
    of_base = (
        f"The base {code(trained.base)} states the license {code(trained.base_license)}."
        if trained.base_license
        else f"The license of the base {code(trained.base)} is not known here: look at its card before any use."
    )
    own = f"This model: {code(license)}." if license else "No license is stated for this model."
    return f"{own} {of_base} The tasks and dialogues that it learned from may have terms of their own."


def _dataset_parts(
    name: str, data: WrittenData, license: str | None, manifest: Manifest, report: Report
) -> Iterator[str]:
    yield f"# {name.split('/')[1]}"
    yield (
        f"Dialogues of agents with a human who knows what their requests leave out, on tasks of the kind "
        f"{code(report.task)}, and what was made of them for SWEET-RL. Written by sweet {VERSION}."
    )
    rows = [[code(subset), code(split), f"{number:,}"] for (subset, split), number in data.rows.items()]
    yield "## Content\n\n" + safe_markdown.table(["subset", "split", "rows"], rows, "--r")
    yield _list(
        [
            "`dialogues`: request, reference and hidden tests of the task, the messages, the answer and its reward",
            "`candidates`: replies to the same messages, with the advantages that a critic or another judge gave them",
            "`preferences`: a better and a worse dialogue on one task, by their ids",
            "`pairs`: a chosen and a rejected reply to the same messages",
        ]
    )
    subset = next(iter(data.rows))
    yield (
        "```python\nfrom datasets import load_dataset\n\n"
        f'load_dataset("{name}", "{subset[0]}", split="{subset[1]}")\n```'
    )
    made = [
        [code(one.id), f"{one.rows:,}" if one.rows is not None else "–", *_played(one), code((one.sha256 or "")[:16])]
        for one in manifest.of_kind("rollouts", "done")
    ]
    header = ["dialogues", "rows", "tasks", "agent", "human", "sha256 (beginning)"]
    yield "## Origin\n\n" + safe_markdown.table(header, made, "-r----")
    yield (
        "The tasks of the split `test` are for evaluation only. References, tests and hidden information are what the "
        "agent does not see: a model that is trained on them cannot be measured on these tasks. Texts of models are as "
        "they were sampled; nobody has read all of them. Thoughts, token ids and timings are left out."
    )
    own = f"License: {code(license)}." if license else "No license is stated."
    yield f"## License\n\n{own} The tasks may have terms of their own."


def _played(rollouts: Artifact) -> list[str]:
    meta = RolloutsMeta.of(rollouts)
    return [code(public_name(text or "")) for text in (meta.tasks, meta.agent, meta.sim)]


def _list(items: Sequence[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def license_of_packaged(base: str) -> str | None:
    """Return the license of a packaged model, which is that of this program; None for any other."""
    return "apache-2.0" if base in PACKAGED else None
