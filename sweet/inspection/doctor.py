"""`sweet doctor`: what this machine has and lacks, and the commands that fix it.

A check tests the component itself if that is cheap (it runs a jail, opens a connection), and only its installed package
if a test would take a minute (vllm, deepspeed). Code that may crash or hang, such as importing torch, runs in a
separate Python process with a time-out. A check that fails unexpectedly is reported as a problem: the doctor itself
never fails.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from sweet.credit.names import RULES
from sweet.credit.registry import rule_class
from sweet.errors import SweetError
from sweet.installation import (
    DISTRIBUTION,
    PACKAGE,
    VERSION,
    install_command,
    installed_version,
    unsuitable_versions,
)
from sweet.paths import RUNS
from sweet.plugins import CREDIT, Plugin, plugins
from sweet.stages.options import RayConfig
from sweet.tasks.registry import task_kind
from sweet.units import count, format_bytes

Status = Literal["ok", "missing", "problem"]

CheckFunction = Callable[[], "list[Check]"]

UNRELATED = "sweet-rl"
"""A package on PyPI whose module is called sweet, too."""
MIN_FREE = 2 * 1024**3
"""Bytes of free space below which the disk is a problem; a demo needs about a tenth of it."""


class DoctorConfig(RayConfig):
    runs: Path = RUNS
    """Folder of the runs, for the free disk space."""
    timeout: float = Field(default=5.0, gt=0)
    """Seconds to wait for the model hub."""
    import_timeout: float = Field(default=120.0, gt=0)
    """Seconds to wait for another Python to import torch."""
    report: bool = False
    """Print the checks and the versions of the libraries as Markdown for a bug report, without keys and names."""


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes:
        status: `missing` is not installed, `problem` is installed but does not work.
        found: what was found.
        why: what it is needed for.
        fix: the command that fixes it; empty if there is nothing to fix.
        required: the pipeline on the packaged dataset and agent needs it.
    """

    name: str
    status: Status
    found: str
    why: str
    fix: str = ""
    required: bool = False


def run_doctor(config: DoctorConfig) -> list[Check]:
    """Run all checks and return them in the order of display. All but the one that forks processes run in parallel."""
    sandbox = _guarded("sandbox", check_sandbox, required=True)
    with ThreadPoolExecutor(10) as pool:

        def submit(name: str, check: CheckFunction, required: bool = False) -> Future[list[Check]]:
            return pool.submit(_guarded, name, check, required)

        first = [
            submit("Python", check_python, required=True),
            submit("sweet", check_installation, required=True),
            submit("packages", check_packages),
            submit("torch", partial(check_torch, config.import_timeout), required=True),
            submit("micro agent", check_micro_agent, required=True),
            submit("disk", partial(check_disk, config.runs), required=True),
        ]
        further = [
            submit("model hub", partial(check_hub, config.timeout)),
            submit("kinds of tasks", check_kinds),
            submit("credit rules", check_rules),
            submit("ColBench", check_colbench),
            submit("vllm", check_vllm),
            submit("deepspeed", check_deepspeed),
            submit("Firefox", check_firefox),
        ]
        return _results(first) + sandbox + _results(further)


def _results(futures: list[Future[list[Check]]]) -> list[Check]:
    return [check for future in futures for check in future.result()]


def healthy(checks: list[Check]) -> bool:
    """Return whether all required checks are ok."""
    return all(check.status == "ok" for check in checks if check.required)


def as_json(checks: list[Check]) -> dict[str, Any]:
    return {"stage": "doctor", "healthy": healthy(checks), "checks": [asdict(check) for check in checks]}


def _guarded(name: str, check: CheckFunction, required: bool = False) -> list[Check]:
    try:
        return check()
    except Exception as error:
        what = f"the check itself failed: {type(error).__name__}: {error}"
        return [Check(name, "problem", what, "unknown", "report this as a bug in sweet", required)]


