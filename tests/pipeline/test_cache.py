"""The store finds only what is whole, and a stage's key follows everything its result depends on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mtplab.pipeline import fingerprint
from mtplab.pipeline.cache import ArtefactRef, Finished, Store, file_sha256, stage_key
from mtplab.pipeline.errors import PipelineError


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


def keep(store: Store, tmp_path: Path, content: bytes = b"weights") -> ArtefactRef:
    source = tmp_path / "made"
    source.write_bytes(content)
    ref = store.put(source)
    store.finish("key", Finished(stage="export", seconds=1.5, artefacts={"a.tflite": ref}))
    return ref


def test_a_finished_stage_is_found_with_its_files(store: Store, tmp_path: Path) -> None:
    ref = keep(store, tmp_path)
    found = store.lookup("key")
    assert found is not None and found.seconds == 1.5
    assert store.path(found.artefacts["a.tflite"].sha256).read_bytes() == b"weights"
    assert file_sha256(store.path(ref.sha256)) == ref.sha256


def test_an_unknown_key_is_not_found(store: Store) -> None:
    assert store.lookup("nothing") is None


def test_a_torn_file_is_not_found(store: Store, tmp_path: Path) -> None:
    ref = keep(store, tmp_path)
    path = store.path(ref.sha256)
    path.write_bytes(b"weig")
    assert store.lookup("key") is None


def test_a_file_changed_at_equal_size_is_not_found(store: Store, tmp_path: Path) -> None:
    ref = keep(store, tmp_path)
    path = store.path(ref.sha256)
    path.write_bytes(b"WEIGHTS")
    os.utime(path, ns=(1, 1))
    assert store.lookup("key") is None


def test_a_missing_file_is_not_found(store: Store, tmp_path: Path) -> None:
    ref = keep(store, tmp_path)
    store.path(ref.sha256).unlink()
    assert store.lookup("key") is None


def test_a_touched_but_whole_file_is_read_again_and_found(store: Store, tmp_path: Path) -> None:
    ref = keep(store, tmp_path)
    os.utime(store.path(ref.sha256), ns=(1, 1))
    assert store.lookup("key") is not None


def test_a_broken_file_is_replaced_when_it_is_made_again(store: Store, tmp_path: Path) -> None:
    ref = keep(store, tmp_path)
    store.path(ref.sha256).write_bytes(b"torn")
    keep(store, tmp_path)
    assert store.lookup("key") is not None


def test_a_torn_result_is_not_found(store: Store, tmp_path: Path) -> None:
    keep(store, tmp_path)
    path = store.root / "keys" / "key.json"
    path.write_bytes(path.read_bytes()[:20])
    assert store.lookup("key") is None


def test_a_file_that_cannot_be_read_to_its_end_never_appears(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "made"
    source.write_bytes(b"weights")

    def full_disk(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        store.put(source)
    assert [path for path in store.root.rglob("*") if path.is_file()] == []


def test_a_result_without_its_file_is_refused(store: Store) -> None:
    with pytest.raises(PipelineError, match="not in the store"):
        store.finish("key", Finished(stage="export", seconds=1, artefacts={"a": ArtefactRef("0" * 64, 3)}))


def test_a_root_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PipelineError, match="MTPLAB_CACHE"):
        Store(tmp_path / "file" / "cache")


BASE: dict[str, Any] = {
    "sources": {"m": "1"},
    "versions": {"torch": "2"},
    "machine": {"cpu": "x"},
    "params": {"gamma": 3, "head": "a"},
    "inputs": {"f": "00"},
}


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("sources", {"m": "2"}),
        ("versions", {"torch": "3"}),
        ("versions", {"torch": None}),
        ("machine", {"cpu": "y"}),
        ("params", {"gamma": 4, "head": "a"}),
        ("inputs", {"f": "01"}),
        ("inputs", {"g": "00"}),
    ],
)
def test_the_key_changes_with_everything_a_result_depends_on(part: str, value: Any) -> None:
    assert stage_key("export", **BASE) != stage_key("export", **{**BASE, part: value})


def test_the_key_does_not_depend_on_the_order_of_parameters() -> None:
    turned = {**BASE, "params": {"head": "a", "gamma": 3}}
    assert stage_key("export", **BASE) == stage_key("export", **turned)
    assert stage_key("export", **BASE) != stage_key("align", **BASE)


def test_sources_follow_imports_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "mtplab"
    for folder in ("one", "two"):
        (package / folder).mkdir(parents=True)
    (package / "one" / "top.py").write_text("from mtplab.two import (\n    deep,\n)\nimport json\n")
    (package / "two" / "deep.py").write_text("def f():\n    from mtplab.two.lazy import X\n")
    (package / "two" / "lazy.py").write_text("X = 1\n")
    (package / "two" / "other.py").write_text("")
    monkeypatch.setattr(fingerprint, "_PACKAGE", package)
    before = fingerprint.source_hashes(["mtplab.one.top"])
    assert set(before) == {"mtplab.one.top", "mtplab.two.deep", "mtplab.two.lazy"}
    (package / "two" / "lazy.py").write_text("X = 2\n")
    after = fingerprint.source_hashes(["mtplab.one.top"])
    assert {name for name in before if before[name] != after[name]} == {"mtplab.two.lazy"}


def test_every_module_a_stage_loads_is_in_its_key() -> None:
    from mtplab.pipeline.stage import HOST_STAGES

    light = next(stage for stage in HOST_STAGES if stage.name == "acceptance")
    code = f"import sys, {light.module}; print(*[m for m in sys.modules if m.startswith('mtplab.')])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    known = fingerprint.source_hashes([light.module])
    files = {name for name in loaded if not Path(sys.modules["mtplab"].__path__[0], *name.split(".")[1:]).is_dir()}
    assert "mtplab.litert.runtime" in files
    assert files <= set(known)


def test_keys_of_all_stages_load_nothing_heavy() -> None:
    code = (
        "import sys; from mtplab.pipeline import fingerprint; from mtplab.pipeline.stage import *; "
        "[fingerprint.package_versions(s.packages) and fingerprint.source_hashes([s.module], s.data) "
        "for s in HOST_STAGES]; fingerprint.machine(); "
        "print([m for m in ('torch', 'jax', 'litert_torch', 'ai_edge_litert', 'ai_edge_quantizer', 'numpy', "
        "'tokenizers', 'textual', 'adbutils') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
