"""A method's own packages, where they cannot share an environment with ours."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class Environment:
    """Packages that are laid over the main environment (which stays visible below them).

    A method names one in `Method.environment`; its cells are then fitted by that environment's
    interpreter and scored by ours. What a method of an environment imports at its module's top
    level must be in the main environment too: the registry lists it from there.
    """

    name: str
    requirements: tuple[str, ...]
    """As pip takes them, pinned. What the main environment has already need not be listed."""
    modules: tuple[str, ...]
    """Imported once after a build: an environment in which one fails is not used."""

    @property
    def digest(self) -> str:
        """Of what makes the environment: two with the same digest are the same."""
        content = json.dumps([self.requirements, self.modules])
        return hashlib.sha256(content.encode()).hexdigest()[:16]