def _run_python(python: str, code: str, timeout: float) -> tuple[str | None, str]:
    """Run code in another Python. Return (its stdout, "") or (None, the reason of the failure)."""
    try:
        process = subprocess.run(
            [python, "-c", code], capture_output=True, text=True, errors="replace", timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return None, f"no answer within {timeout:g} seconds"
    except OSError as error:
        return None, str(error)
    if process.returncode:
        last = process.stderr.strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
        return None, last[0]
    return process.stdout.strip(), ""


def check_python() -> list[Check]:
    cores = count(os.cpu_count() or 1, "core")
    found = f"{platform.python_version()} at {sys.executable}, {cores}, {platform.platform(terse=True)}"
    status: Status = "ok" if sys.version_info >= (3, 11) else "problem"
    fix = "" if status == "ok" else "install Python 3.11 or newer and make a virtual environment with it"
    return [Check("Python", status, found, "everything", fix, required=True)]


def check_installation() -> list[Check]:
    """Check that the imported `sweet` is this project, and that its distribution is installed: kinds of tasks are found
    by its metadata. `sweet-rl` is an unrelated package on PyPI, whose module has the same name."""
    why = "this program, and the kinds of tasks that come with it"
    imported = Path(PACKAGE, "__init__.py")
    own = installed_version(DISTRIBUTION)
    unrelated = installed_version(UNRELATED)
    if unrelated is not None:
        what = f"the unrelated package {UNRELATED} {unrelated} is installed, whose module is called sweet too"
        return [
            Check("sweet", "problem", what, why, f"pip uninstall {UNRELATED}, then {install_command()}", required=True)
        ]
    if own is None:
        what = f"{imported.parent} is not installed: {DISTRIBUTION} has no metadata"
        return [Check("sweet", "problem", what, why, install_command(), required=True)]
    installed = Path(str(importlib.metadata.distribution(DISTRIBUTION).locate_file("sweet/__init__.py")))
    if installed.exists() and not installed.samefile(imported):
        what = f"another package called sweet is in {installed.parent}; this one is {imported.parent}"
        fix = f"pip uninstall the package that installed it, then {install_command()}"
        return [Check("sweet", "problem", what, why, fix, required=True)]
    return [Check("sweet", "ok", f"{VERSION} at {imported.parent}", why, required=True)]


_TORCH = """
import json, torch
gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
print(json.dumps({"torch": torch.__version__, "gpus": gpus, "threads": torch.get_num_threads()}))
"""


def check_packages() -> list[Check]:
    why = "the versions that were tested; others may fail, or compute other numbers"
    wrong = unsuitable_versions()
    if wrong:
        return [Check("packages", "problem", ", ".join(wrong.values()), why, install_command())]
    return [Check("packages", "ok", "all versions are those that sweet allows", why)]


def check_torch(timeout: float) -> list[Check]:
    why = "the embedded engine and all training"
    fix = install_command()
    version = installed_version("torch")
    if version is None:
        return [Check("torch", "missing", "not installed", why, fix, required=True)]
    output, problem = _run_python(sys.executable, _TORCH, timeout)
    if output is None:
        return [Check("torch", "problem", f"{version} does not import: {problem}", why, fix, required=True)]
    facts = json.loads(output.splitlines()[-1])
    device = ", ".join(facts["gpus"]) or f"no GPU, {count(facts['threads'], 'CPU thread')}"
    transformers = installed_version("transformers")
    checks = [Check("torch", "ok", f"{facts['torch']}, {device}", why, required=True)]
    if transformers is None:
        return [*checks, Check("transformers", "missing", "not installed", why, fix, required=True)]
    return [*checks, Check("transformers", "ok", transformers, why, required=True)]


def check_micro_agent() -> list[Check]:
    from sweet.tasks.micro import PACKAGED

    reasons = {
        "micro": "the agent of sweet demo, and the default agent of every command",
        "micro-parts": "the agent of the generated tasks micro-parts",
    }
    return [_packaged_agent(f"{name} agent", PACKAGED[name], why) for name, why in reasons.items()]


def _packaged_agent(name: str, folder: Path, why: str) -> Check:
    wrong = checkpoint_problem(folder)
    if wrong is None:
        size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
        return Check(name, "ok", f"{folder}, {format_bytes(size)}", why, required=True)
    status: Status = "problem" if folder.is_dir() else "missing"
    return Check(name, status, wrong, why, install_command(), required=True)


def checkpoint_problem(folder: Path) -> str | None:
    """Return what is wrong with a model directory. Checks configuration, tokenizer and the header of the weights."""
    if not folder.is_dir():
        return f"{folder} does not exist"
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        file = folder / name
        if not file.is_file():
            return f"{file} does not exist"
        try:
            json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            return f"{file} is not JSON: {error}"
    weights = folder / "model.safetensors"
    if not weights.is_file():
        return f"{weights} does not exist"
    return _weights_problem(weights)


def _weights_problem(weights: Path) -> str | None:
    """Check a safetensors file: 8 bytes with the length of a JSON header, the header, and the described tensors."""
    size = weights.stat().st_size
    with weights.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > size - 8:
            return f"{weights} is truncated"
        try:
            header = json.loads(file.read(length))
        except ValueError:
            return f"{weights} is damaged"
    end = max((entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"), default=0)
    return None if 8 + length + end == size else f"{weights} is truncated"


def check_sandbox() -> list[Check]:
    """Return one check per tier, and a required one: that at least one of the jails works."""
    from sweet.sandbox.tiers import probe_tiers

    why = "running the code that an agent delivers"
    tiers = [tier for tier in probe_tiers() if tier.name != "unsafe"]
    jails = [tier.name for tier in tiers if tier.works]
    install = next((tier.fix for tier in tiers if tier.fix), "apt install bubblewrap")
    summary = Check(
        "sandbox",
        "ok" if jails else "problem",
        f"{jails[0]} is used" if jails else "no jail works here",
        why,
        "" if jails else install,
        required=True,
    )
    return [summary] + [
        Check(
            f"sandbox {tier.name}",
            "ok" if tier.works else "missing",
            tier.detail,
            f"{why} (one of the jails is enough)",
            "" if tier.works else tier.fix or "",
        )
        for tier in tiers
    ]


def check_disk(runs: Path) -> list[Check]:
    """Check free space and write permission of the folder of runs, or of its nearest existing parent."""
    folder = runs.absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    found = f"{format_bytes(free)} free at {folder}"
    why = "run directories"
    if not os.access(folder, os.W_OK):
        return [Check("disk", "problem", f"{folder} cannot be written", why, f"chmod u+w {folder}", required=True)]
    if free < MIN_FREE:
        return [Check("disk", "problem", found, why, f"du -sh {folder}/* | sort -h", required=True)]
    return [Check("disk", "ok", found, why, required=True)]


def check_hub(timeout: float) -> list[Check]:
    why = "models and datasets by name (ColBench, any model except the packaged one)"
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return [Check("model hub", "missing", "HF_HUB_OFFLINE is set: not checked", why, "unset HF_HUB_OFFLINE")]
    address = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    fix = f"curl -sI {address}   (set HTTPS_PROXY for a proxy, HF_ENDPOINT for a mirror)"
    if not address.startswith(("http://", "https://")):
        return [Check("model hub", "problem", f"HF_ENDPOINT is not an address: {address}", why, "unset HF_ENDPOINT")]
    request = urllib.request.Request(address, method="HEAD", headers={"User-Agent": "sweet-doctor"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return [Check("model hub", "ok", f"{address} answers {answer.status}", why)]
    except urllib.error.HTTPError as error:
        error.close()
        status: Status = "ok" if error.code < 500 else "problem"
        return [Check("model hub", status, f"{address} answers {error.code}", why, "" if status == "ok" else fix)]
    except OSError as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        return [Check("model hub", "missing", f"{address} cannot be reached: {reason}", why, fix)]


def check_colbench() -> list[Check]:
    from sweet.tasks.files import COLBENCH_SPLITS, colbench_file

    why = "the tasks of the paper; without them the packaged tasks are used"
    existing = [split for split in COLBENCH_SPLITS if colbench_file(split).is_file()]
    folder = colbench_file("test").parent
    if len(existing) == len(COLBENCH_SPLITS):
        return [Check("ColBench", "ok", f"{', '.join(existing)} in {folder}", why)]
    return [Check("ColBench", "missing", f"not in {folder}", why, "sweet data colbench")]


def check_kinds() -> list[Check]:
    """Import and check the kinds of tasks of other packages."""
    why = "tasks that are not code or pages"
    found = [plugin for installed in plugins().values() for plugin in installed if not plugin.ours]
    checks = [_check_kind(plugin) for plugin in found]
    return checks or [Check("kinds of tasks", "ok", "only the built-in ones: code, html", why)]


def _check_kind(plugin: Plugin) -> Check:
    name, why = f"--task {plugin.name}", f"tasks of the kind {plugin.name}"
    try:
        if any(other.ours for other in plugins()[plugin.name]):
            what = f"{plugin} has the name of a built-in kind; --task {plugin.name} is the built-in one"
            return Check(name, "problem", what, why, f"rename the kind of {plugin.package}")
        task_kind(plugin.name)
    except SweetError as error:
        return Check(name, "problem", f"{error.what} {error.where or ''}".strip(), why, error.fix or "")
    return Check(name, "ok", str(plugin), why)


def check_rules() -> list[Check]:
    """Import and check the credit rules of other packages."""
    why = "trainings by a rule of another package"
    found = [plugin for installed in plugins(CREDIT).values() for plugin in installed]
    checks = [_check_rule(plugin) for plugin in found]
    return checks or [Check("credit rules", "ok", f"only the built-in ones: {', '.join(RULES)}", why)]


def _check_rule(plugin: Plugin) -> Check:
    name, why = f"--method {plugin.name}", f"trainings by the credit rule {plugin.name}"
    if plugin.name in RULES:
        what = f"{plugin} has the name of a built-in rule; --method {plugin.name} is the built-in one"
        return Check(name, "problem", what, why, f"rename the rule of {plugin.package}")
    try:
        rule_class(plugin.name)
    except SweetError as error:
        return Check(name, "problem", f"{error.what} {error.where or ''}".strip(), why, error.fix or "")
    return Check(name, "ok", str(plugin), why)


def check_vllm() -> list[Check]:
    why = "serving agents and simulated humans of 1B parameters or more"
    version, program = installed_version("vllm"), shutil.which("vllm")
    if version is None and program is None:
        fix = f"{install_command('gpu')}, or give the address of a server with --agent-url and --sim-url"
        return [Check("vllm", "missing", "not installed", why, fix)]
    if program is None:
        fix = "pip install --force-reinstall --no-deps vllm"
        return [Check("vllm", "problem", f"{version}, but no vllm command on PATH", why, fix)]
    return [Check("vllm", "ok", f"{version or 'of another environment'} at {program}", why)]


def check_deepspeed() -> list[Check]:
    why = "training on more than one GPU or node"
    version = installed_version("deepspeed")
    if version is None:
        return [Check("deepspeed", "missing", "not installed", why, install_command("gpu"))]
    return [Check("deepspeed", "ok", version, why)]


def check_firefox() -> list[Check]:
    """Check the requirements of frontend tasks: a Firefox, and the files that pages load."""
    from sweet.render.assets import ASSETS, asset_folder
    from sweet.render.firefox import find_firefox

    why = "frontend tasks (--task html): screenshots of pages"
    try:
        found = find_firefox()
    except SweetError as error:
        checks = [Check("Firefox", "missing", f"{error.what} {error.where or ''}".strip(), why, error.fix or "")]
    else:
        version = f" {installed_version('playwright')}" if found.driver == "playwright" else ""
        checks = [Check("Firefox", "ok", f"{found}{version}", why)]
    folder, why = asset_folder(), "frontend pages that load Tailwind, like those of ColBench"
    missing = [asset.name for asset in ASSETS if not (folder / asset.name).is_file()]
    if missing:
        what = f"{', '.join(missing)} not in {folder}"
        return [*checks, Check("page assets", "missing", what, why, "sweet data assets")]
    return [*checks, Check("page assets", "ok", f"{count(len(ASSETS), 'file')} in {folder}", why)]
