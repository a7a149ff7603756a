"""An estimate for people, on a terminal."""

from __future__ import annotations

from typing import Any

from ..sizes import format_size
from .traffic import WAYS

__all__ = ["print_report"]


def print_report(report: dict[str, Any]) -> None:
    """Print tables."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    size = format_size
    console.print(
        f"[bold]{escape(report['program'])}[/bold]: {report['steps']} optimizer steps, "
        f"{report['allocations']:,} allocations, {report['seconds']['all']:.0f} s"
    )
    if report["error"]:
        console.print(f"[red]It ended early: {escape(report['error'])}[/red]", soft_wrap=True)
    console.print(f"\nPeak [bold]{size(report['peak_bytes'])}[/bold] ({report['peak_at']}):")
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 2))
    for name, nbytes in report["by_category"].items():
        if nbytes:
            table.add_row(name, size(nbytes), f"{nbytes / report['peak_bytes']:.0%}")
    console.print(table)

    table = Table(title="Device memory", title_justify="left", box=None, padding=(0, 2, 0, 2))
    device = report.get("device")
    heads = ["allocator", "reserves", "smallest device"]
    for head in [*heads, f"fits {size(device['bytes'])}"] if device else heads:
        table.add_column(head, justify="left" if head == "allocator" else "right")
    for name, reserved in report["reserved_bytes"].items():
        row = [name, size(reserved), size(report["smallest_device_bytes"][name])]
        table.add_row(*row, *(["yes" if device["fits"][name] else "no"] if device else []))
    planned = report.get("planned_bytes")
    if planned is not None:
        table.add_row("a planned layout", size(planned), size(planned), *([""] if device else []))
    if report["reserved_bytes"]:
        console.print()
        console.print(table)
    if device and not device["fits"]:
        than = "more" if report["peak_bytes"] > device["bytes"] else "no more"
        console.print(f"The peak alone is {than} than {size(device['bytes'])}; --quick leaves the rest out.")
    elif device and not all(device["fits"].values()):
        console.print(_beyond(device), soft_wrap=True)
    if device and "over_the_bus" in device:
        _print_traffic(console, device["over_the_bus"])

    table = Table(title="Largest at the peak", title_justify="left", box=None, padding=(0, 2, 0, 2))
    for head in ("bytes", "for", "what", "made at"):
        table.add_column(head, justify="right" if head == "bytes" else "left", overflow="fold")
    for one in report["largest"]:
        table.add_row(
            size(one["bytes"]),
            one["category"],
            escape(one["name"] or one["call"]),
            escape(one["where"] or "backward pass"),
        )
    console.print()
    console.print(table)
    if report["untrusted"]:
        console.print("\n[bold]Not to be trusted:[/bold]")
        for one in report["untrusted"]:
            console.print(f"  {escape(one['what'])}: {escape(one['why'])}", soft_wrap=True)
    for note in report["notes"]:
        console.print(f"  {escape(note)}", soft_wrap=True)
    console.print("\nA CUDA context, and the kernels that are loaded, take some 300 to 700 MiB more.", soft_wrap=True)


def _print_traffic(console: Any, found: dict[str, Any]) -> None:
    from rich.table import Table

    if "unknown" in found:
        console.print(f"What would cross the bus is not known: {found['unknown']}.", soft_wrap=True)
        return
    seconds = found["modelled_seconds"]
    when = "in the whole run" if found["step"] is None else f"in step {found['step']}"
    speed = found["assumed_bytes_per_second"] / 1e9
    title = f"Over the bus {when}, both ways; time modelled at {speed:.0f} GB/s, nothing hidden behind the work"
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 2))
    for way, words in WAYS.items():
        nbytes = found[f"{way}_bytes"]
        row = ("does not run so", "") if nbytes is None else (format_size(nbytes), f"{seconds[way]:.2g} s")
        table.add_row(words, *row)
    if found["bound_bytes"] is not None:
        table.add_row("no moving policy moves less on average", format_size(found["bound_bytes"]), "")
    console.print(f"\n{title}:", soft_wrap=True)
    console.print(table)
    if found["moved_bytes"] is None:
        needed = format_size(found["largest_operation_bytes"])
        console.print(f"One operation needs {needed} at once.", soft_wrap=True)


def _beyond(device: dict[str, Any]) -> str:
    if device["host_bytes"] is None:
        return "memx cannot run it there with host memory either: one allocation is larger than what is left."
    if device["host_bytes"] == 0:
        return "With memx it runs there without host memory."
    return (
        f"With memx and oversubscription it runs there: up to {format_size(device['host_bytes'])} live on the host, "
        "which the GPU reaches over the bus. Nothing moves unasked."
    )
