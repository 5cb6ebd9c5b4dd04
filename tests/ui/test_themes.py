"""Themes are data: good ones load, bad ones are named and left out before Textual can stumble over them."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.theme import BUILTIN_THEMES

from mtplab.session.paths import shipped
from mtplab.tui.themes import LOUD, load_themes, user_folder


def test_the_shipped_themes_load() -> None:
    loaded, failed = load_themes(shipped("themes"))
    assert failed == []
    assert {t.name for t in loaded} >= {"bench-dark", "bench-contrast"}
    assert {t.dark for t in loaded} == {True, False}
    for theme in loaded:
        theme.to_color_system().generate()
        assert theme.name not in BUILTIN_THEMES


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('primary = "#12"', "primary = '#12' is no colour"),
        ('primary = "#123456"\nprimry = "#123456"', "'primry' is no colour of a theme"),
        ('dark = true', "names no primary colour"),
        ('primary = "#123456"\n[variables]\nloud-error = "red-ish"', "loud-error = 'red-ish' is no colour"),
        ("primary = ", "left out"),
        ("name = 3\nprimary = \"#123456\"", "name is a text"),
    ],
)  # fmt: skip
def test_a_bad_theme_is_left_out_with_a_sentence(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "mine.toml").write_text(text)
    loaded, failed = load_themes(tmp_path)
    assert loaded == [] and len(failed) == 1
    assert "mine.toml" in failed[0] and why in failed[0]


def test_a_users_theme_of_the_same_name_wins() -> None:
    folder = user_folder()
    folder.mkdir(parents=True)
    (folder / "own.toml").write_text('name = "bench-dark"\nprimary = "#010203"')
    loaded, failed = load_themes()
    assert failed == []
    assert next(t for t in loaded if t.name == "bench-dark").primary == "#010203"


def test_loud_plates_keep_their_text_readable() -> None:
    from textual.color import Color

    for theme in load_themes(shipped("themes"))[0]:
        colours = {**LOUD, **theme.variables}
        for name in ("loud-error", "loud-warning", "loud-unknown", "loud-replay"):
            light, dark = sorted(
                (Color.parse(colours["loud-text"]), Color.parse(colours[name])), key=lambda c: -c.brightness
            )
            assert light.brightness - dark.brightness > 0.5, (theme.name, name)
