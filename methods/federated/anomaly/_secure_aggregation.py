"""Secure aggregation: the server learns the sum of the clients' vectors and nothing else.

Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning (CCS 2017),
figure 4, for a server that follows the protocol but is curious. With R = 2^64, U2 the clients that
shared their keys and U3 those whose masked input arrived:

1. Keys. Client u makes two key pairs, one to encrypt and one to mask.
2. Shares. u draws a seed b_u, splits b_u and its masking key s_u into Shamir shares, and sends each
   other client its two shares, encrypted for it; the server relays them.
3. Inputs. u sends y_u = x_u + PRG(b_u) + sum_(v in U2, v > u) PRG(s_uv) - sum_(v < u) PRG(s_uv)
   mod R, where s_uv is what the masking keys of u and v agree on. Pairwise masks cancel in the sum.
4. Unmasking. For each client in U3 the others reveal shares of its seed b_v; for each that was lost
   (U2 without U3) shares of its masking key s_v, by which the masks that no longer cancel are taken
   out. Both for one client would reveal its input when it was only late: clients answer once, and
   server and clients refuse anything else.

Any `threshold` clients can unmask, so fewer must never be left; that many colluding with the server
could read the others. The sum itself is exact: where it is released, it is not private by itself.

The package `cryptography` provides the primitives: X25519 key agreement with HKDF-SHA256, ChaCha20
as PRG, ChaCha20-Poly1305 for the relayed shares. Keys and seeds come from the numpy generator that
is passed in, so that studies can be repeated: that generator is no source of secrets, and a
deployment takes the operating system's entropy.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from bench import BenchError, InputError, Traffic

Array = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]
"""Integers modulo 2^64."""
Stage = Literal["shares", "input", "unmasking"]
"""What a client that is lost no longer sends; everything before it has arrived."""
Transcript = dict[int, dict[int, bytes]]
"""Payloads that the server received, by round and client: all that it could learn from."""

PRIME = 2**256 + 297
"""The smallest prime above 2^256: a field that holds every 256-bit secret."""
_PHASE = "anomaly statistics"
_ADVERTISED = struct.Struct(">H32s32s")  # client, encryption key, masking key
_CIPHERED = struct.Struct(">H82s")  # other client, two shares encrypted, tag
_REVEALED = struct.Struct(">HB33s")  # whose secret, which one, the share
_NUMBER = struct.Struct(">H")
_SEED, _KEY = 0, 1


@final
class ProtocolError(BenchError):
    """A message that the protocol does not allow, such as one that would unmask a single client."""


@final
class FixedPointOverflowError(BenchError):
    """A number, or the sum of all clients' numbers, does not fit 64 bits in fixed point."""


@final
class TooFewClientsError(BenchError):
    """Fewer clients are left than are needed to unmask the sum: there is no answer."""


# Keys, encryption and masks ----------------------------------------------------------------------


@final
@dataclass(frozen=True)
class KeyPair:
    """An X25519 key pair (RFC 7748): 32 secret bytes, and 32 public ones."""

    secret: bytes
    public: bytes

    @classmethod
    def of(cls, secret: bytes) -> KeyPair:
        """Return the pair of a known secret."""
        return cls(
            secret, X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
        )

    @classmethod
    def draw(cls, rng: np.random.Generator) -> KeyPair:
        """Draw a fresh pair."""
        return cls.of(rng.bytes(32))

    def agree(self, other: bytes) -> bytes:
        """Return the key that both ends compute: HKDF-SHA256 of the X25519 secret."""
        secret = X25519PrivateKey.from_private_bytes(self.secret)
        try:
            common = secret.exchange(X25519PublicKey.from_public_bytes(other))
        except ValueError:
            raise ProtocolError(
                "a public key of small order would make the common key known to all"
            ) from None
        return HKDF(hashes.SHA256(), 32, salt=None, info=b"secure aggregation").derive(common)


def seal(key: bytes, direction: bytes, content: bytes) -> bytes:
    """Encrypt and authenticate. A key and a direction are used for one message only."""
    # The direction is the nonce: there is no second message under the same one.
    return ChaCha20Poly1305(key).encrypt(direction.rjust(12, b"\0"), content, None)


def unseal(key: bytes, direction: bytes, sealed: bytes) -> bytes:
    """Check the tag and decrypt."""
    try:
        return ChaCha20Poly1305(key).decrypt(direction.rjust(12, b"\0"), sealed, None)
    except InvalidTag:
        raise ProtocolError(
            "relayed shares were changed on their way: their tag is wrong"
        ) from None


def _mask(seed: bytes, length: int) -> Words:
    """Pseudo-random words of a seed: its ChaCha20 key stream (RFC 8439)."""
    stream = Cipher(algorithms.ChaCha20(seed, bytes(16)), mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(8 * length)), dtype="<u8").astype(np.uint64)


