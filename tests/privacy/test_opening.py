"""A dataset behind the kernel: which rows, which counts, whose unit of privacy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np
import pandas as pd
import pytest

from bench import Budget, gaussian, laplace
from bench.data.dataset import Counts, Dataset, Declaration
from bench.data.schema import Categorical, Numeric, Role, Schema, Task
from bench.errors import InputError
from bench.plugins.source import DatasetSource, build_dataset
from bench.privacy.interception import Call, PassThrough, Vectors
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from tests.support.kernel import DATASET, ones


@final
@dataclass(frozen=True)
class TwoSites(DatasetSource):
    """Rows of three classes at two sites, each combination with another number of rows."""

    name: ClassVar[str] = "two-sites"
    ROWS: ClassVar[dict[str, tuple[int, int, int]]] = {"A": (40, 80, 120), "B": (160, 200, 240)}

    def declare(self) -> Declaration:
        columns = (
            Numeric(name="x", low=0, high=1),
            Categorical(name="place", categories=("A", "B"), role=Role.SITE),
            Categorical(name="kind", categories=("r", "s", "t"), role=Role.TARGET),
        )
        return Declaration(
            title="Two sites",
            schema=Schema(columns, Task.CLASSIFICATION),
            by_class=(200, 280, 360),
            by_site_class=self.ROWS,
            licence="CC0",
            citation="none",
            source="simulated",
            simulated=True,
        )

    def load(self) -> pd.DataFrame:
        rng = np.random.default_rng(0)
        rows = [
            (rng.random(), site, kind)
            for site, counts in self.ROWS.items()
            for kind, count in zip("rst", counts, strict=True)
            for _ in range(count)
        ]
        return pd.DataFrame(rows, columns=["x", "place", "kind"])


SITES = build_dataset(TwoSites())


def noise() -> SeededNoise:
    return SeededNoise(np.random.default_rng(0))


def counted(dataset: Dataset, split: str) -> Counts:
    """The true numbers of rows, counted one by one."""
    rows = getattr(dataset, split).rows
    names = dataset.schema.site.categories if dataset.schema.site is not None else ()
    classes = range(len(dataset.schema.classes))
    pairs = list(zip(rows.sites.tolist(), rows.labels.tolist(), strict=True))
    by_site_class = {
        name: tuple(pairs.count((code, label)) for label in classes)
        for code, name in enumerate(names)
    }
    return Counts(
        len(pairs),
        tuple(sum(label == one for _, label in pairs) for one in classes),
        {name: sum(counts) for name, counts in by_site_class.items()},
        by_site_class,
        paid=True,
    )


class TestPaidCounts:
    @pytest.mark.parametrize("dataset", [SITES, DATASET], ids=["sites", "no sites"])
    def test_with_next_to_no_noise_they_are_the_numbers_of_rows(self, dataset: Dataset) -> None:
        private, _ = open_private(dataset, Budget(1e6, 1e-5), noise(), private_counts=True)
        assert private.validation is not None
        assert private.counts == counted(dataset, "train")
        assert private.validation.counts == counted(dataset, "validation")

    def test_a_twentieth_of_epsilon_pays_for_them_once_in_each_split(self) -> None:
        _, ledger = open_private(SITES, Budget(2.0, 1e-5), noise(), private_counts=True)
        assert {entry.path[0][1]: (entry.event, n) for entry, n in ledger.entries.items()} == {
            "train": (laplace(10.0), 1),
            "validation": (laplace(10.0), 1),
        }

    def test_checks_of_methods_see_the_call_that_was_charged(self) -> None:
        seen: list[Call] = []

        class Watching(PassThrough):  # type: ignore[misc]
            def answer(self, call: Call, answer: Vectors) -> Vectors:
                seen.append(call)
                return answer

        open_private(SITES, Budget(2.0, 1e-5), noise(), private_counts=True, interceptor=Watching())
        assert seen == [
            Call("histograms", (("split", split),), 10.0, bins=(6,), mechanism="laplace")
            for split in ("train", "validation")
        ]

    def test_no_count_is_below_one(self) -> None:
        private, _ = open_private(SITES, Budget(1e-3, 1e-5), noise(), private_counts=True)
        table = np.array(list(private.counts.by_site_class.values()))
        assert table.min() == 1
        assert private.counts.total == table.sum() == sum(private.counts.by_class)
        assert private.counts.by_class == tuple(table.sum(axis=0))

    def test_without_a_budget_the_declared_ones_are_used(self) -> None:
        private, ledger = open_private(SITES, None, noise(), private_counts=True)
        assert private.counts == SITES.counts and not private.counts.paid
        assert not ledger.entries

    def test_by_default_the_declared_ones_are_used(self) -> None:
        private, ledger = open_private(SITES, Budget(1.0, 1e-5), noise())
        assert private.validation is not None and not ledger.entries
        assert private.counts == SITES.counts
        assert private.validation.counts == SITES.validation_counts != SITES.counts


class TestLedgerOfTheTable:
    def test_inferred_bounds_are_the_first_entry(self) -> None:
        schema = replace(SITES.schema, inferred=True)
        dataset = replace(SITES, declaration=replace(SITES.declaration, schema=schema))
        _, ledger = open_private(dataset, None, noise())
        assert ledger.proof().reasons == ("bounds and categories were inferred from the rows",)
        assert not open_private(SITES, None, noise())[1].entries

    def test_splits_are_the_rows_that_they_are_called(self) -> None:
        private, ledger = open_private(SITES, None, noise())
        assert private.validation is not None and private.validation.validation is None
        for data, split in ((private, SITES.train), (private.validation, SITES.validation)):
            total = data.gaussian_sum(ones, 1.0, 1e-9)[0]
            assert total == pytest.approx(len(split), abs=1e-3 * len(split))
        assert [entry.path for entry in ledger.entries] == [
            (("split", "train"),),
            (("split", "validation"),),
        ]

    def test_delta_is_the_budgets_or_else_the_one_given(self) -> None:
        assert open_private(SITES, None, noise())[1].delta == 1e-5
        assert open_private(SITES, None, noise(), delta=1e-7)[1].delta == 1e-7
        assert open_private(SITES, Budget(1.0, 1e-6), noise(), delta=1e-7)[1].delta == 1e-6

    def test_the_unit_is_the_datasets_unless_a_method_has_its_own(self) -> None:
        patients = replace(SITES, declaration=replace(SITES.declaration, unit="patient"))
        assert open_private(SITES, None, noise())[1].unit == "row"
        assert open_private(patients, None, noise())[1].unit == "patient"
        assert open_private(patients, None, noise(), unit="client")[1].unit == "client"
        images = replace(SITES, declaration=replace(SITES.declaration, unit="image"))
        assert open_private(images, None, noise())[1].unit == "image"
        wards = replace(SITES, declaration=replace(SITES.declaration, unit="ward"))
        with pytest.raises(InputError, match="'ward' is unknown"):
            open_private(wards, None, noise())

    def test_rows_are_not_evaluated_twice_unless_asked_for(self) -> None:
        calls = []

        def function(rows: object) -> np.ndarray:
            calls.append(len(rows))  # type: ignore[arg-type]
            return np.ones((len(rows), 1))  # type: ignore[arg-type]

        open_private(SITES, None, noise())[0].gaussian_sum(function, 1.0, 1.0)
        assert calls == [len(SITES.train)]
        calls.clear()
        open_private(SITES, None, noise(), check_rows=True)[0].gaussian_sum(function, 1.0, 1.0)
        assert calls == [len(SITES.train), 0, 1, 1]

    def test_public_randomness_of_parts_follows_its_seed(self) -> None:
        drawn = []
        for seed in (None, 0, 0, 1):
            options = {} if seed is None else {"public_entropy": seed}
            private, _ = open_private(SITES, None, noise(), **options)
            models = private.fit_parts(private.partition("site"), lambda rows, rng: rng.random())
            drawn.append([models._ask(float)])
        assert drawn[0] == drawn[1] == drawn[2] != drawn[3]


class TestSitesAsParts:
    def test_a_row_is_in_the_part_of_its_site(self) -> None:
        private, ledger = open_private(SITES, None, noise())
        parts = private.partition("site")
        assert list(parts) == ["A", "B"]
        true = counted(SITES, "train").by_site
        for name, part in parts.items():
            total = part.gaussian_sum(ones, 1.0, 1e-9)[0]
            assert total == pytest.approx(true[name], abs=1e-3 * true[name])
            assert part.counts.total == SITES.counts.by_site[name]
        private.reserve(gaussian(1e-9))
        assert {entry.path[-1] for entry in ledger.entries} == {
            ("site", "A"),
            ("site", "B"),
            ("split", "train"),
        }

    def test_sites_are_clients_where_those_are_the_unit(self) -> None:
        private, _ = open_private(SITES, None, noise(), unit="client")
        models = private.fit_parts(private.partition("site"), lambda rows, _: len(rows))
        assert private.partition_sum(models, lambda _: [1.0], 1.0, 1e-9)[0] == pytest.approx(2.0)
