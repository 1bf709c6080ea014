"""Mechanisms of other libraries that the harness itself calls and vouches for.

An entry names the library and the versions whose code was read; the DP event is built from the
parameters actually used. An unlisted version is charged as a raw look. A plugin may bring its own
entry: its releases then read `sound, trusting <plugin>`. A library with a known privacy bug is
not in the table.
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
from bench.privacy.trusted import ebm as trusted_ebm
from bench.privacy.trusted import mwem as trusted_mwem
from bench.privacy.trusted import smartnoise as trusted_smartnoise


@final
@dataclass(frozen=True)
class TrustedMechanism:
    """One mechanism of a library, with how to call it and what it costs."""

    name: str
    library: str
    versions: tuple[str, ...]
    event: Callable[[Mapping[str, Any]], DpEvent]
    """The event of a call with these parameters: charged before the call."""
    run: Callable[[EncodedRows, Encoder, np.random.Generator, Mapping[str, Any]], object]
    """Calls the library on the rows; what it returns is the released result."""
    plugin: str = ""
    """Name of the plugin that brings the entry; empty for the harness's own table."""
    below: tuple[tuple[str, str], ...] = ()
    """Packages that the library draws noise or counts with, each with the version checked."""

    def installed_version(self) -> str:
        """The version that would run."""
        return self._version(self.library, self.versions)

    def unchecked(self) -> str:
        """Which installed version nobody has checked, in words; empty where all are as listed."""
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
        """Whom a reader has to trust."""
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
            trusted_smartnoise.zero_concentrated,
            trusted_smartnoise.run_mst,
            below=(_NOISE, _COUNTS),
        ),
        TrustedMechanism(
            "smartnoise-aim",
            "smartnoise-synth",
            ("1.0.8",),
            trusted_smartnoise.zero_concentrated,
            trusted_smartnoise.run_aim,
            below=(_NOISE, _COUNTS),
        ),
        TrustedMechanism(
            "smartnoise-mwem",
            "smartnoise-synth",
            ("1.0.8",),
            trusted_mwem.choices_and_counts,
            trusted_mwem.run_mwem,
            below=(_NOISE,),
        ),
        TrustedMechanism(
            "interpret-dp-ebm",
            "interpret-core",
            ("0.7.8",),
            trusted_ebm.gaussians,
            trusted_ebm.run_ebm,
        ),
    )
}
"""The harness's own table. Entries come with the methods that need them."""


def find(mechanism: str | TrustedMechanism) -> TrustedMechanism:
    """Look up a table entry, or pass a plugin's own through."""
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