def _pairwise(number: int, keys: KeyPair, others: Mapping[int, bytes], length: int) -> Words:
    """Sum of the masks of one client with others: added towards larger numbers, else taken off."""
    total = np.zeros(length, dtype=np.uint64)
    for other, public in others.items():
        mask = _mask(keys.agree(public), length)
        total = total + mask if number < other else total - mask
    return total


# Shamir's secret sharing -------------------------------------------------------------------------
#
# How to Share a Secret, CACM 1979. The secret is f(0) of a random polynomial f of degree
# threshold - 1 over a prime field; the share of x is f(x). Any `threshold` shares give f(0) by
# Lagrange interpolation; fewer say nothing, because for every secret there is exactly one
# polynomial through them.


def share(
    secret: int, threshold: int, places: Iterable[int], rng: np.random.Generator, prime: int = PRIME
) -> dict[int, int]:
    """The share of every place x: the value there of a random polynomial through (0, secret)."""
    places = list(places)
    if not 1 <= threshold <= len(places):
        raise InputError(f"threshold {threshold} with {len(places)} shares: expected 1 to all")
    coefficients = (uniform(rng, prime) for _ in range(threshold - 1))
    return polynomial([secret, *coefficients], places, prime)


def polynomial(
    coefficients: list[int], places: Iterable[int], prime: int = PRIME
) -> dict[int, int]:
    """Values of a polynomial, constant term first, at distinct places other than 0."""
    places = list(places)
    if not all(0 <= coefficient < prime for coefficient in coefficients):
        raise InputError(f"a secret must lie in 0..{prime - 1}; split it, or take a larger prime")
    if len(set(places)) < len(places) or not all(0 < place < prime for place in places):
        # The share at 0 would be the secret.
        raise InputError(f"shares are given to distinct places in 1..{prime - 1}, got {places}")
    values = {}
    for place in places:
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * place + coefficient) % prime
        values[place] = value
    return values


def combine(shares: Mapping[int, int], threshold: int, prime: int = PRIME) -> int:
    """f(0) = sum_i f(x_i) prod_(j != i) x_j / (x_j - x_i), from the first `threshold` shares."""
    if len(shares) < threshold:
        raise InputError(f"{len(shares)} shares of a secret that needs {threshold}")
    chosen = list(shares.items())[:threshold]
    secret = 0
    for place, value in chosen:
        top = bottom = 1
        for other, _ in chosen:
            if other != place:
                top = top * other % prime
                bottom = bottom * (other - place) % prime
        secret = (secret + value * top * pow(bottom, -1, prime)) % prime
    return secret


