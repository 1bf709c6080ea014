"""Secure aggregation: the server learns the sum of the clients' vectors and nothing else.

Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning (CCS 2017),
figure 4, for a server that follows the protocol but is curious. With R = 2^64, U2 the clients that
shared their keys and U3 those whose masked input arrived:

1. Keys. Client u makes two Diffie-Hellman pairs, one to encrypt and one to mask.
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

The primitives are in `_key_agreement` and `_shamir`. Keys and seeds come from the numpy generator
that is given, so that studies can be repeated: that generator is no source of secrets, and a
deployment takes the operating system's entropy.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, final

import numpy as np
import numpy.typing as npt

from bench import BenchError, InputError, Traffic
from bench.methods.federated.anomaly import _shamir
from bench.methods.federated.anomaly._key_agreement import (
    KeyPair,
    ProtocolError,
    seal,
    stream,
    unseal,
)

Array = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]
"""Integers modulo 2^64."""
Stage = Literal["shares", "input", "unmasking"]
"""What a client that is lost no longer sends; everything before it has arrived."""

_PHASE = "anomaly statistics"
_ADVERTISED = struct.Struct(">H256s256s")  # client, encryption key, masking key
_CIPHERED = struct.Struct(">H98s")  # other client, two shares encrypted, tag
_REVEALED = struct.Struct(">HB33s")  # whose secret, which one, the share
_NUMBER = struct.Struct(">H")
_SEED, _KEY = 0, 1


@final
class FixedPointOverflowError(BenchError):
    """A number, or the sum of all clients' numbers, does not fit 64 bits in fixed point."""


@final
class TooFewClientsError(BenchError):
    """Fewer clients are left than are needed to unmask the sum: there is no answer."""


@final
@dataclass(frozen=True)
class FixedPoint:
    """Numbers as integers modulo 2^64: x becomes round(x 2^bits), negative ones wrap around."""

    bits: int = 24

    def encode(self, values: npt.ArrayLike, clients: int) -> Words:
        """Exact to 2^-(bits + 1) a number; refuses what could overflow in a sum over `clients`."""
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
class Received:
    """One message as the server got it."""

    round: int
    client: int
    payload: bytes


@final
@dataclass
class Transcript:
    """Everything that the server received, round by round: all that it could learn from."""

    messages: list[Received] = field(default_factory=list)

    def of_round(self, round: int) -> dict[int, bytes]:
        """The messages of one round, by client."""
        return {each.client: each.payload for each in self.messages if each.round == round}


@final
@dataclass(frozen=True)
class Aggregate:
    """What the server learnt."""

    total: Array
    clients: tuple[str, ...]
    """Whose vectors are in the total: those whose masked input arrived."""
    transcript: Transcript


def _mask(seed: bytes, length: int) -> Words:
    return np.frombuffer(stream(seed, b"mask", 8 * length), dtype="<u8").astype(np.uint64)


def _pairwise(own: int, keys: KeyPair, others: Mapping[int, int], length: int) -> Words:
    """Sum of the masks of one client with others: added towards larger numbers, else taken off."""
    total = np.zeros(length, dtype=np.uint64)
    for other, public in others.items():
        mask = _mask(keys.agree(public), length)
        total = total + mask if own < other else total - mask
    return total


@final
class Client:
    """One end of the protocol. Nothing but its messages leaves it."""

    def __init__(self, number: int, threshold: int, rng: np.random.Generator) -> None:
        self.number = number
        self._threshold = threshold
        self._rng = rng
        self._cipher, self._masking = KeyPair.draw(rng), KeyPair.draw(rng)
        self._seed = rng.bytes(32)
        self._ciphers: dict[int, int] = {}
        self._maskings: dict[int, int] = {}
        self._commons: dict[int, bytes] = {}
        self._shares: dict[int, tuple[int, int]] = {}
        """Of each client that shared its secrets: of its seed, and of its masking key."""
        self._answered = False
        self._shared = False
        self._sent = False

    def advertise(self) -> bytes:
        """Round 1: both public keys."""
        keys = (key.public.to_bytes(256, "big") for key in (self._cipher, self._masking))
        return _ADVERTISED.pack(self.number, *keys)

    def share_secrets(self, directory: bytes) -> bytes:
        """Round 2: an encrypted pair of shares for every other client that advertised keys."""
        if self._shared:
            raise ProtocolError(
                f"client {self.number} was asked for its shares twice: a second message under the "
                "same keys would give the first one away"
            )
        self._shared = True
        for number, cipher, masking in _ADVERTISED.iter_unpack(directory):
            self._ciphers[number] = int.from_bytes(cipher, "big")
            self._maskings[number] = int.from_bytes(masking, "big")
        _enough(len(self._ciphers), self._threshold)
        seed = int.from_bytes(self._seed, "big")
        # Places start at 1: the share at 0 is the secret.
        places = [number + 1 for number in self._ciphers]
        seeds, keys = (
            _shamir.share(secret, self._threshold, places, self._rng)
            for secret in (seed, self._masking.secret)
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
        """Round 3: the vector under the mask of its own seed and those with each other client."""
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
        self.transcript = Transcript()

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
        inputs = self.transcript.of_round(3)
        lost = set(self.transcript.of_round(2)) - set(inputs)
        total = np.zeros(len(next(iter(inputs.values()))) // 8, dtype=np.uint64)
        for payload in inputs.values():
            total = total + np.frombuffer(payload, dtype="<u8").astype(np.uint64)
        for owner, secret in self._rebuilt(messages, set(inputs), lost):
            if owner in inputs:
                total = total - _mask(secret.to_bytes(32, "big"), len(total))
            else:
                # Each survivor's input holds its mask with the lost one, of the opposite sign.
                others = {number: self._masking_key(number) for number in inputs}
                total = total + _pairwise(owner, KeyPair.of(secret), others, len(total))
        return total

    def _rebuilt(
        self, messages: Mapping[int, bytes], alive: set[int], lost: set[int]
    ) -> Iterator[tuple[int, int]]:
        shares: dict[int, dict[int, int]] = {owner: {} for owner in sorted(alive | lost)}
        for sender, message in messages.items():
            for owner, kind, value in _REVEALED.iter_unpack(message):
                if kind != (_SEED if owner in alive else _KEY) or owner not in shares:
                    raise ProtocolError(
                        f"client {sender} revealed the wrong secret of client {owner}: the seed is "
                        "for those whose input arrived, the key for those that were lost"
                    )
                shares[owner][sender + 1] = int.from_bytes(value, "big")
        for owner, own in shares.items():
            yield owner, _shamir.combine(own, self._threshold)

    def _masking_key(self, number: int) -> int:
        advertised = self.transcript.of_round(1)[number]
        return int.from_bytes(_ADVERTISED.unpack(advertised)[2], "big")

    def _receive(self, round: int, messages: Mapping[int, bytes]) -> None:
        self.transcript.messages += [
            Received(round, client, payload) for client, payload in messages.items()
        ]
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
        number: Client(number, threshold, own) for number, own in enumerate(rng.spawn(len(names)))
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
