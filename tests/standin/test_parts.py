"""Keys, path mapping and output filtering, without a device."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplab.standin.files import DeviceFiles, RootFilter
from mtplab.standin.held import HeldFiles
from mtplab.standin.keys import PublicKey, parse_public_key
from mtplab.standin.shell import parse_request

# A 2048-bit key made for this test alone; a signature is s = m^d mod n.
PRIME_BITS = 1024


# How far the next prime is from the number a seed gives: found once, for the search takes seconds.
TO_NEXT_PRIME = {1: 776, 2: 2956}


def _prime(seed: int) -> int:
    number = int.from_bytes(hashlib.shake_256(bytes([seed])).digest(PRIME_BITS // 8), "big")
    number |= (1 << (PRIME_BITS - 1)) | (1 << (PRIME_BITS - 2)) | 1
    prime = number + TO_NEXT_PRIME[seed]
    assert pow(3, prime - 1, prime) == 1
    return prime


@pytest.fixture(scope="module")
def key_pair() -> tuple[PublicKey, int]:
    p, q = _prime(1), _prime(2)
    return PublicKey(p * q, 65537, "test@host"), pow(65537, -1, (p - 1) * (q - 1))


def _sign(key: PublicKey, private: int, token: bytes) -> bytes:
    head = bytes.fromhex("3021300906052b0e03021a05000414")
    block = b"\0\1" + b"\xff" * (256 - 3 - len(head) - 20) + b"\0" + head + token
    return pow(int.from_bytes(block, "big"), private, key.modulus).to_bytes(256, "big")


def test_only_the_right_signature_of_the_right_token_counts(key_pair: tuple[PublicKey, int]) -> None:
    key, private = key_pair
    token = os.urandom(20)
    signature = _sign(key, private, token)
    assert key.verifies(token, signature)
    assert not key.verifies(os.urandom(20), signature)
    assert not key.verifies(token, signature[:-1] + bytes([signature[-1] ^ 1]))
    assert not key.verifies(token, signature[1:])
    assert not key.verifies(token, bytes(256))
    assert not key.verifies(token, b"")


def test_adbs_key_format_is_read(key_pair: tuple[PublicKey, int]) -> None:
    key, _ = key_pair
    raw = struct.pack("<II", 64, 0) + key.modulus.to_bytes(256, "little") + bytes(256) + struct.pack("<I", 65537)
    text = base64.b64encode(raw).decode() + " test@host\n"
    assert parse_public_key(text) == key
    assert parse_public_key(text).fingerprint.replace(":", "").lower() == hashlib.md5(raw).hexdigest()
    hostile = text.replace("test@host", "a\x1b[2J\u202eb")
    assert parse_public_key(hostile).owner == "a?[2J?b"
    for bad in ("", "AAAA", "%%%", base64.b64encode(bytes(524)).decode(), text[:200]):
        with pytest.raises(ValueError):
            parse_public_key(bad)


def test_openssl_agrees_with_the_verification(key_pair: tuple[PublicKey, int], tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to compare with")
    pem, token = tmp_path / "key.pem", tmp_path / "token"
    token.write_bytes(os.urandom(20))
    subprocess.run([openssl, "genrsa", "-out", str(pem), "2048"], check=True, capture_output=True)
    shown = subprocess.run([openssl, "rsa", "-in", str(pem), "-noout", "-modulus"], check=True, capture_output=True)
    words = [openssl, "pkeyutl", "-sign", "-inkey", str(pem), "-in", str(token), "-pkeyopt", "digest:sha1"]
    signature = subprocess.run(words, check=True, capture_output=True).stdout
    key = PublicKey(int(shown.stdout.decode().split("=")[1], 16), 65537)
    assert key.verifies(token.read_bytes(), signature)


@pytest.fixture
def files(tmp_path: Path) -> DeviceFiles:
    root = tmp_path / "device"
    for folder in ("data/local/tmp", "data/media/0", "etc", "dev"):
        (root / folder).mkdir(parents=True)
    (root / "sdcard").symlink_to("data/media/0")
    return DeviceFiles(str(root))


@pytest.mark.parametrize(
    ("argument", "cwd", "mapped"),
    [
        ("/data/x", "/", "R/data/x"),
        ("--graph=/data/x", "/", "--graph=R/data/x"),
        ("a:/data/x,b:/data/y", "/", "a:R/data/x,b:R/data/y"),
        ("/sdcard/x", "/", "R/data/media/0/x"),
        ("../../x", "/data/local", "R/x"),
        ("--f=../x", "/data/local/tmp", "--f=R/data/local/x"),
        ("/../../../etc/passwd", "/", "R/etc/passwd"),
        ("/data/a b", "/", "R/data/a b"),
        ("a/b", "/data", "R/data/a/b"),
        ("--f=x/../../../../../etc/passwd", "/data/local", "--f=R/etc/passwd"),
        ("-fx/../../../../etc/passwd", "/data", "R/etc/passwd"),
        ("a:x/../../../etc/passwd,b:./y", "/data", "a:R/etc/passwd,b:R/data/y"),
        ("--f=out/etc/passwd", "/data/local/tmp", "--f=R/etc/passwd"),
        ("--f=link", "/data/local/tmp", "--f=R/etc/passwd"),
        ("link", "/data/local/tmp", "R/etc/passwd"),
        ("a:link,b:0", "/data/local/tmp", "a:R/etc/passwd,b:0"),
        ("here", "/data/local/tmp", "R/data/local/tmp/here"),
        ("here", "/data/local", "here"),
        ("--here", "/data/local/tmp", "--here"),
        ("local", "/data", "local"),
        (".", "/data", "R/data"),
        ("/data/a=b/c", "/", "R/data/a=b/c"),
        ("", "/data", ""),
        ("1,2:3", "/", "1,2:3"),
        ("http://host/x", "/", "http:R/host/x"),
        ("{}", "/", "{}"),
    ],
)
def test_device_paths_in_arguments_become_host_paths(
    files: DeviceFiles, argument: str, cwd: str, mapped: str
) -> None:
    fill(files)
    assert files.map_argument(argument, cwd) == mapped.replace("R", files.root)


def fill(files: DeviceFiles) -> None:
    """A file, and links that on the host would lead out of the root."""
    here = Path(files.root) / "data" / "local" / "tmp"
    (here / "here").write_text("x")
    (Path(files.root) / "etc" / "passwd").write_text("the device's")
    for name, target in (("out", "../" * 20), ("link", "/etc/passwd"), ("a,b", "/etc/passwd"), ("d:", "/etc")):
        (here / name).symlink_to(target)


@pytest.mark.parametrize(
    "argument",
    [
        "--f=k=/etc/passwd",
        "/data/local/tmp/a,b",
        "--f=./a,b",
        "n:/data/x,m:/data/local/tmp/a,b:/c",
        "--f=here:../../etc=/etc/passwd",
        "/data/local/tmp/d:/passwd",
        "/data/a=../x",
        "/data/a=..",
        "/a," * 2049,
    ],
)
def test_an_argument_that_could_be_read_as_a_path_outside_is_refused(files: DeviceFiles, argument: str) -> None:
    fill(files)
    with pytest.raises(OSError) as refused:
        files.map_argument(argument, "/data/local/tmp")
    assert refused.value.filename == argument


WORDS = ["..", ".", "/", "=", ":", ",", "-", "--f", "etc", "passwd", "out", "link", "a,b", "d:", "here", "x", " "]


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> DeviceFiles:
    """A root full of links that lead outside or in a circle; nobody changes it."""
    root = tmp_path_factory.mktemp("linked") / "device"
    (root / "data" / "local" / "tmp").mkdir(parents=True)
    (root / "etc").mkdir()
    for name, target in (("up", "../../.."), ("out", "/etc"), ("loop", "loop"), ("sdcard", "data")):
        (root / name).symlink_to(target)
    (root.parent / "start").mkdir()
    files = DeviceFiles(str(root))
    fill(files)
    return files


@given(st.lists(st.sampled_from(["..", ".", "data", "local", "up", "out", "loop", "sdcard", "x", ""]), max_size=12))
def test_no_path_leads_outside(linked: DeviceFiles, parts: list[str]) -> None:
    try:
        host = linked.host("/".join(parts))
    except OSError:
        return
    assert (os.path.realpath(host) + "/").startswith(linked.root + "/")


@given(st.lists(st.sampled_from(WORDS), max_size=10))
def test_no_way_to_cut_an_argument_gives_a_file_of_the_host(linked: DeviceFiles, words: list[str]) -> None:
    try:
        mapped = linked.map_argument("".join(words), "/data/local/tmp")
    except OSError:
        return
    start = Path(linked.root).parent / "start"
    pieces = re.split("([=:,])", mapped)
    for first in range(0, len(pieces), 2):
        for last in range(first, len(pieces), 2):
            opened = start / "".join(pieces[first : last + 1])
            if opened.exists():
                assert f"{opened.resolve()}/".startswith((f"{linked.root}/", f"{start}/")), mapped


def test_a_link_swapped_in_is_not_followed(files: DeviceFiles, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "f").write_text("secret")
    (Path(files.root) / "data" / "local" / "tmp" / "d").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError):
        files._open_beneath("/data/local/tmp/d/f", os.O_RDONLY, 0, "f")


def test_a_file_swapped_for_a_link_after_the_check_is_still_the_file_that_was_checked(
    files: DeviceFiles, tmp_path: Path
) -> None:
    fill(files)
    secret = tmp_path / "secret"
    secret.write_text("the host's")
    held = HeldFiles(files, 1)
    mapped = files.map_argument("--graph=here", "/data/local/tmp", held.hold)
    here = Path(files.root) / "data/local/tmp/here"
    here.unlink()
    here.symlink_to(secret)
    path = Path(mapped.removeprefix("--graph="))
    assert not str(path).startswith(f"{files.root}/")
    assert path.read_text() == "x"
    assert held.give_back() == []
    assert not path.exists()
    assert here.is_symlink()  # what was only read is not put back


def test_what_a_program_makes_goes_to_the_device_and_nowhere_else(files: DeviceFiles, tmp_path: Path) -> None:
    fill(files)
    held = HeldFiles(files, 2)
    made, through, system = (
        Path(files.map_argument(f"--o={place}", "/data/local/tmp", held.hold).removeprefix("--o="))
        for place in ("./made", "./sub/made", "/etc/made")
    )
    for path in (made, through, system):
        path.write_text("new")
    here = Path(files.root) / "data/local/tmp"
    (tmp_path / "outside").mkdir()
    (here / "sub").symlink_to(tmp_path / "outside")  # swapped in while the program ran
    assert sorted(held.give_back()) == ["/data/local/tmp/sub/made", "/etc/made"]
    assert (here / "made").read_text() == "new"
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_folder_is_held_with_what_is_in_it_but_no_link_of_it(files: DeviceFiles) -> None:
    fill(files)
    held = HeldFiles(files, 3)
    path = Path(files.map_argument("/data/local/tmp", "/", held.hold))
    assert [entry.name for entry in path.iterdir()] == ["here"]
    held.give_back()


PIECES = [b"/tmp/root", b"/tmp/ro", b"ot", b"/", b"t", b"/tmp/rootx\n", b"plain"]


@given(st.lists(st.sampled_from(PIECES), max_size=20))
def test_the_root_is_filtered_however_output_is_cut(pieces: list[bytes]) -> None:
    strip = RootFilter("/tmp/root")
    shown = [strip.feed(piece) for piece in pieces]
    seen = b"".join(shown) + strip.end()
    assert seen == b"".join(pieces).replace(b"/tmp/root", b"")


@pytest.mark.parametrize(
    ("service", "v2", "terminal", "command"),
    [
        ("shell,v2,TERM=xterm,raw:echo a:b", True, False, "echo a:b"),
        ("shell,v2,pty:", True, True, ""),
        ("shell:", False, True, ""),
        ("shell:ls", False, False, "ls"),
        ("exec:cat", False, False, "cat"),
    ],
)
def test_shell_requests_are_read(service: str, v2: bool, terminal: bool, command: str) -> None:
    request = parse_request(service)
    assert (request.v2, request.terminal, request.command) == (v2, terminal, command)
