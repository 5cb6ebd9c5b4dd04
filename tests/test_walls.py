"""The walls between rooms hold at run time too: what a command does not need is not loaded."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "litert_torch", "ai_edge_litert", "ai_edge_quantizer", "textual", "adbutils", "plotext", "jax")


def modules_after(code: str) -> set[str]:
    script = f"{code}\nimport sys, json; print('@@' + json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert "@@" in done.stdout, done.stderr
    return set(json.loads(done.stdout.rsplit("@@", 1)[1]))


def cli(*args: str) -> str:
    return (
        "import sys; from mtplab.cli import cli\n"
        f"try: cli.main({list(args)!r}, standalone_mode=False)\n"
        "except SystemExit: pass"
    )


@pytest.mark.parametrize(
    "code",
    [
        cli("--help"),
        cli("--version"),
        cli("calc", "--gamma", "3", "--alpha", "0.7"),
        cli("calc", "--gamma", "3", "--counts", "5,3,2,1", "--json"),
        cli("sessions"),
        "import mtplab.session.archive, mtplab.session.replay",
        "import mtplab.benchlog.command",
        "import mtplab.speculation.decode, mtplab.speculation.command",
        "import mtplab.engine.client",
    ],
)
def test_light_commands_load_nothing_heavy(code: str) -> None:
    loaded = modules_after(code)
    assert "mtplab" in loaded
    assert not loaded & set(HEAVY)


def test_help_does_not_even_load_numpy_or_a_room() -> None:
    loaded = modules_after(cli("--help"))
    assert "numpy" not in loaded
    assert not [m for m in loaded if m.startswith("mtplab.") and m != "mtplab.cli"]


def test_the_token_runner_and_the_stand_in_know_nothing_of_the_lab() -> None:
    loaded = modules_after("import mtplab.standin.__main__")
    foreign = [m for m in loaded if m.startswith("mtplab.") and not m.startswith("mtplab.standin")]
    assert not foreign
    assert not loaded & {"torch", "textual", "adbutils", "msgspec"}
