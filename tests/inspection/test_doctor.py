"""The doctor checks real components, names the fixes, and never fails itself."""

from __future__ import annotations

import json
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import sweet
from sweet.inspection import doctor
from sweet.inspection.doctor import Check, DoctorConfig, as_json, checkpoint_problem, healthy, run_doctor
from sweet.installation import DISTRIBUTION, install_command
from tests.local_server import QuietHandler, serving
from tests.packages import write_metadata


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_text("{}")
    save_file({"weight": np.zeros((4, 4), np.float32)}, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_a_whole_checkpoint_has_no_problem(checkpoint: Path) -> None:
    assert checkpoint_problem(checkpoint) is None


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_missing_file_of_a_checkpoint_is_named(checkpoint: Path, name: str) -> None:
    (checkpoint / name).unlink()
    assert str(checkpoint / name) in str(checkpoint_problem(checkpoint))


def test_a_damaged_checkpoint_is_reported(checkpoint: Path) -> None:
    weights = checkpoint / "model.safetensors"
    whole = weights.read_bytes()
    for damaged in (whole[:-1], whole[:20], whole[:4], b"", whole[:8] + b"x" * (len(whole) - 8)):
        weights.write_bytes(damaged)
        assert checkpoint_problem(checkpoint)
    weights.write_bytes(whole)
    (checkpoint / "config.json").write_text("{")
    assert "not JSON" in str(checkpoint_problem(checkpoint))
    assert "does not exist" in str(checkpoint_problem(checkpoint / "nothing"))


class Hub(QuietHandler):
    status = 200

    def do_HEAD(self) -> None:
        self.send(self.status, b"")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hub]]:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("no_proxy", "*")
    with serving(Hub) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        yield Hub


@pytest.mark.parametrize(("answer", "status"), [(200, "ok"), (404, "ok"), (503, "problem")])
def test_the_hub_is_asked(hub: type[Hub], monkeypatch: pytest.MonkeyPatch, answer: int, status: str) -> None:
    monkeypatch.setattr(hub, "status", answer)
    (check,) = doctor.check_hub(5)
    assert (check.status, str(answer) in check.found) == (status, True)


def test_an_unreachable_hub_and_an_offline_one(hub: type[Hub], monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")
    (check,) = doctor.check_hub(5)
    assert check.status == "missing"
    assert check.fix
    monkeypatch.setenv("HF_ENDPOINT", "file:///etc")
    assert doctor.check_hub(5)[0].status == "problem"
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert doctor.check_hub(5)[0].fix == "unset HF_HUB_OFFLINE"


def installation(monkeypatch: pytest.MonkeyPatch, site: Path) -> Check:
    """Run the check in an environment whose only installed packages are in `site`."""
    site.mkdir(exist_ok=True)
    monkeypatch.setattr(sys, "path", [str(site)])
    (check,) = doctor.check_installation()
    return check


def test_an_installed_distribution_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = installation(monkeypatch, write_metadata(tmp_path / "site", DISTRIBUTION, "0.1.0", {}))
    assert (check.status, sweet.__version__ in check.found) == ("ok", True)


def test_missing_metadata_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = installation(monkeypatch, tmp_path / "site")
    assert (check.status, check.required, DISTRIBUTION in check.found) == ("problem", True, True)
    assert check.fix == "pip install . in the checkout of sweet"


def test_the_unrelated_package_of_a_similar_name_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = write_metadata(tmp_path / "site", DISTRIBUTION, "0.1.0", {})
    check = installation(monkeypatch, write_metadata(site, "sweet-rl", "0.1", {}))
    assert (check.status, check.required, "unrelated package sweet-rl 0.1" in check.found) == ("problem", True, True)
    assert check.fix == "pip uninstall sweet-rl, then pip install sweet-colbench"
    origin = site / "sweet_colbench-0.1.0.dist-info" / "direct_url.json"
    for text, command in (
        ('{"archive_info": {}, "url": "file:///sweet_colbench.whl"}', "'sweet-colbench[gpu]'"),
        ('{"dir_info": {}, "url": "file:///sweet"}', "'.[gpu]' in the checkout of sweet"),
    ):
        origin.write_text(text)
        assert install_command("gpu") == f"pip install {command}"


def test_another_package_called_sweet_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = write_metadata(tmp_path / "site", DISTRIBUTION, "0.1.0", {})
    (site / "sweet").mkdir()
    (site / "sweet" / "__init__.py").touch()
    check = installation(monkeypatch, site)
    assert (check.status, check.required, str(site / "sweet") in check.found) == ("problem", True, True)


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_openrlhf_of_another_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text, status, word in (
        ("echo 0.11.0", "ok", "0.11.0"),
        ("echo 'ModuleNotFoundError: no openrlhf' >&2; exit 1", "problem", "no openrlhf"),
        ("kill -9 $$", "problem", "exit code -9"),
    ):
        monkeypatch.setenv("SWEET_OPENRLHF_PYTHON", str(script(tmp_path / "python", text)))
        (check,) = doctor.check_openrlhf()
        assert (check.status, word in check.found) == (status, True), check
    monkeypatch.setenv("SWEET_OPENRLHF_PYTHON", str(tmp_path / "nothing"))
    (check,) = doctor.check_openrlhf()
    assert (check.status, "unset SWEET_OPENRLHF_PYTHON" in check.fix) == ("problem", True)


def test_openrlhf_that_is_not_in_this_environment_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SWEET_OPENRLHF_PYTHON", raising=False)
    monkeypatch.setattr(sys, "executable", str(script(tmp_path / "python", "exit 1")))
    (check,) = doctor.check_openrlhf()
    assert (check.status, "export SWEET_OPENRLHF_PYTHON" in check.fix) == ("missing", True)


def test_torch_that_hangs_or_crashes_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text, word in (("exec sleep 60", "no answer"), ("kill -11 $$", "exit code -11")):
        monkeypatch.setattr(sys, "executable", str(script(tmp_path / "python", text)))
        (check,) = doctor.check_torch(0.5)
        assert (check.status, check.required, word in check.found) == ("problem", True, True), check


def test_firefox_and_what_pages_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cryptography", reason="cryptography is not installed")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "browsers"))
    monkeypatch.setenv("SWEET_DATA", str(tmp_path / "data"))
    (firefox,), (assets,) = doctor.check_firefox(), doctor.check_assets()
    assert (firefox.status, "apt install firefox" in firefox.fix) == ("missing", True)
    assert "playwright install firefox" in firefox.fix
    assert (assets.status, assets.fix) == ("missing", "sweet data assets")
    script(tmp_path / "firefox-esr", "true")
    assert "firefox-esr, driven directly" in doctor.check_firefox()[0].found
    monkeypatch.setenv("SWEET_FIREFOX", "no-such-program")
    assert "no-such-program" in doctor.check_firefox()[0].found


def test_firefox_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert ".[html]" in doctor.check_firefox()[0].fix


def test_vllm_without_its_command_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(doctor, "installed_version", lambda package: None)
    assert [doctor.check_vllm()[0].status, doctor.check_deepspeed()[0].status] == ["missing", "missing"]
    monkeypatch.setattr(doctor, "installed_version", lambda package: "0.33.0")
    assert [doctor.check_vllm()[0].status, doctor.check_deepspeed()[0].status] == ["problem", "ok"]
    script(tmp_path / "vllm", "true")
    assert doctor.check_vllm()[0].status == "ok"


def test_a_full_disk_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = tmp_path / "not" / "there" / "yet"
    assert (doctor.check_disk(runs)[0].status, str(tmp_path) in doctor.check_disk(runs)[0].found) == ("ok", True)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage._replace(free=10_000_000))
    assert doctor.check_disk(runs)[0].status == "problem"


