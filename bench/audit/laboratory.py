"""Runs the trials that are missing and keeps them as they end."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from typing import final

from bench.audit.trial_store import TrialStore
from bench.audit.trials import FIRST, Subject, Trial, TrialId, run_trials
from bench.cluster.batches import Crew
from bench.privacy.ledger import Ledger

Say = Callable[[str], None]

_SAY_SECONDS = 10.0


@final
class Laboratory:
    """One subject, its trials so far, and whoever runs more of them."""

    def __init__(
        self, subject: Subject, store: TrialStore, crew: Crew, say: Say = lambda text: None
    ) -> None:
        self.subject = subject
        self._store = store
        self._crew = crew
        self._say = say
        self.refits = 0
        """Fits of this session; those that were stored are not done again."""

    def trials(self, wanted: Sequence[TrialId], purpose: str = "") -> list[Trial]:
        """These trials, from the store or run now."""
        missing = self._store.missing(wanted)
        method = self.subject.method
        done, told = 0, time.monotonic()
        work = self._crew.run(
            run_trials,
            self.subject,
            missing,
            cpus=method.resources.cpus,
            environment=method.environment,
        )
        with contextlib.closing(work):
            for batch in work:
                self._store.add(batch)
                done += len(batch)
                self.refits += len(batch)
                if time.monotonic() - told > _SAY_SECONDS:
                    told = time.monotonic()
                    self._say(f"{purpose}: {done} of {len(missing)} refits")
        return self._store.get(wanted)

    @property
    def kept(self) -> list[Trial]:
        """All trials so far."""
        return self._store.all()

    def ledger(self) -> Ledger:
        """Of the first trial."""
        return Ledger.from_json(self.trials([FIRST])[0].document)

    def claimed(self) -> float | None:
        """The largest claim of all trials; None where nothing is claimed."""
        claims = [trial.claimed for trial in self.kept if not math.isnan(trial.claimed)]
        return max(claims, default=None)

    def proven(self) -> float:
        """The largest proven epsilon of all trials."""
        return max(trial.proven for trial in self.kept)

    def one_ledger(self) -> bool:
        """True where every trial had the same events: then they have one trade-off curve."""
        return len({trial.ledger for trial in self.kept}) == 1
