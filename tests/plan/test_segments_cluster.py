"""Planning on a Dask cluster: the same plans, found elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import migration_problems as small
import pytest
from click.testing import CliRunner, Result

from memx.cli import cli
from memx.plan import segments
from memx.plan.migration.cluster import pool_of
from memx.plan.migration.files import read_schedule

distributed = pytest.importorskip("distributed")

FILES = [small.DATA / f"{name}.jsonl" for name in ("t06_fwd_bwd", "t07_two_iterations", "t13_random")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        yield cluster


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["segments", *map(str, arguments)])


def test_islands_of_a_cluster_find_the_same_plan(cluster: Any) -> None:
    here = segments(FILES[2], 22, 60, 5, mode="packed")
    with pool_of(f"dask:{cluster.scheduler_address}") as pool:
        there = segments(FILES[2], 22, 60, 5, mode="packed", pool=pool)
    assert there.migrated_bytes == here.migrated_bytes == 74
    assert there.homes.tolist() == here.homes.tolist()


def test_many_traces_are_planned_on_it(cluster: Any, tmp_path: Path) -> None:
    result = run(*FILES, "--capacity", 22, "--json", "-o", tmp_path, "--scheduler", f"dask:{cluster.scheduler_address}")
    assert result.exit_code == 0, result.stderr
    plans = json.loads(result.stdout)["plans"]
    assert [plan["trace"] for plan in plans] == [str(file) for file in FILES]
    for file, plan in zip(FILES, plans, strict=True):
        assert plan["migrated_bytes"] == segments(file, 22).migrated_bytes
        saved = read_schedule(tmp_path / f"{file.stem}.schedule.json")
        assert saved.moved.bytes == plan["migrated_bytes"]


def test_many_traces_are_planned_without_one(tmp_path: Path) -> None:
    plans = json.loads(run(*FILES, "--capacity", 22, "--json").stdout)["plans"]
    assert [plan["optimal"] for plan in plans] == [True] * 3
    assert run(*FILES, "--capacity", 8).exit_code == 1
    assert run(*FILES, "--capacity", 22, "--plot", tmp_path / "x.png").exit_code == 2
    assert run(*FILES, "--capacity", 22, "-o", tmp_path / "none").exit_code == 2


@pytest.mark.parametrize("scheduler", ["dask:", "slurm:here", "dask"])
def test_what_is_no_scheduler(scheduler: str) -> None:
    result = run(FILES[0], "--capacity", 22, "--scheduler", scheduler)
    assert result.exit_code == 2
    assert scheduler in result.stderr
