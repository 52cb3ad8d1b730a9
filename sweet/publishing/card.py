"""The cards of what is pushed: README.md of a model or a dataset, from the manifest and the facts of the run.

The templates are `model_card.md.j2`, `critic_card.md.j2` and `dataset_card.md.j2`. A card says what is known and what
was not shown. Text of the run (names of models, datasets and humans) is in code spans, names that are paths on this
machine lose their folders, and addresses of servers and command lines are left out.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from sweet.errors import UsageError
from sweet.installation import VERSION
from sweet.publishing.dataset import WrittenData, public_name
from sweet.publishing.hub import check_name
from sweet.results.facts import ComparisonFact, Report, ScoresFact, number
from sweet.results.pages import code, markdown, resource, trained_on
from sweet.runs.lineage import ancestors
from sweet.runs.manifest import Artifact, Manifest
from sweet.scoring.results.run_result import rounds_of
from sweet.stages.meta import RolloutsMeta, TrainedMeta
from sweet.units import percent, rate
from sweet.view.text import printable_line

HYPERPARAMETERS = ("protocol", "lr", "epochs", "batch", "beta", "nll", "turn_tokens", "lora", "lora_alpha")


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
    results = [one for one in report.results if one.agent == trained.artifact.id and one.status == "done"]
    results.sort(key=lambda one: report.headline is None or one.id != report.headline.scores)  # the result is the first
    _, rounds = rounds_of(manifest)
    discarded = trained.artifact.id in {one.agent for one in rounds.rounds} - {rounds.best}
    compared = [one for one in report.comparisons if any(result.id == one.after for result in results)]
    tags = ["sweet-rl", "colbench", "multi-turn", "conversational"]
    return _card(
        {**_library(trained), "pipeline_tag": "text-generation", "tags": tags, **_licensed(trained, license)},
        "model_card.md.j2",
        **_of_model(name, trained, license, manifest, report),
        **measurements(results, compared, manifest),
        kept=rounds.best if discarded else "",
        seen=list(dict.fromkeys(map(trained_on, results))),
    )


def measurements(
    results: Sequence[ScoresFact], compared: Sequence[ComparisonFact], manifest: Manifest
) -> dict[str, Any]:
    """Return what the run measured of a model; `not_shown.md.j2` says what that leaves open."""
    humans = sorted({result.sim.partition(":")[0] for result in results})
    trainings = len(manifest.of_kind("actor", "done"))
    return {"results": results, "compared": compared, "humans": humans, "trainings": trainings}


def critic_card(name: str, trained: Trained, license: str | None, manifest: Manifest, report: Report) -> str:
    """Return the card of a critic; the arguments are as of `model_card`."""
    tags = ["sweet-rl", "colbench", "multi-turn", "credit-assignment", "reward-model"]
    return _card(
        {**_library(trained), "tags": tags, **_licensed(trained, license)},
        "critic_card.md.j2",
        **_of_model(name, trained, license, manifest, report),
        measured=measured(trained.artifact, manifest),
    )


def dataset_card(name: str, data: WrittenData, license: str | None, manifest: Manifest, report: Report) -> str:
    """Return the card of a run's data; the arguments are as of `model_card`."""
    head: dict[str, Any] = {
        "task_categories": ["text-generation", "reinforcement-learning"],
        "tags": ["sweet-rl", "colbench", "multi-turn", "preferences"],
        "configs": data.configs(),
        "dataset_info": data.info(),
    }
    head |= {"license": license} if license else {}
    return _card(
        head,
        "dataset_card.md.j2",
        name=Markup(name),
        version=VERSION,
        report=report,
        rows=data.rows,
        rollouts=[(one, RolloutsMeta.of(one)) for one in manifest.of_kind("rollouts", "done")],
        public_name=public_name,
        license=license,
    )


def _card(data: dict[str, Any], template: str, **values: Any) -> str:
    from huggingface_hub import CardData

    return f"---\n{CardData(**data).to_yaml()}\n---\n\n{markdown(template, **values)}"


def _library(trained: Trained) -> dict[str, str]:
    return {"library_name": "peft" if trained.adapter else "transformers"}


def _licensed(trained: Trained, license: str | None) -> dict[str, str]:
    base = trained.base_on_hub
    return {**({"license": license} if license else {}), **({"base_model": base} if base else {})}


def _of_model(name: str, trained: Trained, license: str | None, manifest: Manifest, report: Report) -> dict[str, Any]:
    """Return what the cards of models have in common."""
    meta = TrainedMeta.of(trained.artifact)
    values = meta.as_json()
    lineage = [(one, manifest.attempt(one.attempt)) for one in ancestors(manifest, trained.artifact)]
    return {
        "name": Markup(name),  # it can only have letters, digits and - _ . /
        "trained": trained,
        "meta": meta,
        "settings": ", ".join(f"{key} {values[key]}" for key in HYPERPARAMETERS if values.get(key) is not None),
        "learned_from": [(one, RolloutsMeta.of(one)) for one, _ in lineage if one.kind == "rollouts"],
        "lineage": lineage,
        "public_name": public_name,
        "license": license,
        "report": report,
        "task": Markup(shlex.quote(printable_line(report.task))),
        "paper": Markup(resource("paper.bib").strip()),
    }


def measured(critic: Artifact, manifest: Manifest) -> list[Markup]:
    """Return what the run knows of how well a critic orders dialogues and replies."""
    found = []
    attempt = manifest.attempt(critic.attempt)
    accuracy = None if attempt is None else number(attempt.metrics.get("heldout_accuracy"))
    if attempt is not None and accuracy is not None:
        kept = attempt.config.get("keep")
        chosen = "" if kept == "last" else "; they chose the epoch that was kept, so it is too high"
        found.append(
            f"of the held-out preferences between dialogues it orders {percent(accuracy)} as rewards do{chosen}"
        )
    for candidates in manifest.of_kind("candidates", "done"):
        made = manifest.attempt(candidates.attempt)
        metrics = {} if made is None else made.metrics
        value, low, high = (number(metrics.get(f"agreement{end}")) for end in ("", "_ci_low", "_ci_high"))
        couples = number(metrics.get("couples"))
        if candidates.meta.get("critic") == critic.id and value is not None:
            found.append(
                f"{code(candidates.id)}: of {'some' if couples is None else f'{couples:,.0f}'} couples of replies "
                f"whose worth the tasks know it orders {rate(value, low, high)} as the tasks do, chance is 50 %"
            )
    return list(map(Markup, found))
