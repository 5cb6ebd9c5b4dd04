"""The tables of several configurations, from a session that a stranger may have written."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mtplab.report.comparisons import comparison_lines
from mtplab.session import archive

DEMO = Path(__file__).parents[2] / "sessions" / "demo"


@pytest.mark.parametrize("rows", [7, "rows", {"a": 1}, [7, "row"], [{"predicted": 7}], [{"predicted": ["x"]}]])
def test_rows_that_are_none_do_not_keep_the_others_from_being_shown(tmp_path: Path, rows: Any) -> None:
    folder = tmp_path / "mailed"
    folder.mkdir()
    shutil.copy(DEMO / "session.json", folder)
    written = msgspec.json.decode((folder / "session.json").read_bytes())
    good = {"configuration": "g3-t2", "rows": [{"class": "code", "speedup": {"value": 1.25}, "says": "pays"}]}
    written["comparisons"] = [{"configuration": "odd", "rows": rows}, good]
    (folder / "session.json").write_bytes(msgspec.json.encode(written))
    text = "\n".join(comparison_lines(archive.open_session(folder).record))
    assert "g3-t2" in text and "1.25×" in text
