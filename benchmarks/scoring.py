"""Processor seconds that the default suite takes for each further release, before and after.

    python benchmarks/scoring.py [--base COMMIT] [--parts adult-200,...] [--write]

Every part is run by the code of this folder and by that of the base commit, which is checked out as
a git worktree for as long as the benchmark takes, in one run, on one thread and on the same
releases. A part first scores one release (models of the real rows are fitted, loops are compiled)
and then others with other seeds, of which the quickest is reported. Besides:

* `scores`: every score of the old code beside the new one; is it inside the old interval?
* `rivals`: the same release scored by the full reports of SynthEval and SDMetrics (their defaults).
* `shortcuts`: what is computed in another way than a library does it, against that library, on five
  releases of Adult.
* `ties`: why `aia/accuracy` of a release without dependence moves with the bins of the trees.
* `coverage`: share of 200 simulated releases whose 95% interval holds the true value, old and new.

A part whose dataset is not on this machine is left out with the reason (see `bench data`).
`--write` stores all numbers in docs/metrics/speed.json, with those of parts that were not run kept,
and generates docs/metrics/speed.md from it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
BASE = "5752f8c"
"""The last commit before scoring was made faster."""

PARTS: dict[str, tuple[str, str, int, int]] = {
    "adult-200": ("adult", "Adult, 200 rows", 200, 3),
    "adult-10000": ("adult", "Adult, 10,000 rows", 10_000, 2),
    "seer-200": ("seer-breast", "SEER breast cancer, 200 rows", 200, 3),
    "mnist-100": ("mnist", "MNIST, 100 images", 100, 1),
}
"""Dataset, title, released rows and further releases of each part."""

FIVE = (
    ("marginals", 50),
    ("marginals", 10_000),
    ("dp-merf", 200),
    ("dp-merf", 2_000),
    ("dpmix", 1_000),
)
"""Method and rows of the releases that shortcuts are measured on."""

SIMULATED = 200
RESULTS = ROOT / "docs" / "metrics" / "speed.json"
PAGE = ROOT / "docs" / "metrics" / "speed.md"
ALL = (*PARTS, "rivals", "shortcuts", "ties", "coverage")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--base", default=BASE, help="commit to compare with")
    parser.add_argument("--parts", default=",".join(ALL), help=f"of {', '.join(ALL)}")
    parser.add_argument("--write", action="store_true", help=f"store in {RESULTS.name}")
    parser.add_argument("--worker", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.worker is not None:
        task, *arguments = options.worker
        print("\n" + json.dumps(WORKERS[task](*arguments)))
        return
    chosen = options.parts.split(",")
    unknown = sorted(set(chosen) - set(ALL))
    if unknown:
        parser.error(f"no part {', '.join(unknown)}; expected some of {', '.join(ALL)}")
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, _checked_out(options.base) as old:
        trees = {"before": _layout(old, Path(folder)), "after": _layout(ROOT, Path(folder))}
        for part in chosen:
            try:
                results[part] = _run(part, trees, Path(folder))
            except _Absent as reason:
                print(f"{part}: left out, {reason}")
                continue
            print(_line(part, results[part]), flush=True)
            if options.write:
                _write(results | {"base": options.base, "machine": _machine()})


def _write(results: dict[str, Any]) -> None:
    """Store results after each part, so that a long run that is stopped was not in vain."""
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    stored |= results
    RESULTS.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
    # From the file, whose keys are sorted: the page is then that of the stored numbers.
    PAGE.write_text(page(json.loads(RESULTS.read_text())))


class _Absent(Exception):
    """A dataset is not on this machine."""


# Two versions of the code ------------------------------------------------------------------------


@contextlib.contextmanager
def _checked_out(commit: str) -> Iterator[Path]:
    """Check a commit out beside the repository, for as long as it is needed."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def _layout(tree: Path, folder: Path) -> Path:
    """A folder from which `bench` of this tree is imported: its rooms under their import names."""
    package = folder / f"layout-{len(list(folder.glob('layout-*')))}" / "bench"
    package.mkdir(parents=True)
    for part in (tree / "bench").iterdir():
        (package / part.name).symlink_to(part)
    for room in ("methods", "datasets", "metrics", "leaderboard"):
        (package / room).symlink_to(tree / room)
    return package.parent


