"""Keys, path mapping and output filtering, without a device."""

from __future__ import annotations

import base64
import hashlib
import math
import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplab.standin.files import DeviceFiles, RootFilter
from mtplab.standin.keys import PublicKey, parse_public_key
from mtplab.standin.shell import parse_request

# A 2048-bit key made for this test alone; a signature is s = m^d mod n.
PRIME_BITS = 1024


def _prime(seed: int) -> int:
    candidate = int.from_bytes(hashlib.shake_256(bytes([seed])).digest(PRIME_BITS // 8), "big")
    candidate |= (1 << (PRIME_BITS - 1)) | (1 << (PRIME_BITS - 2)) | 1
    small = math.prod(number for number in range(3, 2000, 2))  # sieves most candidates without an exponentiation
    while (
        math.gcd(candidate, small) > 1
        or candidate % 65537 == 1
        or not all(pow(base, candidate - 1, candidate) == 1 for base in (2, 3, 5, 7))
    ):
        candidate += 2
    return candidate


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
        ("a/b", "/data", "a/b"),
        ("1,2:3", "/", "1,2:3"),
        ("http://host/x", "/", "http:R/host/x"),
        ("{}", "/", "{}"),
    ],
)
def test_device_paths_in_arguments_become_host_paths(
    files: DeviceFiles, argument: str, cwd: str, mapped: str
) -> None:
    assert files.map_argument(argument, cwd) == mapped.replace("R", files.root)


@given(st.lists(st.sampled_from(["..", ".", "data", "local", "up", "out", "loop", "sdcard", "x", ""]), max_size=12))
def test_no_path_leads_outside(parts: list[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "device"
        (root / "data" / "local").mkdir(parents=True)
        (root / "up").symlink_to("../../..")
        (root / "out").symlink_to("/etc")
        (root / "loop").symlink_to("loop")
        files = DeviceFiles(str(root))
        try:
            host = files.host("/".join(parts))
        except OSError:
            return
        assert os.path.realpath(host) == os.path.realpath(files.root) or os.path.realpath(host).startswith(
            files.root + "/"
        )


def test_a_link_swapped_in_is_not_followed(files: DeviceFiles, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "f").write_text("secret")
    (Path(files.root) / "data" / "local" / "tmp" / "d").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError):
        files._open_beneath("/data/local/tmp/d/f", os.O_RDONLY, 0, "f")


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