def uniform(rng: np.random.Generator, prime: int) -> int:
    """A uniform field element, but for a bias below 2^-256: 256 bits more than the prime has."""
    return int.from_bytes(rng.bytes((prime.bit_length() + 7) // 8 + 32), "big") % prime


# The protocol ------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class FixedPoint:
    """Numbers as integers modulo 2^64: x becomes round(x 2^bits), negative ones wrap around."""

    bits: int = 24

    def encode(self, values: npt.ArrayLike, clients: int) -> Words:
        """Exact to 2^-(bits + 1) per number; refuses what could overflow in a sum over clients."""
        numbers = np.asarray(values, dtype=np.float64)
        limit = 2.0 ** (63 - self.bits) / clients - 1.0
        if not (np.abs(numbers) < limit).all():
            raise FixedPointOverflowError(
                f"a number is not finite, or not below {limit:.4g} in size, the largest of which "
                f"{clients} add up within 64 bits at {self.bits} fractional bits; use fewer bits"
            )
        return np.rint(np.ldexp(numbers, self.bits)).astype(np.int64).view(np.uint64)

    def decode(self, words: Words) -> Array:
        """Back to numbers: the upper half of the integers is negative."""
        return np.ldexp(words.view(np.int64).astype(np.float64), -self.bits)


@final
@dataclass(frozen=True)
class Aggregate:
    """Result of the protocol: all that the server learned."""

    total: Array
    clients: tuple[str, ...]
    """Whose vectors are in the total: those whose masked input arrived."""
    transcript: Transcript


@final
class Client:
    """One end of the protocol. Nothing but its messages leaves it."""

    def __init__(self, number: int, threshold: int, rng: np.random.Generator) -> None:
        self.number = number
        self._threshold = threshold
        self._rng = rng
        self._cipher, self._masking = KeyPair.draw(rng), KeyPair.draw(rng)
        self._seed = rng.bytes(32)
        self._ciphers: dict[int, bytes] = {}
        self._maskings: dict[int, bytes] = {}
        self._commons: dict[int, bytes] = {}
        self._shares: dict[int, tuple[int, int]] = {}
        """Shares of the seed and of the masking key of each client that shared its secrets."""
        self._answered = False
        self._shared = False
        self._sent = False

    def advertise(self) -> bytes:
        """Round 1: both public keys."""
        return _ADVERTISED.pack(self.number, self._cipher.public, self._masking.public)

    def share_secrets(self, directory: bytes) -> bytes:
        """Round 2: an encrypted pair of shares for every other client that advertised keys."""
        if self._shared:
            raise ProtocolError(
                f"client {self.number} was asked for its shares twice: a second message under the "
                "same keys would give the first one away"
            )
        self._shared = True
        for number, cipher, masking in _ADVERTISED.iter_unpack(directory):
            self._ciphers[number] = cipher
            self._maskings[number] = masking
        _enough(len(self._ciphers), self._threshold)
        # Places start at 1: the share at 0 is the secret.
        places = [number + 1 for number in self._ciphers]
        seeds, keys = (
            share(int.from_bytes(secret, "big"), self._threshold, places, self._rng)
            for secret in (self._seed, self._masking.secret)
        )
        pieces = []
        for other in self._ciphers:
            pair = (seeds[other + 1], keys[other + 1])
            if other == self.number:
                self._shares[other] = pair
                continue
            content = b"".join(value.to_bytes(33, "big") for value in pair)
            sealed = seal(self._common(other), _way(self.number, other), content)
            pieces.append(_CIPHERED.pack(other, sealed))
        return b"".join(pieces)

    def masked(self, relayed: bytes, values: npt.ArrayLike, code: FixedPoint) -> bytes:
        """Round 3: the vector under the mask of the seed and those with each other client."""
        if self._sent:
            raise ProtocolError(
                f"client {self.number} was asked for its input twice: two inputs under the same "
                "masks give away their difference"
            )
        self._sent = True
        for other, sealed in _CIPHERED.iter_unpack(relayed):
            content = unseal(self._common(other), _way(other, self.number), sealed)
            pair = (int.from_bytes(content[:33], "big"), int.from_bytes(content[33:], "big"))
            self._shares[other] = pair
        _enough(len(self._shares), self._threshold)
        words = code.encode(values, len(self._shares))
        others = {other: self._maskings[other] for other in self._shares if other != self.number}
        words = words + _mask(self._seed, len(words))
        words = words + _pairwise(self.number, self._masking, others, len(words))
        return words.astype("<u8").tobytes()

    def reveal(self, survivors: bytes) -> bytes:
        """Round 4: a share of the seed of each survivor, and of the key of each that was lost."""
        alive = {number for (number,) in _NUMBER.iter_unpack(survivors)}
        if self._answered:
            raise ProtocolError(
                f"client {self.number} was asked for shares twice: with two lists of survivors the "
                "seed and the key of one client could both be rebuilt, and its input read"
            )
        if not alive <= set(self._shares):
            raise ProtocolError("the list of survivors names clients that shared no secrets")
        if self.number not in alive:
            raise ProtocolError(
                f"client {self.number} is called lost and asked to answer: its key and its input "
                "together would read it"
            )
        _enough(len(alive), self._threshold)
        self._answered = True
        return b"".join(
            _REVEALED.pack(
                owner,
                _SEED if owner in alive else _KEY,
                (seed if owner in alive else key).to_bytes(33, "big"),
            )
            for owner, (seed, key) in self._shares.items()
        )

    def _common(self, other: int) -> bytes:
        """The key for messages with another client."""
        if other not in self._commons:
            self._commons[other] = self._cipher.agree(self._ciphers[other])
        return self._commons[other]


def _way(sender: int, receiver: int) -> bytes:
    return _NUMBER.pack(sender) + _NUMBER.pack(receiver)


def _enough(count: int, threshold: int) -> None:
    if count < threshold:
        raise TooFewClientsError(
            f"{count} clients are left, but {threshold} are needed to unmask the sum; run again "
            "with those that answer, or with a lower threshold"
        )


@final
class Server:
    """The other end: relays, adds, unmasks. It keeps a transcript of what it gets."""

    def __init__(self, threshold: int) -> None:
        self._threshold = threshold
        self.transcript: Transcript = {}

    def directory(self, messages: Mapping[int, bytes]) -> bytes:
        """After round 1: the keys of all clients, for all of them."""
        self._receive(1, messages)
        return b"".join(messages.values())

    def relay(self, messages: Mapping[int, bytes]) -> dict[int, bytes]:
        """After round 2: to each client what the others encrypted for it."""
        self._receive(2, messages)
        mail: dict[int, list[bytes]] = {number: [] for number in messages}
        for sender, message in messages.items():
            for receiver, sealed in _CIPHERED.iter_unpack(message):
                if receiver in mail:
                    mail[receiver].append(_CIPHERED.pack(sender, sealed))
        return {number: b"".join(pieces) for number, pieces in mail.items()}

    def survivors(self, messages: Mapping[int, bytes]) -> bytes:
        """After round 3: whose masked input arrived."""
        self._receive(3, messages)
        return b"".join(_NUMBER.pack(number) for number in messages)

    def unmask(self, messages: Mapping[int, bytes]) -> Words:
        """After round 4: the sum of the inputs that arrived, without their masks."""
        self._receive(4, messages)
        inputs = self.transcript[3]
        lost = set(self.transcript[2]) - set(inputs)
        total = np.zeros(len(next(iter(inputs.values()))) // 8, dtype=np.uint64)
        for payload in inputs.values():
            total = total + np.frombuffer(payload, dtype="<u8").astype(np.uint64)
        for owner, secret in self._rebuilt(messages, set(inputs), lost):
            if owner in inputs:
                total = total - _mask(secret, len(total))
            else:
                # Each survivor's input holds its mask with the lost one, of the opposite sign.
                others = {number: self._masking_key(number) for number in inputs}
                total = total + _pairwise(owner, KeyPair.of(secret), others, len(total))
        return total

    def _rebuilt(
        self, messages: Mapping[int, bytes], alive: set[int], lost: set[int]
    ) -> Iterator[tuple[int, bytes]]:
        """The secret of each client: the seed of those alive, the masking key of those lost."""
        shares: dict[int, dict[int, int]] = {owner: {} for owner in sorted(alive | lost)}
        for sender, message in messages.items():
            for owner, kind, value in _REVEALED.iter_unpack(message):
                if kind != (_SEED if owner in alive else _KEY) or owner not in shares:
                    raise ProtocolError(
                        f"client {sender} revealed the wrong secret of client {owner}: the seed is "
                        "for those whose input arrived, the key for those that were lost"
                    )
                shares[owner][sender + 1] = int.from_bytes(value, "big")
        for owner, revealed in shares.items():
            yield owner, combine(revealed, self._threshold).to_bytes(32, "big")

    def _masking_key(self, number: int) -> bytes:
        public: bytes = _ADVERTISED.unpack(self.transcript[1][number])[2]
        return public

    def _receive(self, round: int, messages: Mapping[int, bytes]) -> None:
        self.transcript[round] = dict(messages)
        _enough(len(messages), self._threshold)


def usual_threshold(clients: int) -> int:
    """More than two thirds of the clients: up to a third of them may be lost."""
    return 2 * clients // 3 + 1


def aggregate(
    vectors: Mapping[str, Sequence[float] | Array],
    rng: np.random.Generator,
    traffic: Traffic,
    code: FixedPoint | None = None,
    threshold: int | None = None,
    lost: Mapping[str, Stage] | None = None,
) -> Aggregate:
    """Run the protocol in this process; `lost` clients stop before the stage that is named."""
    code, lost, names = code or FixedPoint(), lost or {}, list(vectors)
    threshold = usual_threshold(len(names)) if threshold is None else threshold
    if not len(names) / 2 < threshold <= len(names) or threshold < 2:
        raise InputError(
            f"a threshold of {threshold} with {len(names)} clients: expected more than half of "
            "them, and 2 at least; with fewer, two lists of survivors for two halves read a client"
        )
    clients = {
        number: Client(number, threshold, client_rng)
        for number, client_rng in enumerate(rng.spawn(len(names)))
    }
    server = Server(threshold)

    def active(*gone: Stage) -> dict[int, Client]:
        return {n: client for n, client in clients.items() if lost.get(names[n]) not in gone}

    def sent(round: int, messages: dict[int, bytes]) -> dict[int, bytes]:
        for payload in messages.values():
            traffic.send(_PHASE, "up", payload, round)
        return messages

    directory = server.directory(sent(1, {n: client.advertise() for n, client in clients.items()}))
    traffic.send(_PHASE, "down", directory, 1, copies=len(clients))
    sharing = active("shares")
    relayed = server.relay(sent(2, {n: c.share_secrets(directory) for n, c in sharing.items()}))
    for payload in relayed.values():
        traffic.send(_PHASE, "down", payload, 2)
    giving = active("shares", "input")
    inputs = {n: c.masked(relayed[n], vectors[names[n]], code) for n, c in giving.items()}
    survivors = server.survivors(sent(3, inputs))
    traffic.send(_PHASE, "down", survivors, 3, copies=len(inputs))
    answering = active("shares", "input", "unmasking")
    words = server.unmask(sent(4, {n: c.reveal(survivors) for n, c in answering.items()}))
    return Aggregate(code.decode(words), tuple(names[n] for n in inputs), server.transcript)
