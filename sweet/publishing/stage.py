"""`sweet data push`: the data of a run, or a model that was trained in it, in a repository of the model hub.

What is pushed is written first, and pushed in one commit with its card. With `--out` it is written into a directory,
without the weights of a model, and the hub is not asked for anything but the license of a base.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from sweet.datasets.skeletons import new_folder
from sweet.errors import UsageError
from sweet.llm.adapter import find_adapter
from sweet.publishing.card import Trained, critic_card, dataset_card, model_card
from sweet.publishing.config import PushConfig, PushMetrics
from sweet.publishing.dataset import public_name, write_data
from sweet.publishing.hub import RepoType, check_name, license_of, push_files
from sweet.regular import check_tree
from sweet.results.collect import collect
from sweet.runs.lineage import input_of
from sweet.runs.manifest import Artifact, Kind, Manifest
from sweet.runs.run import Run
from sweet.scoring.results.run_result import result_of
from sweet.stages.artifacts import PROMPTS, agent_system, own_actor, recorded_model
from sweet.stages.base import Reporter, StageResult
from sweet.stages.meta import TrainedMeta
from sweet.tasks.packaged import PACKAGED

CARD = "README.md"
_SUFFIXES = (".safetensors", ".json", ".jinja", ".model", ".txt")
"""Files of a model that are pushed: its weights, configuration and tokenizer."""


def run_push(run: Run, name: str, config: PushConfig, reporter: Reporter) -> StageResult[PushMetrics]:
    """Push the data of a run, or a model of it; or write what would be pushed into `config.out`.

    Args:
        name: of the repository, ORG/NAME.

    Raises:
        UsageError: the name is none, the run has nothing to push, or the hub does not let the user write.
        InputError: a row of the data is damaged, or a file of the model is no regular file.
        ServerError: the hub could not be reached, or answered with an error.
    """
    check_name(name)
    if config.actor is not None and config.critic is not None:
        raise UsageError("One model is pushed.", where="--actor and --critic", fix="one of them")
    kind: RepoType = "dataset" if config.actor is None and config.critic is None else "model"
    with tempfile.TemporaryDirectory(prefix="sweet-push-") as temporary:
        if kind == "dataset":
            files, rows = _data(run, name, config, Path(temporary), reporter)
            weights: dict[str, Path] = {}
        else:
            files, weights = _model(run, name, config, Path(temporary) / "merged", reporter)
            rows = {}
        everything = {**files, **weights}
        url = None
        if config.out is not None:
            _write(config.out, files)
        else:
            reporter.say(f"Pushing {kind} {name}, {'public' if config.public else 'private'} if it is new.")
            url = push_files(everything, name, kind, public=config.public)
        metrics = PushMetrics(
            repository=name,
            what=kind,
            url=url,
            files=len(everything),
            bytes=sum(len(one) if isinstance(one, bytes) else one.stat().st_size for one in everything.values()),
            rows=rows,
        )
    return StageResult("data push", run.path, metrics)


def _write(folder: Path, files: Mapping[str, Path | bytes]) -> None:
    with new_folder(folder) as inside:
        for path, found in files.items():
            target = inside / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(found if isinstance(found, bytes) else found.read_bytes())


def _data(
    run: Run, name: str, config: PushConfig, folder: Path, reporter: Reporter
) -> tuple[dict[str, Path | bytes], dict[str, int]]:
    """Return the files of the dataset, and its rows by subset and split."""
    written = write_data(run, folder, reporter)
    card = dataset_card(name, written, config.license, run.manifest(), collect(run))
    files: dict[str, Path | bytes] = {CARD: card.encode(), **written.files}
    return files, {f"{subset}/{split}": number for (subset, split), number in written.rows.items()}


def _model(
    run: Run, name: str, config: PushConfig, merged: Path, reporter: Reporter
) -> tuple[dict[str, Path | bytes], dict[str, Path]]:
    """Return the card of a model, and the files of the model. An adapter whose base is not on the hub, so that others
    could not load it, is merged into that first, in the folder `merged`."""
    manifest = run.manifest()
    which: Kind = "actor" if config.critic is None else "critic"
    given = config.actor if config.critic is None else config.critic
    if which == "actor" and given == "kept":
        result = result_of(manifest)
        given = "last" if result is None else result.agent
    model = run.find(which, None if given == "last" else given, needed_by="data push")
    folder = run.file(model)
    check_tree(folder)
    trained = _trained(run, manifest, model, folder)
    if trained.adapter and trained.base_on_hub is None:
        from sweet.learn.trainee import write_merged

        reporter.say(f"{model.id} is an adapter of a model that is not on the hub: it is merged into that.")
        write_merged(str(folder), merged)
        trained = replace(trained, adapter=False)
    weights = {
        file.relative_to(source).as_posix(): file
        for source in (folder, merged)  # what was merged replaces the adapter's
        for file in sorted([*source.glob("*"), *source.glob(f"{PROMPTS}*/*")])
        if file.is_file()
        and file.suffix in _SUFFIXES
        and not file.name.startswith(".")
        and (trained.adapter or not file.name.startswith("adapter_"))
    }
    if not any(file.suffix == ".safetensors" for file in weights.values()):
        raise UsageError("The model has no weights in safetensors.", where=folder, fix=f"sweet train-{which}")
    license = config.license or trained.base_license
    if license is None:
        reporter.warn(f"The license of the base {trained.base} is not known: the card states none (--license).")
    write = model_card if which == "actor" else critic_card
    card = write(name, trained, license, manifest, collect(run))
    return {CARD: card.encode()}, weights


def _trained(run: Run, manifest: Manifest, model: Artifact, folder: Path) -> Trained:
    """Return what the card says of a model's origin; of an actor that was trained from another one the first base."""
    first, seen = model, {model.id}
    while (before := own_actor(manifest, TrainedMeta.of(first).base, first)) is not None:
        if before.id in seen:
            break
        first = before
        seen.add(before.id)
    base = recorded_model(run, first, "base") or "not recorded"
    rollouts = input_of(manifest, model, "rollouts")
    return Trained(
        artifact=model,
        base=public_name(base),
        base_license="apache-2.0" if base in PACKAGED else license_of(base),  # the packaged ones have the program's
        system=TrainedMeta.of(model).agent_system or ("" if rollouts is None else agent_system(run, rollouts)),
        adapter=find_adapter(str(folder)) is not None,
    )
