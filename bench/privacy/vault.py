"""What the views of one private table share: ledger, noise, reservations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from bench.errors import PrivacyContractError
from bench.privacy.events import DpEvent
from bench.privacy.ledger import Ledger, Path
from bench.privacy.noise import NoiseSource


@final
@dataclass(frozen=True)
class Plan:
    """Calls that are intended on one part of the data."""

    path: Path
    event: DpEvent
    count: int = 1


@final
@dataclass
class Vault:
    """What all views of one private table share."""

    ledger: Ledger
    noise: NoiseSource
    check_rows: bool = False
    blind: bool = False
    """For a check of methods: noisy calls see the rows and answer as if there were none. What still
    changes with the rows came by another way."""
    public_entropy: int = 0
    """Seed of public randomness inside the kernel."""
    started: bool = False
    """True once an output has left the kernel: later parameters may depend on it."""
    reserved: dict[tuple[Path, DpEvent], int] = field(default_factory=dict)

    def refuse_for_clients(self) -> None:
        """Noise that hides a row does not hide a client: refuse it where that is the unit."""
        if self.ledger.unit == "client":
            raise PrivacyContractError(
                "the method's unit of privacy is the client: only noisy sums over the parts of all "
                "clients (or sites) hide a whole one; use `partition_sum` on their models"
            )
