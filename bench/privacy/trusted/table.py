"""Table of trusted mechanisms: those of other libraries that the harness calls and vouches for.

An entry names the library and the versions whose code was read; the DP event is built from the
parameters actually used. An unlisted version is charged as non-private access. A plugin may bring
its own entry: its releases then read `sound, trusting <plugin>`. A library with a known privacy bug
is not in the table.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from bench.data.encoder import EncodedRows, Encoder
from bench.errors import PrivacyContractError, UnknownNameError
from bench.privacy.events import DpEvent
from bench.privacy.trusted import ebm, mwem, smartnoise

Observe = Callable[
    [tuple[EncodedRows, EncodedRows], Encoder, np.random.Generator, Mapping[str, Any], bool], float
]
"""Maps the rows without and with a canary, the encoder, a generator, the parameters and whether the
canary is in, to the log-likelihood ratio, with against without, of the measurements."""


@final
@dataclass(frozen=True)
class TrustedMechanism:
    """One mechanism of a library: how to call it, and its DP event."""

    name: str
    library: str
    versions: tuple[str, ...]
    event: Callable[[Mapping[str, Any]], DpEvent]
    """Returns the event of a call with these parameters; it is charged before the call."""
    run: Callable[[EncodedRows, Encoder, np.random.Generator, Mapping[str, Any]], object]
    """Calls the library on the rows and returns the released result. The generator was seeded with
    256 bits: a library that takes shorter seeds needs `run_secure`."""
    plugin: str = ""
    """Name of the plugin that brings the entry; empty for the harness's own table."""
    below: tuple[tuple[str, str], ...] = ()
    """Packages that the library uses for noise or counts, each with the version checked."""
    run_secure: Callable[[EncodedRows, Encoder, Mapping[str, Any]], object] | None = None
    """Called instead of `run` under secure noise, where the library has a mode that draws from the
    operating system's entropy. Under secure noise no seed of fewer than 128 bits decides noise."""
    observe: Observe | None = None
    """For audits: runs the private steps and returns the log-likelihood ratio of what they gave;
    None where the library does not show its noisy measurements."""

    def installed_version(self) -> str:
        """Return the installed version of the library."""
        return self._version(self.library, self.versions)

    def unchecked(self) -> str:
        """Say which installed version was not checked; empty where all are listed."""
        listed = [(self.library, self.versions), *((name, (only,)) for name, only in self.below)]
        for library, versions in listed:
            version = self._version(library, versions)
            if version not in versions:
                return (
                    f"{library} {version} is not among the versions whose privacy was checked "
                    f"({', '.join(versions)})"
                )
        return ""

    def _version(self, library: str, versions: tuple[str, ...]) -> str:
        try:
            return importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            raise PrivacyContractError(
                f"mechanism {self.name!r} needs the package {library!r}, which is not "
                f"installed; install one of the versions {', '.join(versions)}"
            ) from None

    @property
    def trust(self) -> str:
        """Plugin, or library with its version, that the proof trusts."""
        return self.plugin or f"{self.library} {self.installed_version()}"


_NOISE = ("opendp", "0.14.2")
_COUNTS = ("mbi", "1.1.0")

TABLE: Mapping[str, TrustedMechanism] = {
    entry.name: entry
    for entry in (
        TrustedMechanism(
            "smartnoise-mst",
            "smartnoise-synth",
            ("1.0.8",),
            smartnoise.zero_concentrated,
            smartnoise.run_mst,
            below=(_NOISE, _COUNTS),
            observe=smartnoise.observe_mst,
        ),
        TrustedMechanism(
            "smartnoise-aim",
            "smartnoise-synth",
            ("1.0.8",),
            smartnoise.zero_concentrated,
            smartnoise.run_aim,
            below=(_NOISE, _COUNTS),
            observe=smartnoise.observe_aim,
        ),
        TrustedMechanism(
            "smartnoise-mwem",
            "smartnoise-synth",
            ("1.0.8",),
            mwem.choices_and_counts,
            mwem.run_mwem,
            below=(_NOISE,),
            observe=mwem.observe_mwem,
        ),
        TrustedMechanism(
            "interpret-dp-ebm",
            "interpret-core",
            ("0.7.8",),
            ebm.gaussians,
            ebm.run_ebm,
            run_secure=ebm.run_secure_ebm,
        ),
    )
}
"""The harness's own entries; each is added with the method that needs it."""


def find(mechanism: str | TrustedMechanism) -> TrustedMechanism:
    """Look up an entry of the table, or return a plugin's own."""
    if isinstance(mechanism, TrustedMechanism):
        if not mechanism.plugin:
            raise PrivacyContractError(
                f"mechanism {mechanism.name!r}: an entry that is not in the harness's table must "
                "name the plugin that vouches for it"
            )
        return mechanism
    if mechanism not in TABLE:
        raise UnknownNameError("trusted mechanism", mechanism, TABLE)
    return TABLE[mechanism]