def _ask(layout: Path, *arguments: object) -> Any:
    """Run a worker on one thread in a process that imports `bench` from there."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(layout),
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "LOKY_MAX_CPU_COUNT"), "1"),
    }
    command = [sys.executable, str(Path(__file__).resolve()), "--worker", *map(str, arguments)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    if isinstance(answer, dict) and "absent" in answer:
        raise _Absent(answer["absent"])
    return answer


def _run(part: str, trees: dict[str, Path], folder: Path) -> dict[str, Any]:
    if part in PARTS:
        dataset, _, rows, further = PARTS[part]
        files = [
            _ask(trees["after"], "release", dataset, "marginals", rows, seed, folder)
            for seed in range(1 + further)
        ]
        sides = {side: _ask(tree, "suite", dataset, *files) for side, tree in trees.items()}
        return _compared(sides["before"], sides["after"])
    if part == "rivals":
        file = _ask(trees["after"], "release", "adult", "marginals", 200, 0, folder)
        names = {
            "ours": "suite",
            "SynthEval, full_eval": "syntheval",
            "SDMetrics, quality and diagnostic reports": "sdmetrics",
        }
        answers = {name: _ask(trees["after"], task, "adult", file) for name, task in names.items()}
        ours = answers.pop("ours")
        answers["this suite, first release of a process"] = {
            "seconds": sum(ours["first"].values()),
            "scores": len(ours["scores"]),
        }
        return answers
    if part == "ties":
        file = _ask(trees["after"], "release", "adult", "marginals", 10_000, 2, folder)
        return {"attributes": _ask(trees["after"], "ties", "adult", file)}
    if part == "coverage":
        return {side: _ask(tree, "coverage") for side, tree in trees.items()}
    measured = []
    for method, rows in FIVE:
        file = _ask(trees["after"], "release", "adult", method, rows, 0, folder)
        measured.append(
            {"method": method, "rows": rows} | _ask(trees["after"], "shortcuts", "adult", file)
        )
    return {"releases": measured}


def _compared(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Seconds of both, and which scores lie outside the old interval."""
    inside, without, outside, changed = 0, 0, [], []
    for name, (value, low, high) in before["scores"].items():
        new = after["scores"].get(name, (None, None, None))[0]
        if (value is None) != (new is None):
            changed.append(name)
        elif value is None:
            continue
        elif low is None:
            without += 1
            if not np.isclose(value, new, rtol=0, atol=0.002):
                outside.append({"score": name, "before": [value, low, high], "after": new})
        elif low - 1e-9 <= new <= high + 1e-9:
            inside += 1
        else:
            outside.append({"score": name, "before": [value, low, high], "after": new})
    sides = {
        side: {
            "seconds": sum(one["further"].values()),
            "first": sum(one["first"].values()),
            "by_metric": {name: round(taken, 4) for name, taken in one["further"].items()},
        }
        for side, one in (("before", before), ("after", after))
    }
    return sides | {
        "scores": len(after["scores"]),
        "inside": inside,
        "without_interval": without,
        "outside": outside,
        "absent_in_one": changed,
    }


# Workers: in a process of their own, by the code of either tree ----------------------------------


def _dataset(name: str) -> Any:
    from bench.errors import InputError
    from bench.plugins import registry
    from bench.plugins.source import build_dataset

    try:
        return build_dataset(registry.build_source(name))
    except InputError as problem:
        raise _Absent(f"{name} is not on this machine ({str(problem).splitlines()[0]})") from None


