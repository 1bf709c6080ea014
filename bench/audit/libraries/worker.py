"""Runs all trials of targets inside the environment of their library; a line of JSON per trial.

`python -P -m bench.audit.libraries.worker SEED TARGET...`: one process for all, since importing a
library often takes longer than its fits. What libraries print goes to the standard error.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
import time
import warnings
from importlib import metadata

from bench.audit.libraries.tables import generator
from bench.audit.libraries.target import STAGES, WORLDS
from bench.audit.libraries.targets import target_named


def main(seed: str, *names: str) -> None:
    """Run the trials of these targets and print their scores."""
    # Warnings of privacy leaks are read in the library's text, not here, once per fit.
    warnings.simplefilter("ignore")
    answers = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        for target in map(target_named, names):
            version = metadata.version(target.package)
            for stage, world in itertools.product(STAGES, WORLDS):
                for number in range(target.trials):
                    started = time.process_time()
                    rng = generator(int(seed), target.name, stage, world, number)
                    score = target.trial(rng, inside=world == "in")
                    line = {
                        "target": target.name,
                        "version": version,
                        "part": f"{stage}/{world}",
                        "score": score,
                        "seconds": time.process_time() - started,
                    }
                    print(json.dumps(line), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
