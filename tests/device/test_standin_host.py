"""How the stand-in and its token runner are started: nothing in the caller's folder or environment is run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mtplab.device.standin_host import StandinProcess, isolated_python, token_runner

GUEST = "from pathlib import Path; Path({mark!r}).touch(); raise SystemExit(99)"


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A folder whose modules leave the file `sprung` when one of them is imported."""
    text = GUEST.format(mark=str(tmp_path / "sprung"))
    (tmp_path / "mtplab").mkdir()
    for name in ("mtplab/__init__.py", "msgspec.py", "runpy.py", "numpy.py", "argparse.py"):
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_token_runner_takes_no_module_from_the_folder_it_runs_in(
    trap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(trap))
    done = subprocess.run([*token_runner(), "--help"], cwd=trap, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "--backbone" in done.stdout) == (0, True), done.stderr
    assert not (trap / "sprung").exists()


def test_the_stand_in_takes_no_module_from_the_callers_folder(trap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trap)
    monkeypatch.setenv("PYTHONPATH", str(trap))
    with StandinProcess(root=Path("kept")) as phone:
        assert phone.link().run(["echo", "in"]).stdout == "in\n"
        assert Path(phone.about["root"]) == trap / "kept" / "device"
    assert not (trap / "sprung").exists()


def test_an_isolated_python_runs_this_mtplab_and_sees_the_installed_packages() -> None:
    code = isolated_python("mtplab.standin")
    assert code[1] == "-I"
    done = subprocess.run([*code, "--scenario", "nope"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "there are" in done.stderr
