"""Where sessions, caches and run-time files of a user live."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import platformdirs

_APP = "mtplab"


def sessions_dir() -> Path:
    """Where new sessions go; `MTPLAB_SESSIONS` overrides it."""
    return Path(os.environ.get("MTPLAB_SESSIONS") or Path(platformdirs.user_data_dir(_APP)) / "sessions")


def cache_dir() -> Path:
    """Where stages keep what they made; `MTPLAB_CACHE` overrides it."""
    return Path(os.environ.get("MTPLAB_CACHE") or platformdirs.user_cache_dir(_APP))


def runtime_dir() -> Path:
    """Where locks and sockets live, private to the user; `MTPLAB_RUNTIME` overrides it."""
    named = os.environ.get("MTPLAB_RUNTIME")
    if named:
        path = Path(named)
    else:
        with warnings.catch_warnings():
            # Without XDG_RUNTIME_DIR platformdirs falls back to a folder of the user's in /tmp, and says so: fine.
            warnings.simplefilter("ignore")
            path = Path(platformdirs.user_runtime_dir(_APP))
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def shipped(folder: str) -> Path:
    """A folder of data that comes with mtplab (`themes`, `sessions`), in a wheel or in a checkout."""
    package = Path(__file__).resolve().parents[1]
    wheel = package / "_data" / folder
    return wheel if wheel.is_dir() else package.parent / folder