def test_a_check_that_fails_is_a_problem_and_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Any:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr("sweet.sandbox.tiers.probe_tiers", broken)
    monkeypatch.setattr(shutil, "which", broken)
    monkeypatch.setattr(doctor, "HUB_TIMEOUT", 0.1)
    checks = {check.name: check for check in run_doctor(DoctorConfig())}
    assert checks["sandbox"].status == checks["vllm"].status == "problem"
    assert "unforeseen" in checks["vllm"].found
    assert not healthy(list(checks.values())), "the sandbox is required"
    assert healthy([checks["vllm"]]), "vllm is not"


def test_packages_that_sweet_does_not_allow_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = write_metadata(tmp_path / "site", DISTRIBUTION, "0.1.0", {})
    needs = [
        "Provides-Extra: gpu",
        "Provides-Extra: test",
        "Requires-Dist: alpha>=2,<3",
        "Requires-Dist: beta>=1",
        "Requires-Dist: gamma>=0.5; extra == 'gpu'",
        "Requires-Dist: delta>=9; extra == 'test'",
        "Requires-Dist: epsilon>=9; sys_platform == 'no such system'",
        "Requires-Dist: absent>=1; extra == 'gpu'",
    ]
    [own] = site.glob("*.dist-info/METADATA")
    own.write_text(own.read_text() + "\n".join([*needs, ""]))
    for name, version in {"alpha": "2.5+cpu", "beta": "1", "gamma": "0.5", "delta": "1", "epsilon": "1"}.items():
        write_metadata(site, name, version, {})
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    [check] = doctor.check_packages()
    assert check.status == "ok"
    for name, version in {"alpha": "3.0", "gamma": "0.4"}.items():
        shutil.rmtree(next(site.glob(f"{name}-*.dist-info")))
        write_metadata(site, name, version, {})
    [check] = doctor.check_packages()
    assert (check.status, check.required) == ("problem", False)
    assert check.found == "alpha 3.0 (allowed: <3,>=2), gamma 0.4 (allowed: >=0.5)"


@pytest.mark.usefixtures("forked_python")
def test_this_machine_has_what_the_pipeline_needs() -> None:
    checks = run_doctor(DoctorConfig())
    assert healthy(checks), [check for check in checks if check.required and check.status != "ok"]
    names = [check.name for check in checks]
    assert len(set(names)) == len(names)
    assert {"Python", "torch", "sandbox", "packaged agents", "model hub", "Firefox", "vllm", "deepspeed"} <= set(names)
    assert all(check.fix for check in checks if check.status != "ok")
    assert all(check.why for check in checks)
    assert json.loads(json.dumps(as_json(checks)))["healthy"] is True
