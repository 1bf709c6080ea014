"""Keys between two ends that only exchange public messages, and what is done with them.

Diffie-Hellman in the 2048-bit MODP group of RFC 3526 with 256-bit exponents, SHAKE-256 as key
stream, HMAC-SHA-256 over every ciphertext: primitives of the standard library. Python's `pow` takes
a time that depends on the exponent, which matters where timing is observed.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import final

import numpy as np

from bench import BenchError

GROUP = int(
    "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74"
    "020BBEA63B139B22514A08798E3404DDEF9519B3CD3A431B302B0A6DF25F1437"
    "4FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED"
    "EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF05"
    "98DA48361C55D39A69163FA8FD24CF5F83655D23DCA3AD961C62F356208552BB"
    "9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B"
    "E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF695581718"
    "3995497CEA956AE515D2261898FA051015728E5A8AACAA68FFFFFFFFFFFFFFFF",
    16,
)
"""RFC 3526, group 14: p = 2^2048 - 2^1984 - 1 + 2^64 ([2^1918 pi] + 124476), generator 2."""


@final
class ProtocolError(BenchError):
    """A message that the protocol does not allow, such as one that would unmask a single client."""


@final
@dataclass(frozen=True)
class KeyPair:
    """A secret exponent a and the public 2^a."""

    secret: int
    public: int

    @classmethod
    def of(cls, secret: int) -> KeyPair:
        """The pair of a known secret."""
        return cls(secret, pow(2, secret, GROUP))

    @classmethod
    def draw(cls, rng: np.random.Generator) -> KeyPair:
        """A fresh pair."""
        return cls.of(int.from_bytes(rng.bytes(32), "big"))

    def agree(self, other: int) -> bytes:
        """The key that both ends compute: a hash of 2^(ab)."""
        if not 1 < other < GROUP - 1:
            raise ProtocolError(
                "a public key outside 2..p-2 would make the common key known to all"
            )
        return hashlib.sha256(pow(other, self.secret, GROUP).to_bytes(256, "big")).digest()


def stream(key: bytes, purpose: bytes, length: int) -> bytes:
    """Pseudo-random bytes of a key, other ones for every purpose."""
    return hashlib.shake_256(purpose + b":" + key).digest(length)


def seal(key: bytes, direction: bytes, content: bytes) -> bytes:
    """Encrypt, then authenticate. A key and a direction are used for one message only."""
    keys = stream(key, b"seal" + direction, 32 + len(content))
    hidden = bytes(a ^ b for a, b in zip(content, keys[32:], strict=True))
    return hidden + hmac.digest(keys[:32], hidden, "sha256")


def unseal(key: bytes, direction: bytes, sealed: bytes) -> bytes:
    """Check, then decrypt."""
    hidden, tag = sealed[:-32], sealed[-32:]
    keys = stream(key, b"seal" + direction, 32 + len(hidden))
    if not hmac.compare_digest(tag, hmac.digest(keys[:32], hidden, "sha256")):
        raise ProtocolError("relayed shares were changed on their way: their tag is wrong")
    return bytes(a ^ b for a, b in zip(hidden, keys[32:], strict=True))
