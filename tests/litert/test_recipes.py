"""Recipes are data that anybody may have written: read, checked and refused with a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtplab.litert.errors import LiteRtError
from mtplab.litert.recipes import (
    Recipe,
    Rule,
    head_recipe_for,
    read_recipes,
    recipe_named,
    recipes,
    user_recipes,
)

ONE = '[mine]\ntitle = "x"\nrules = [{ on = "body", bits = 4, compute = "dynamic", granularity = "block32" }]\n'


def test_every_shipped_recipe_names_itself_and_its_head_recipe_exists() -> None:
    shipped = recipes()
    assert all(recipe.label == name for name, recipe in shipped.items())
    assert {head_recipe_for(recipe).name for recipe in shipped.values()} <= set(shipped)


def test_the_tutorials_mixed_recipe_keeps_the_output_projection_float() -> None:
    assert "output_projection" in recipe_named("mixed").keep
    assert head_recipe_for(recipe_named("mixed_int4")).name == "mixed"
    assert head_recipe_for(recipe_named("mixed_int4"), "float").name == "float"


def test_a_users_file_gives_its_recipe_with_a_hash_in_its_label(tmp_path: Path) -> None:
    file = tmp_path / "r.toml"
    file.write_text(ONE)
    recipe = recipe_named(str(file))
    assert recipe.rules == (Rule(on="body", bits=4, compute="dynamic", granularity="block32"),)
    assert recipe.label == f"mine@{recipe.sha256[:8]}"
    file.write_text(ONE.replace("block32", "block64"))
    assert recipe_named(f"{file}:mine").sha256 != recipe.sha256


def test_a_recipe_that_takes_a_shipped_name_is_not_taken_for_the_shipped_one() -> None:
    mine = Recipe(name="mixed", title="", rules=(Rule(on="body", bits=4, compute="dynamic"),))
    assert mine.label.startswith("mixed@")


def test_the_users_folder_is_read_and_may_not_hide_a_shipped_recipe(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(ONE)
    assert list(user_recipes(tmp_path)) == ["mine"]
    (tmp_path / "b.toml").write_text(ONE.replace("mine", "mixed"))
    with pytest.raises(LiteRtError, match="name of another one"):
        user_recipes(tmp_path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"\xff\xfe", "no TOML"),
        (b"a = " + b"[" * 5000, "no TOML"),
        (b"mine = 3", "is no recipe"),
        (b'[mine]\nname = "mixed"\ntitle = ""\nrules = []', "is no recipe"),
        (b'["\\u001b[31m"]\ntitle = ""\nrules = []', "no plain word"),
        (b'[mine]\ntitle = ""\nrules = [{ bits = 8, compute = "dynamic" }]', "either `on` or `match`"),
        (b'[mine]\ntitle = ""\nrules = [{ on = "body", bits = 3, compute = "dynamic" }]', "3"),
        (b'[mine]\ntitle = ""\nrules = [{ match = "(", bits = 8, compute = "dynamic" }]', "no regular expression"),
        (b'[mine]\ntitle = ""\nrules = [{ on = "body", bits = 8, compute = "dynamic", sise = 1 }]', "sise"),
        (b'[mine]\ntitle = ""\nrules = [{ on = "body", bits = 2, compute = "weight_only" }]', "does not work"),
        (b'[mine]\ntitle = ""\nrules = [{ on = "body", bits = 16, compute = "dynamic" }]', "does not work"),
        (b"", "holds no recipe"),
        (ONE.encode() + ONE.replace("mine", "b").encode(), "several recipes"),
    ],
)
def test_a_file_that_is_no_recipe_is_refused_with_a_sentence(tmp_path: Path, text: bytes, sentence: str) -> None:
    file = tmp_path / "r.toml"
    file.write_bytes(text)
    with pytest.raises(LiteRtError, match=sentence) as refused:
        recipe_named(str(file))
    assert "r.toml" in str(refused.value) and "\n" not in str(refused.value)


def test_a_file_that_is_absent_or_too_big_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LiteRtError, match="no recipe file"):
        recipe_named(str(tmp_path / "absent.toml"))
    big = tmp_path / "big.toml"
    big.write_bytes(b"#" * 300_000)
    with pytest.raises(LiteRtError, match="more than 256 KiB"):
        read_recipes(big)


def test_what_the_quantizer_ignores_or_the_runtime_refuses_is_no_rule() -> None:
    """Blockwise int8 is left float without a word, blockwise int2 is written and does not compile."""
    for bits in (2, 8):
        with pytest.raises(ValueError, match="works per tensor, channel"):
            Rule(on="body", bits=bits, compute="dynamic", granularity="block32")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="mse"):
        Rule(on="body", bits=4, compute="dynamic", granularity="block32", algorithm="mse")
    with pytest.raises(ValueError, match="activation_bits"):
        Rule(on="body", bits=8, compute="dynamic", activation_bits=16)
