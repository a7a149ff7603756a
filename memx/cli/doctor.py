"""``memx doctor``."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import click

from ..errors import MemxError
from ..sizes import format_size
from .output import print_json

__all__ = ["doctor"]

_PACKAGES = ("memx", "cuda-core", "cuda-bindings", "numpy", "matplotlib", "torch", "cupy-cuda13x")
_NO_DRIVER = (
    "There is no CUDA driver in this process's reach. `memx demo` runs on a simulated device; "
    "a program does after memx.simulate()."
)
_MEANINGS = (
    ("virtual_memory", "maps GPU memory page by page"),
    ("host_mapping", "maps host memory at GPU addresses"),
    ("context_events", "waits for a context without stopping it"),
)


@click.command()
@click.option("--simulate", is_flag=True, help="Look at the simulated device instead.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor(simulate: bool, as_json: bool) -> int:
    """Say what this machine's driver can do, tried out rather than read off flags.

    Status 1: there is a driver, and memx cannot work with it.
    """
    from .. import sim

    if simulate and not sim.active():
        sim.simulate()
    report = _examine()
    if as_json:
        print_json(report)
    else:
        _print(report)
    return 0 if all(device["usable"] for device in report["devices"]) and not report["failure"] else 1


def _examine() -> dict[str, Any]:
    from .. import _native, sim

    report: dict[str, Any] = {
        "driver": bool(_native.driver_loaded()),
        "simulated": False,
        "driver_version": None,
        "devices": [],
        "failure": None,
        "advice": None,
        "python": platform.python_version(),
        "packages": _packages(),
    }
    if not report["driver"]:
        report["advice"] = _NO_DRIVER
        return report
    report["simulated"] = sim.active()
    report["driver_version"] = _native.driver_version()
    try:
        report["devices"] = _devices()
    except (MemxError, RuntimeError) as error:
        report["failure"] = str(error)
        report["advice"] = _NO_DRIVER
    return report


def _devices() -> list[dict[str, Any]]:
    from cuda.core import Device

    from .. import _native

    found = []
    for ordinal, device in enumerate(Device.get_all_devices()):
        capability = device.compute_capability
        entry: dict[str, Any] = {
            "ordinal": ordinal,
            "name": device.name,
            "compute_capability": f"{capability.major}.{capability.minor}",
        }
        probed = _native.probe(ordinal)
        entry.update({key: value for key, value in probed.items() if key != "driver_version"})
        entry["usable"] = bool(probed["virtual_memory"])
        found.append(entry)
    return found


def _packages() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def _print(report: dict[str, Any]) -> None:
    if report["driver"]:
        kind = "simulated CUDA driver" if report["simulated"] else "CUDA driver"
        number = report["driver_version"]
        click.echo(f"{kind}, version {number // 1000}.{number % 1000 // 10}")
    for device in report["devices"]:
        click.echo(
            f"device {device['ordinal']}: {device['name']}, "
            f"compute capability {device['compute_capability']}, "
            f"{format_size(device['total_bytes'])} in pages of {format_size(device['page_bytes'])}"
        )
        for key, meaning in _MEANINGS:
            click.echo(f"  {'yes' if device[key] else 'no ':3}  {meaning}")
        if device["failure"]:
            click.echo(f"  {device['failure']}")
    if report["failure"]:
        click.echo(report["failure"])
    if report["advice"]:
        click.echo(report["advice"])
    for name, number in report["packages"].items():
        click.echo(f"{name}: {number or 'not installed'}")
