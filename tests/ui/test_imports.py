"""What must not be loaded before the lab's first paint."""

from __future__ import annotations

import subprocess
import sys


def test_the_lab_opens_without_numpy_plotext_adbutils_or_torch() -> None:
    heavy = ("numpy", "plotext", "adbutils", "torch", "ai_edge_litert", "psutil")
    code = f"import sys, mtplab.tui.app; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
