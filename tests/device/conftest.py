"""One stand-in for the whole room, on a private adb server: no test here ever talks to port 5037."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mtplab.device.adb import free_port
from mtplab.device.link import Link
from mtplab.device.standin_host import StandinProcess

CAPTURES = Path(__file__).parents[1] / "data" / "device"


@pytest.fixture(scope="session", autouse=True)
def _hermetic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Anything that would reach the user's adb server or folders lands in an empty corner."""
    changed = {
        "ANDROID_ADB_SERVER_PORT": str(free_port()),
        "MTPLAB_RUNTIME": str(tmp_path_factory.mktemp("runtime")),
    }
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    yield
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.fixture(scope="session")
def standin(_hermetic: None) -> Iterator[StandinProcess]:
    """A stand-in phone in scenario `normal`; MTPLAB_TEST_BACKEND chooses the shell behind it."""
    backend = os.environ.get("MTPLAB_TEST_BACKEND")
    with StandinProcess(options=["--backend", backend] if backend else ()) as phone:
        yield phone


@pytest.fixture
def link(standin: StandinProcess) -> Iterator[Link]:
    """A link to the stand-in, whose cable is in and on which nothing may be left running."""
    standin.control("plug")
    line = standin.link()
    line.wait_for_return(10)
    yield line


@pytest.fixture
def capture() -> dict[str, str]:
    """The captured device outputs by the number and name of their file."""
    return {path.stem: path.read_text() for path in CAPTURES.glob("*.txt")}
