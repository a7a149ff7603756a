"""``memx replay``."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import InvalidValueError
from ..sizes import format_size
from .options import as_bytes, factor, size
from .output import print_json, progress_bar

if TYPE_CHECKING:
    from ..plan.migration.files import SavedSchedule
    from ..replay import Limits, Result
    from ..trace import Trace

__all__ = ["replay"]

_ALLOCATORS = ("memx", "torch-native", "torch-expandable")
_SAMPLES = 2000


@click.command()
@click.argument("trace", type=click.Path(dir_okay=False))
@click.option(
    "--allocator",
    "allocators",
    type=click.Choice(_ALLOCATORS),
    multiple=True,
    help="Allocator to run the trace with; may be given more than once. [default: memx]",
)
@click.option("--device-limit", callback=size, help="Device memory to use at most. [default: the trace's, or all]")
@click.option("--host-limit", callback=size, help="Host memory to use at most. [default: the trace's, or plenty]")
@click.option("--page", callback=size, help="Bytes of a page, instead of the trace's.")
@click.option("--scale", callback=factor, help="Shrink every size, such as 1/64; rounds up to 512 bytes.")
@click.option(
    "--reuse",
    type=click.Choice(["stream", "default", "mutual"]),
    help="When streams may use what others freed. [default: the trace's, or default]",
)
@click.option("--lazy/--eager", default=None, help="Map memory when work needs it. [default: the trace's]")
@click.option(
    "--eviction",
    type=click.Choice(["cost", "lru", "clock", "planned"]),
    default="cost",
    show_default=True,
    help="What gives way in a lazy replay; planned: as the trace says, furthest next use first.",
)
@click.option("--plan", type=click.Path(dir_okay=False), help="Serve allocations by a plan, or move by a schedule.")
@click.option("--verify/--no-verify", default=True, show_default=True, help="Check contents with real data.")
@click.option("--plot", type=click.Path(dir_okay=False), help="Write a picture of memory over the trace.")
@click.option("--simulate", is_flag=True, help="Use the simulated device even where there is a GPU.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def replay(
    *,
    trace: str,
    allocators: tuple[str, ...],
    device_limit: str | None,
    host_limit: str | None,
    page: str | None,
    scale: Fraction | None,
    reuse: str | None,
    lazy: bool | None,
    eviction: str,
    plan: str | None,
    verify: bool,
    plot: str | None,
    simulate: bool,
    as_json: bool,
) -> int:
    """Run a trace on the device or on a simulated one, with memx or PyTorch's own allocator.

    Several allocators run one after the other, each in a process of its own.

    With --verify every kernel of the trace checks what it reads and writes something new, so that a byte that
    was lost or mixed up on the way is found. Status 1: an expectation was not met.
    """
    from ..replay import prepare_device, replay_apart, resolve_limits
    from ..replay import replay as run
    from ..replay.device import has_real_driver
    from ..trace import Trace

    chosen = allocators or ("memx",)
    if plot:
        from ..report import check_picture

        check_picture(Path(plot))
    schedule = _schedule(plan, chosen, lazy)
    loaded = Trace(trace, as_bytes(page), scale)
    summary = loaded.summary()
    simulated = simulate or not has_real_driver()
    limits = resolve_limits(
        loaded,
        device_limit=schedule.capacity if schedule and device_limit is None else as_bytes(device_limit, loaded.page),
        host_limit=as_bytes(host_limit, loaded.page),
        reuse=reuse,
        lazy=True if schedule else lazy,
        eviction=eviction,
        simulated=simulated,
    )
    sample_every = max(1, summary.events // _SAMPLES) if plot else 0
    results: list[Result] = []
    if chosen == ("memx",):
        prepare_device(limits, simulated, contents=verify)
        with progress_bar(loaded.name, summary.events) as progress:
            results.append(
                run(loaded, limits, verify=verify, progress=progress, sample_every=sample_every, plan=schedule or plan)
            )
    else:
        with progress_bar(loaded.name, len(chosen) * summary.events) as progress:
            for name in chosen:
                results.append(
                    replay_apart(
                        loaded,
                        limits,
                        allocator=name,
                        verify=verify,
                        simulate=simulated,
                        sample_every=sample_every,
                        plan=plan,
                    )
                )
                if progress:
                    progress(len(results) * summary.events)
    if plot:
        from ..report.timeline import write_timeline

        write_timeline(Path(plot), loaded.name, limits, results[0].samples)
    if as_json:
        print_json(
            {
                "trace": loaded.name,
                "events": summary.events,
                "peak_live_bytes": summary.peak_live_bytes,
                "results": [result.as_json() for result in results],
            }
        )
    else:
        for result in results:
            _print(loaded, limits, result, verify, simulated)
    return 0 if all(result.ok for result in results) else 1


def _schedule(plan: str | None, allocators: tuple[str, ...], lazy: bool | None) -> SavedSchedule | None:
    """The schedule that a plan is, if it is one."""
    from ..plan.migration.files import read_schedule
    from ..plan.plans import plan_kind

    if plan is None or plan_kind(plan) != "schedule":
        return None
    if allocators != ("memx",):
        raise InvalidValueError(f"{plan}: only memx moves by a schedule, not {', '.join(allocators)}")
    if lazy is False:
        raise InvalidValueError(f"{plan}: a schedule moves idle buffers, which eager ones do not")
    return read_schedule(plan)


def _print(trace: Trace, limits: Limits, result: Result, verify: bool, simulated: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    summary = trace.summary()
    device = "simulated device" if simulated else "device"
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    rows = [
        ("events", f"{summary.events:,} in {result.wall_s:.2f} s"),
        ("the program held", f"{format_size(summary.peak_live_bytes)} at its peak"),
        (
            f"{device} memory",
            f"{format_size(result.peak_reserved_bytes)} of at most {format_size(limits.device_limit)}",
        ),
        (
            "host memory",
            f"{format_size(result.peak_host_bytes)} of at most {format_size(limits.host_limit)}",
        ),
        (
            "moved",
            f"{format_size(result.migrated_out_bytes)} out, {format_size(result.migrated_in_bytes)} in",
        ),
        ("driver calls", f"{sum(result.driver_calls.values()):,}"),
    ]
    if result.modelled_driver_us is not None:
        rows.append(("driver time", f"{result.modelled_driver_us / 1000:.1f} ms (modelled)"))
    if result.races is not None:
        rows.append(("races", str(result.races)))
    rows.append(("wrong bytes", str(result.mismatches) if verify else "not checked"))
    for row in rows:
        table.add_row(*row)
    console = Console(highlight=False)
    console.print(f"[bold]{trace.name}[/bold] with {result.allocator}: {'done' if result.ok else '[red]failed[/red]'}")
    console.print(table)
    for failure in result.failures:
        console.print(f"  {failure}", markup=False)
    hidden = result.failed_expectations - len(result.failures)
    if hidden > 0:
        console.print(f"  and {hidden} more")
