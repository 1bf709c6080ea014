"""Secure aggregation: the sum is right, and the server sees nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2_contingency, chisquare

from bench.errors import InputError
from bench.methods.federated.anomaly._secure_aggregation import (
    PRIME,
    Aggregate,
    Client,
    FixedPoint,
    FixedPointOverflowError,
    KeyPair,
    ProtocolError,
    Server,
    Stage,
    TooFewClientsError,
    aggregate,
    combine,
    polynomial,
    seal,
    share,
    unseal,
    usual_threshold,
)
from bench.plugins.release import Traffic

TEN = {f"client {n}": np.random.default_rng(n).normal(0, 1000, 3) for n in range(10)}
FOUR = {str(n): np.random.default_rng(n).normal(0, 1000, 2048) for n in range(4)}


def run(vectors=TEN, seed: int = 0, **options) -> Aggregate:
    return aggregate(vectors, np.random.default_rng(seed), Traffic(), **options)


def payloads(result: Aggregate) -> list[bytes]:
    """Everything that the server received."""
    return [payload for messages in result.transcript.values() for payload in messages.values()]


@pytest.fixture(scope="module")
def long() -> Aggregate:
    """Four clients with vectors long enough for tests of uniformity."""
    return run(FOUR)


# Shamir -----------------------------------------------------------------------------------------


def test_shares_of_a_polynomial_by_hand():
    """f(x) = 1234 + 166 x + 94 x^2 modulo 1613: f(1) = 1494, f(2) = 1942 - 1613 = 329, ..."""
    values = polynomial([1234, 166, 94], [1, 2, 3, 4, 5, 6], prime=1613)
    assert values == {1: 1494, 2: 329, 3: 965, 4: 176, 5: 1188, 6: 775}
    assert combine({2: 329, 4: 176, 5: 1188}, 3, prime=1613) == 1234
    assert combine({1: 1494, 6: 775, 3: 965}, 3, prime=1613) == 1234


def test_any_three_shares_give_the_secret_and_two_do_not():
    secret = 2**256 - 5
    shares = share(secret, 3, range(1, 6), np.random.default_rng(0))
    some = dict(list(shares.items())[2:])
    assert combine(some, 3) == secret
    with pytest.raises(InputError, match="2 shares of a secret that needs 3"):
        combine(dict(list(shares.items())[:2]), 3)
    with pytest.raises(InputError, match="distinct places"):
        share(1, 2, [0, 1], np.random.default_rng(0))
    with pytest.raises(InputError, match="larger prime"):
        share(PRIME, 2, [1, 2], np.random.default_rng(0))
    with pytest.raises(InputError, match="threshold 3 with 2"):
        share(1, 3, [1, 2], np.random.default_rng(0))


def test_one_share_of_two_is_uniform_whatever_the_secret():
    rng = np.random.default_rng(0)
    for secret in (0, 6):
        seen = [share(secret, 2, [1, 2], rng, prime=7)[1] for _ in range(3500)]
        assert chisquare(np.bincount(seen, minlength=7)).pvalue > 1e-4


def probably_prime(number: int) -> bool:
    """Miller-Rabin for ten bases."""
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29):
        power = pow(base, odd, number)
        if power in (1, number - 1):
            continue
        for _ in range(twos - 1):
            power = power * power % number
            if power == number - 1:
                break
        else:
            return False
    return True


def test_the_field_is_a_field():
    assert probably_prime(PRIME)


# Keys -------------------------------------------------------------------------------------------


def test_both_ends_agree_and_nobody_else_opens_or_changes_a_message():
    rng = np.random.default_rng(0)
    one, two, eve = (KeyPair.draw(rng) for _ in range(3))
    key = one.agree(two.public)
    assert key == two.agree(one.public)
    closed = seal(key, b"12", b"a share")
    assert unseal(key, b"12", closed) == b"a share"
    assert b"a share" not in closed
    changed = bytes([closed[0] ^ 1]) + closed[1:]
    for wrong_key, way, message in (
        (eve.agree(one.public), b"12", closed),
        (key, b"21", closed),
        (key, b"12", changed),
    ):
        with pytest.raises(ProtocolError, match="tag is wrong"):
            unseal(wrong_key, way, message)
    with pytest.raises(ProtocolError, match="public key of small order"):
        one.agree(bytes(32))


# Fixed point ------------------------------------------------------------------------------------


def test_fixed_point_by_hand():
    code = FixedPoint(bits=2)
    words = code.encode([1.25, -0.5, 0.1], clients=2)
    assert words.tolist() == [5, 2**64 - 2, 0]
    assert code.decode(words).tolist() == [1.25, -0.5, 0.0]


@pytest.mark.parametrize("value", [2.0**39 / 10, -(2.0**39), np.nan, np.inf])
def test_what_does_not_fit_is_refused(value):
    with pytest.raises(FixedPointOverflowError, match="fewer bits"):
        FixedPoint(24).encode([1.0, value], clients=10)
    spoilt = {name: [value] if name == "2" else [0.0] for name in "0123"}
    if not np.isfinite(value) or abs(value) > 2.0**38:
        with pytest.raises(FixedPointOverflowError):
            run(spoilt)


def test_the_largest_numbers_add_up_without_overflow():
    largest = 2.0**39 / 10 - 2.0
    encoded = FixedPoint(24).encode([largest], clients=10)
    assert FixedPoint(24).decode(encoded * np.uint64(10))[0] == pytest.approx(10 * largest)


# The sum ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits, vectors", [(8, FOUR), (24, TEN)])
def test_the_sum_is_exact_to_fixed_point(bits, vectors):
    result = run(vectors, code=FixedPoint(bits))
    error = np.abs(result.total - sum(vectors.values()))
    assert result.clients == tuple(vectors)
    assert error.max() <= len(vectors) * 2.0 ** -(bits + 1) + 1e-9
    assert (error > 0).any()  # rounded, not passed through as floats


@pytest.mark.parametrize(
    "stage, counted",
    [("input", False), ("unmasking", True)],
)
def test_two_of_ten_are_lost(stage: Stage, counted: bool):
    gone = ("client 0", "client 6")
    result = run(lost=dict.fromkeys(gone, stage))
    expected = [name for name in TEN if counted or name not in gone]
    assert list(result.clients) == expected
    np.testing.assert_allclose(result.total, sum(TEN[name] for name in expected), atol=1e-6)


def test_lost_at_different_stages_together():
    seven = dict(list(TEN.items())[:7])
    lost: dict[str, Stage] = {"client 1": "shares", "client 2": "input", "client 5": "unmasking"}
    result = run(seven, threshold=4, lost=lost)
    left = [name for name in seven if name not in ("client 1", "client 2")]
    assert list(result.clients) == left
    np.testing.assert_allclose(result.total, sum(TEN[name] for name in left), atol=1e-6)


@pytest.mark.parametrize("stage", ["shares", "input", "unmasking"])
def test_below_the_threshold_there_is_no_answer(stage: Stage):
    short = {str(n): [1.0] for n in range(4)}
    with pytest.raises(TooFewClientsError, match="2 clients are left, but 3"):
        run(short, threshold=3, lost={"0": stage, "3": stage})
    assert usual_threshold(10) == 7 and usual_threshold(3) == 3


@pytest.mark.parametrize("threshold", [1, 2, 5])
def test_thresholds_that_make_no_sense(threshold):
    with pytest.raises(InputError, match="expected more than half"):
        run({str(n): [1.0] for n in range(4)}, threshold=threshold)


def test_every_message_is_counted():
    traffic = Traffic()
    result = aggregate(FOUR, np.random.default_rng(0), traffic)
    up = {one.round: one for one in traffic.transfers() if one.direction == "up"}
    down = {one.round: one for one in traffic.transfers() if one.direction == "down"}
    assert {one.phase for one in traffic.transfers()} == {"anomaly statistics"}
    assert sum(one.bytes for one in up.values()) == sum(
        len(payload) for payload in payloads(result)
    )
    assert (up[1].bytes, down[1].bytes) == (4 * 66, 4 * 4 * 66)  # two keys of 32 bytes, a number
    assert up[2].bytes == down[2].bytes == 4 * 3 * (2 + 2 * 33 + 16)
    assert (up[3].bytes, down[3].bytes) == (4 * 8 * 2048, 4 * 4 * 2)
    assert up[4].bytes == 4 * 4 * 36 and 4 not in down


# What the server sees ---------------------------------------------------------------------------


def bytes_of(payload: bytes) -> np.ndarray:
    return np.bincount(np.frombuffer(payload, dtype=np.uint8), minlength=256)


def test_masked_inputs_are_uniform_and_change_with_the_keys(long):
    other = run(FOUR, seed=1)
    assert np.allclose(other.total, long.total)
    for client, payload in long.transcript[3].items():
        again = other.transcript[3][client]
        assert chisquare(bytes_of(payload)).pvalue > 1e-4
        between = np.frombuffer(payload, np.uint64) - np.frombuffer(again, np.uint64)
        assert chisquare(bytes_of(between.tobytes())).pvalue > 1e-4
    # The test can fail: the inputs themselves are far from uniform.
    plain = FixedPoint().encode(FOUR["0"], 4).tobytes()
    assert chisquare(bytes_of(plain)).pvalue < 1e-12


def test_no_plain_number_and_no_partial_sum_is_in_the_transcript(long):
    everything = b"".join(payloads(long))
    words = {name: FixedPoint().encode(vector, 4) for name, vector in FOUR.items()}
    for encoded in words.values():
        assert not any(word.tobytes() in everything for word in encoded[:200])
    # Masks cancel in the sum of all, and in no smaller one.
    masked = {
        str(client): np.frombuffer(payload, np.uint64)
        for client, payload in long.transcript[3].items()
    }
    three = masked["0"] + masked["1"] + masked["2"] - words["0"] - words["1"] - words["2"]
    assert chisquare(bytes_of(three.tobytes())).pvalue > 1e-4


def test_inputs_of_the_same_sum_give_transcripts_of_the_same_law(long):
    moved = {**FOUR, "0": FOUR["0"] + 5000.0, "3": FOUR["3"] - 5000.0}
    other = run(moved, seed=2)
    np.testing.assert_allclose(other.total, long.total, atol=1e-6)
    lengths = [[len(payload) for payload in payloads(one)] for one in (long, other)]
    assert lengths[0] == lengths[1]
    for client in range(4):
        table = [bytes_of(one.transcript[3][client]) for one in (long, other)]
        assert chi2_contingency(table).pvalue > 1e-4


def test_of_every_client_one_kind_of_secret_is_revealed():
    """Seeds of those whose input arrived, keys of those that were lost, never both."""
    result = run(FOUR, lost={"2": "input"})
    assert "2" not in result.clients
    revealed = b"".join(result.transcript[4].values())
    kinds: dict[int, set[int]] = {}
    for start in range(0, len(revealed), 36):
        owner = int.from_bytes(revealed[start : start + 2], "big")
        kinds.setdefault(owner, set()).add(revealed[start + 2])
    assert kinds == {0: {0}, 1: {0}, 2: {1}, 3: {0}}  # seeds of those alive, the key of the lost


def sharing(count: int = 3) -> tuple[list[Client], Server]:
    clients = [Client(n, 2, np.random.default_rng(n)) for n in range(count)]
    server = Server(2)
    directory = server.directory({c.number: c.advertise() for c in clients})
    mail = server.relay({c.number: c.share_secrets(directory) for c in clients})
    server.survivors({c.number: c.masked(mail[c.number], [1.0], FixedPoint()) for c in clients})
    return clients, server


def number(*clients: int) -> bytes:
    return b"".join(client.to_bytes(2, "big") for client in clients)


def test_a_client_never_gives_both_secrets_of_another():
    clients, _ = sharing()
    clients[0].reveal(number(0, 1, 2))
    with pytest.raises(ProtocolError, match="twice"):
        clients[0].reveal(number(0, 1))
    with pytest.raises(ProtocolError, match="shared no secrets"):
        clients[1].reveal(number(0, 1, 7))
    with pytest.raises(TooFewClientsError):
        clients[2].reveal(number(2))


def test_a_client_answers_each_round_once_and_never_against_itself():
    clients, _ = sharing()
    with pytest.raises(ProtocolError, match="shares twice"):
        clients[0].share_secrets(b"")
    with pytest.raises(ProtocolError, match="input twice"):
        clients[0].masked(b"", [1.0], FixedPoint())
    with pytest.raises(ProtocolError, match="called lost"):
        clients[0].reveal(number(1, 2))


def test_the_server_refuses_the_wrong_secret():
    clients, server = sharing()
    # Client 1 believes that 2 was lost and gives a share of its key, although its input arrived.
    messages = {0: clients[0].reveal(number(0, 1, 2)), 1: clients[1].reveal(number(0, 1))}
    with pytest.raises(ProtocolError, match="wrong secret of client 2"):
        server.unmask(messages)
