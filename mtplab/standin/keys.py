"""adb's RSA keys: read the .pub format and verify the signature of a token."""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from dataclasses import dataclass, field

WORDS = 64  # 2048 bits, the only size adb uses
TOKEN_BYTES = 20
# DER head of a SHA-1 DigestInfo: adb signs the 20-byte token as if it were the digest itself.
_SHA1_HEAD = bytes.fromhex("3021300906052b0e03021a05000414")


@dataclass(frozen=True)
class PublicKey:
    """An RSA public key and the name its owner gave it."""

    modulus: int
    exponent: int
    owner: str = ""
    fingerprint: str = field(default="", compare=False)

    def verifies(self, token: bytes, signature: bytes) -> bool:
        """True when `signature` is the PKCS #1 v1.5 signature of `token` by this key."""
        size = WORDS * 4
        if len(signature) != size:
            return False
        value = pow(int.from_bytes(signature, "big"), self.exponent, self.modulus)
        padding = b"\xff" * (size - 3 - len(_SHA1_HEAD) - TOKEN_BYTES)
        return value.to_bytes(size, "big") == b"\0\1" + padding + b"\0" + _SHA1_HEAD + token


def parse_public_key(text: str) -> PublicKey:
    """The key in adb's .pub form (base64 of Android's RSAPublicKey, then the owner); ValueError if it is none."""
    encoded, _, owner = text.strip().partition(" ")
    try:
        raw = base64.b64decode(encoded, validate=True)
        words, _n0inv = struct.unpack_from("<II", raw)
        (exponent,) = struct.unpack_from("<I", raw, 8 + 2 * 4 * WORDS)
    except (binascii.Error, struct.error) as error:
        raise ValueError(f"not an adb public key: {error}") from None
    if words != WORDS:
        raise ValueError(f"not an adb public key: {words} words in place of {WORDS}")
    modulus = int.from_bytes(raw[8 : 8 + 4 * WORDS], "little")
    if exponent < 3 or modulus.bit_length() < 2040:
        raise ValueError("not an adb public key: weak numbers")
    # As Android's own dialog shows it: MD5 of the decoded key.
    fingerprint = hashlib.md5(raw, usedforsecurity=False).hexdigest().upper()
    shown = ":".join(fingerprint[i : i + 2] for i in range(0, len(fingerprint), 2))
    return PublicKey(modulus, exponent, _one_line(owner), shown)


def _one_line(owner: str) -> str:
    """A name that a stranger chose, fit for a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in owner.strip())[:80]