def _release(name: str, method: str, rows: str, seed: str, folder: str) -> Any:
    """Write the rows of a release; its method is private, so they may be in a file."""
    from bench import Budget
    from bench.plugins import registry
    from bench.plugins.method import Spec
    from bench.privacy.noise import SeededNoise
    from bench.privacy.opening import open_private

    try:
        dataset = _dataset(name)
    except _Absent as reason:
        return {"absent": str(reason)}
    budget = Budget(1.0, 1e-5)
    private, _ = open_private(dataset, budget, SeededNoise(np.random.default_rng(int(seed))))
    spec = Spec(dataset.task, max(1, int(rows) // len(dataset.schema.classes)), budget)
    rng = np.random.default_rng(1000 + int(seed))
    released = registry.build_method(method).synthesize(private, spec, rng).rows
    file = Path(folder) / f"{name}-{method}-{rows}-{seed}.npz"
    optional = {"weights": released.weights, "soft_labels": released.soft_labels}
    kept = {key: value for key, value in optional.items() if value is not None}
    np.savez(file, values=released.values, labels=released.labels, **kept)
    return str(file)


def _read(file: str) -> Any:
    from bench.plugins.release import Release, Rows

    with np.load(file) as stored:
        return Release(Rows(**{name: stored[name] for name in stored.files}))


def _processor() -> float:
    """Processor seconds of this process and of those that it started."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in usage)


def _suite(name: str, *files: str) -> dict[str, Any]:
    """Seconds of each metric for the first release and for the quickest further one."""
    from bench.errors import NotComputable
    from bench.plugins import registry
    from bench.plugins.metric import Evaluation, Metric

    dataset = _dataset(name)
    metrics = [registry.metric(one) for one in registry.select_metrics(["default"])]
    chosen = [one for one in metrics if dataset.task in one.tasks and isinstance(one, Metric)]
    runs: list[dict[str, float]] = []
    scores: dict[str, Any] = {}
    for seed, file in enumerate(files):
        evaluation = Evaluation(dataset, _read(file), seed, 1)
        taken: dict[str, float] = {}
        for metric in chosen:
            started = _processor()
            try:
                computed = metric.compute(evaluation)
            except NotComputable as reason:
                computed = metric.all_absent(str(reason))
            taken[metric.name] = _processor() - started
            if seed == len(files) - 1:
                scores |= {one.metric: (one.value, one.low, one.high) for one in computed.scores}
        runs.append(taken)
    further = min(runs[1:] or runs, key=lambda run: sum(run.values()))
    return {"first": runs[0], "further": further, "scores": scores}


def _frames(name: str, file: str) -> tuple[Any, Any, Any, Any]:
    dataset = _dataset(name)
    rows = _read(file).rows
    released = dataset.encoder.decode(rows.values, rows.labels)
    return dataset, dataset.train.frame, dataset.test.frame, released


def _syntheval(name: str, file: str) -> dict[str, Any]:
    from bench.data.schema import Categorical

    dataset, train, test, released = _frames(name, file)
    columns = dataset.schema.columns
    kinds = [one.name for one in columns if isinstance(one, Categorical) and one.name in train]
    train, test, released = (
        frame[list(released)].astype(dict.fromkeys(kinds, str)) for frame in (train, test, released)
    )
    started = _processor()
    with contextlib.redirect_stdout(None):
        from syntheval import SynthEval

        judge = SynthEval(
            train, holdout_dataframe=test, cat_cols=kinds, verbose=False, enable_plots=False
        )
        table = judge.evaluate(released, dataset.schema.label.name, presets_file="full_eval")
    return {"seconds": _processor() - started, "scores": len(table)}


def _sdmetrics(name: str, file: str) -> dict[str, Any]:
    from bench.data.schema import Categorical

    dataset, train, _, released = _frames(name, file)
    kinds = {
        one.name: {"sdtype": "categorical" if isinstance(one, Categorical) else "numerical"}
        for one in dataset.schema.columns
        if one.name in released
    }
    train = train[list(released)]
    started = _processor()
    from sdmetrics.reports.single_table import DiagnosticReport, QualityReport

    scores = 0
    for report in (QualityReport(), DiagnosticReport()):
        report.generate(train, released, {"columns": kinds}, verbose=False)
        for part in report.get_properties()["Property"]:
            scores += int(report.get_details(part)["Score"].notna().sum())
    return {"seconds": _processor() - started, "scores": scores}


def _shortcuts(name: str, file: str) -> dict[str, Any]:
    """Each way that is quicker than that of a library: seconds of both, and how far they differ."""
    import xgboost
    from sklearn.metrics import roc_auc_score
    from sklearn.neural_network import MLPClassifier

    from bench.metrics._shared import bootstrap, downstream_models
    from bench.metrics._shared.auroc import auroc, delong
    from bench.metrics.utility import explanations
    from bench.plugins.metric import Evaluation

    dataset = _dataset(name)
    evaluation = Evaluation(dataset, _read(file), 0, 1)
    encoder, labels = dataset.encoder, dataset.test.rows.labels
    features = downstream_models.real_test_features(evaluation)
    examples = downstream_models.released_examples(evaluation)
    model = downstream_models.tree_classifier(evaluation)

    # SHAP: exact, for all rows.
    explanations.contributions(model, encoder, dataset.test.rows.values[:10])
    quick, ours = _timed(
        lambda: explanations.contributions(model, encoder, dataset.test.rows.values)
    )
    matrix = xgboost.DMatrix(features, nthread=1)
    slow, signed = _timed(lambda: model.booster.predict(matrix, pred_contribs=True))
    starts = [block.start for block in encoder.blocks if block.start < encoder.feature_width]
    theirs = np.abs(np.add.reduceat(signed[:, :-1].astype(float), starts, axis=1))
    shap = {
        "seconds": quick,
        "library": slow,
        "difference": float(np.abs(ours.mean(axis=0) - theirs.mean(axis=0)).max()),
    }

    # The network: the same steps in one loop.
    downstream_models.fit_mlp(examples, 2, np.random.default_rng(0))
    quick, network = _timed(
        lambda: downstream_models.fit_mlp(examples, 2, np.random.default_rng(1))
    )
    rows = downstream_models._training(examples, 2, np.random.default_rng(1), soft=True)
    size = min(downstream_models.BATCH, len(rows.labels))
    epochs = -(-downstream_models.STEPS // -(-len(rows.labels) // size))
    rival = MLPClassifier(
        **downstream_models.MLP,
        batch_size=size,
        max_iter=epochs,
        tol=0.0,
        n_iter_no_change=epochs + 1,
        random_state=int(np.random.default_rng(1).integers(2**31)),
    )
    slow, _ = _timed(lambda: rival.fit(rows.features, rows.labels, sample_weight=rows.weights))
    areas = [
        roc_auc_score(labels, answers[:, 1])
        for answers in (network.predict(features), rival.predict_proba(features))
    ]
    mlp = {"seconds": quick, "library": slow, "difference": abs(areas[0] - areas[1])}

    # The interval of the area: a thousand resamples, and the closed form.
    scores = downstream_models.one_score(model, features)
    rng = np.random.default_rng(0)
    bootstrap.bootstrap(auroc(labels, scores), labels, rng)
    quick, estimate = _timed(lambda: bootstrap.bootstrap(auroc(labels, scores), labels, rng))
    closed = delong(labels, scores)
    slow, _ = _timed(
        lambda: [
            roc_auc_score(labels[drawn], scores[drawn])
            for drawn in rng.integers(0, len(labels), (20, len(labels)))
        ]
    )
    resamples = {
        "seconds": quick,
        "library": slow * bootstrap.RESAMPLES / 20,
        "difference": abs(estimate.value - float(roc_auc_score(labels, scores))),
        "interval": estimate.interval,
        "delong": (closed.low, closed.high),
    }
    return {"shap": shap, "mlp": mlp, "resamples": resamples}


def _ties(name: str, file: str) -> list[dict[str, Any]]:
    """Attribute inference by the trees of the suite and by XGBoost's, and how close guesses are."""
    import xgboost

    from bench.metrics._shared.shallow_trees import RATE, ROUNDS
    from bench.metrics.privacy.disclosure import _matching, attribute_inference
    from bench.plugins.metric import Evaluation

    dataset = _dataset(name)
    evaluation = Evaluation(dataset, _read(file), 0, 1)
    released, asked = (
        attribute_inference.EncodedTable.of(dataset.encoder, rows.values, rows.labels)
        for rows in (evaluation.rows, dataset.train.rows)
    )
    settings = {
        "tree_method": "hist",
        "max_depth": 3,
        "learning_rate": RATE,
        "reg_lambda": 0.0,
        "min_child_weight": 0.0,
        "base_score": 0.0,
        "nthread": 1,
    }
    found = []
    for column in _matching.attacked(dataset.schema):
        place = released.places[column.name]
        if place.stop - place.start < 3:
            continue  # a number, or a threshold and no largest prediction
        values, truth = released.target(column), asked.target(column)
        mean = values.mean(axis=0)
        model = attribute_inference.trained(released, np.ones(len(values)), column)
        ours = np.stack([one.sums(asked.by_column) for one in model.trees], axis=1) + mean
        theirs = np.column_stack(
            [
                xgboost.train(
                    settings,
                    xgboost.DMatrix(
                        np.delete(released.values, np.r_[place], axis=1), label=target, nthread=1
                    ),
                    ROUNDS,
                ).predict(xgboost.DMatrix(np.delete(asked.values, np.r_[place], axis=1), nthread=1))
                for target in (values - mean).T
            ]
        )
        theirs = theirs + mean
        right = truth.argmax(axis=1)
        best = np.sort(ours, axis=1)
        found.append(
            {
                "attribute": column.name,
                "ours": float((ours.argmax(axis=1) == right).mean()),
                "hist": float((theirs.argmax(axis=1) == right).mean()),
                "same": float((ours.argmax(axis=1) == theirs.argmax(axis=1)).mean()),
                "margin": float(np.median(best[:, -1] - best[:, -2])),
                "apart": float(np.abs(ours - theirs).mean()),
            }
        )
    return found


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def _coverage() -> dict[str, Any]:
    """Share of simulated test tables whose interval holds the true value of the statistic.

    Two classes of 300 and 900 rows with normal scores one deviation apart: the area is
    Phi(1 / sqrt(2)), the accuracy at 1/2 is Phi(1/2), and average precision is an integral.
    Survival: times exponential with rate exp(x), censored at rate one half, risk x plus noise; the
    true C-index is that of 200,000 patients.
    """
    from scipy.stats import norm

    from bench.metrics._shared import auroc as areas
    from bench.metrics._shared import bootstrap
    from bench.metrics._shared.c_index import concordance

    def classes(size: int, rng: np.random.Generator) -> tuple[Any, Any]:
        labels = np.repeat([0, 1], [3 * size, size])
        return labels, rng.normal(size=4 * size) + labels

    def patients(size: int, rng: np.random.Generator) -> tuple[Any, Any, Any]:
        hidden = rng.normal(size=size)
        event = rng.exponential(np.exp(-hidden))
        censored = rng.exponential(2.0, size)
        return np.minimum(event, censored), event <= censored, hidden + rng.normal(size=size)

    def precision(size: int) -> float:
        # E over positives of P(positive | score at least as high), by integration.
        score = np.linspace(-9.0, 10.0, size)
        hits, alarms = norm.sf(score - 1.0), 3.0 * norm.sf(score)
        return float(np.trapezoid(norm.pdf(score - 1.0) * hits / (hits + alarms), score))

    large = np.random.default_rng(1)
    times, events, risks = patients(200_000, large)
    once = np.ones((200_000, 1))
    truth = {
        "auroc": float(norm.cdf(1.0 / np.sqrt(2.0))),
        "auprc": precision(200_001),
        "accuracy": float(norm.cdf(0.5)),
        "c-index": float(concordance(times, events, risks)(once)[0]),
    }
    held = dict.fromkeys((*truth, "auroc, DeLong"), 0)
    widths = dict.fromkeys(held, 0.0)
    for seed in range(SIMULATED):
        rng = np.random.default_rng(100 + seed)
        labels, scores = classes(300, rng)
        right = (scores > 0.5) == labels
        times, events, risks = patients(600, rng)
        intervals = {
            "auroc": bootstrap.bootstrap(areas.auroc(labels, scores), labels, rng).interval,
            "auprc": bootstrap.bootstrap(areas.auprc(labels, scores), labels, rng).interval,
            "accuracy": bootstrap.bootstrap(bootstrap.mean(right), labels, rng).interval,
            "c-index": bootstrap.bootstrap(
                concordance(times, events, risks), np.zeros(600), rng
            ).interval,
        }
        if hasattr(areas, "delong"):
            closed = areas.delong(labels, scores)
            intervals["auroc, DeLong"] = closed.low, closed.high
        for name, (low, high) in intervals.items():
            held[name] += low <= truth[name.split(",")[0]] <= high
            widths[name] += high - low
    return {
        name: {"held": held[name], "of": SIMULATED, "width": widths[name] / SIMULATED}
        for name in held
        if widths[name]
    }


WORKERS: dict[str, Callable[..., Any]] = {
    "release": _release,
    "suite": _suite,
    "syntheval": _syntheval,
    "sdmetrics": _sdmetrics,
    "shortcuts": _shortcuts,
    "ties": _ties,
    "coverage": _coverage,
}


# What is printed and written ---------------------------------------------------------------------


def _machine() -> str:
    return f"one thread of {platform.machine()}, Python {platform.python_version()}"


def _line(part: str, result: dict[str, Any]) -> str:
    if part in PARTS:
        before, after = (_of_both(result, side) for side in ("before", "after"))
        outside = ", ".join(one["score"] for one in result["outside"]) or "none"
        return (
            f"{PARTS[part][1]}: {before:.2f} s before, {after:.2f} s after, ratio "
            f"{before / after:.1f}; {result['scores']} scores, {result['inside']} inside the old "
            f"interval, {result['without_interval']} without one; outside: {outside}"
        )
    return f"{part}: {json.dumps(result)}"


def _of_both(result: dict[str, Any], side: str) -> float:
    """Seconds of the metrics that both versions have."""
    old, new = (result[one]["by_metric"] for one in ("before", "after"))
    return sum(
        taken for name, taken in result[side]["by_metric"].items() if name in old and name in new
    )


def page(stored: dict[str, Any]) -> str:
    """The page of the documentation, from stored results."""
    lines = [
        "# Time that scoring takes",
        "",
        "Generated by `python benchmarks/scoring.py --write` from `speed.json` beside this page: "
        f"processor seconds, {stored['machine']}. Before: the code of commit {stored['base']}.",
        "",
        "## Each further release, default suite",
        "",
        "The first release of a dataset in a process also pays for the models of the real rows. "
        "Seconds are those of the metrics that both versions have.",
        "",
        "| release | before | after | ratio | scores | inside the old interval | outside |",
        "|---|---|---|---|---|---|---|",
    ]
    for part, (_, title, _, _) in PARTS.items():
        if part in stored:
            one = stored[part]
            before, after = (_of_both(one, side) for side in ("before", "after"))
            total = (
                one["inside"]
                + one["without_interval"]
                + sum(each["before"][1] is not None for each in one["outside"])
            )
            outside = ", ".join(f"`{each['score']}`" for each in one["outside"]) or "none"
            lines.append(
                f"| {title} | {before:.2f} s | {after:.2f} s | {before / after:.1f} | "
                f"{one['scores']} | {one['inside']} of {total - one['without_interval']} | "
                f"{outside} |"
            )
    if "ties" in stored:
        lines += [
            "",
            "`aia/accuracy` is the share of rows whose most probable category is the right one. In "
            "a release of `marginals`, columns depend on each other through the label alone: the "
            "two largest predictions nearly tie, and which is larger follows from where numbers "
            "are cut into bins. The interval, over the judged rows, does not contain that. The "
            "trees of this suite beside XGBoost's `hist`, which the code before used, release of "
            "10,000 rows:",
            "",
            "| attribute | accuracy | by `hist` | same guess | median margin of the guess | "
            "mean difference of a prediction |",
            "|---|---|---|---|---|---|",
        ]
        for one in stored["ties"]["attributes"]:
            lines.append(
                f"| `{one['attribute']}` | {one['ours']:.4f} | {one['hist']:.4f} | "
                f"{one['same']:.3f} | {one['margin']:.3f} | {one['apart']:.3f} |"
            )
    for part, (_, title, _, _) in PARTS.items():
        if part in stored:
            lines += ["", f"Slowest metrics, {title}:", "", "| metric | before | after |"]
            lines.append("|---|---|---|")
            before, after = (stored[part][side]["by_metric"] for side in ("before", "after"))
            for name in sorted(before, key=lambda name: -before[name])[:12]:
                lines.append(f"| `{name}` | {before[name]:.2f} s | {after.get(name, 0):.2f} s |")
    if "rivals" in stored:
        lines += ["", "## Beside other suites", ""]
        lines += ["One release of 200 rows of Adult, in one run.", ""]
        lines += ["| suite | seconds | scores |", "|---|---|---|"]
        for name, one in stored["rivals"].items():
            lines.append(f"| {name} | {one['seconds']:.1f} | {one['scores']} |")
    if "shortcuts" in stored:
        lines += ["", "## Against the long way", ""]
        lines += [
            "SHAP: `pred_contribs` of XGBoost; the largest difference of a column's importance. "
            "Network: `MLPClassifier` of scikit-learn with the same settings; the difference of "
            "AUROC. Resamples: 1000 of `roc_auc_score` of scikit-learn, from the time of 20; the "
            "difference of AUROC, and both intervals.",
            "",
            "| release | way | seconds | library | difference | interval | DeLong |",
            "|---|---|---|---|---|---|---|",
        ]
        for one in stored["shortcuts"]["releases"]:
            for way, title in (("shap", "SHAP"), ("mlp", "network"), ("resamples", "resamples")):
                entry = one[way]
                ends = [
                    f"{entry[key][0]:.4f} to {entry[key][1]:.4f}" if key in entry else ""
                    for key in ("interval", "delong")
                ]
                lines.append(
                    f"| {one['method']}, {one['rows']:,} rows | {title} | {entry['seconds']:.3f} | "
                    f"{entry['library']:.3f} | {entry['difference']:.1e} | {ends[0]} | {ends[1]} |"
                )
    if "coverage" in stored:
        lines += ["", "## Coverage of 95% intervals", ""]
        lines += ["Simulated test tables for which the true value is known.", ""]
        lines += [
            "| interval | before | after | mean width before | after |",
            "|---|---|---|---|---|",
        ]
        for name, new in stored["coverage"]["after"].items():
            old = stored["coverage"]["before"].get(name)
            counts = f"{old['held']} of {old['of']}" if old else ""
            width = f"{old['width']:.4f}" if old else ""
            lines.append(
                f"| {name} | {counts} | {new['held']} of {new['of']} | {width} | "
                f"{new['width']:.4f} |"
            )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
