"""How long an allocation and a free take: memx, PyTorch's own allocator and host allocators, side by side in one run.

    python benchmarks/pool.py [--torch-python PYTHON] [--mimalloc LIBRARY] [--output docs/pool.md]

Random mixes from `benchmarks/pool/mix.h`: a fixed number of live buffers, of which one at random is freed and replaced
again and again; sizes from 1 byte up, every power of two as likely as any other. memx runs below its C++
entry points as a framework's resource, PyTorch's allocator below its own, both on the simulated device; mimalloc and
the C library's malloc on host memory are the limit. Needs a C++ compiler, the CUDA headers, and for the other columns a
Python with PyTorch's CUDA build and mimalloc (Debian: libmimalloc2.0); a column that cannot be had says why.

The costs are processor time, so that other programs on the machine disturb them least, the best of several runs;
where threads wait for one another the time that passed is the second number.
"""

from __future__ import annotations

import argparse
import ctypes.util
import datetime
import itertools
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HERE = ROOT / "benchmarks" / "pool"
DRIVER = ROOT / "memx" / "_sim" / "libcuda.so.1"
COMPILE = (os.environ.get("CXX", "g++"), "-O3", "-DNDEBUG", "-std=c++20", "-pthread")
SIZES = {"1 B to 512 KiB": 512 << 10, "1 B to 64 MiB": 64 << 20}
LIVE = (1_000, 100_000)
TIMES_FASTER = 8
LIMIT_S = 300

TORCH = """
import ctypes, json, sys, torch
torch.empty(1, device="cuda")
library = ctypes.CDLL(sys.argv[1])
wall, cpu = ctypes.c_double(), ctypes.c_double()
kinds = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint, ctypes.c_uint, ctypes.c_uint64)
library.time_mix(*(kind(int(a)) for kind, a in zip(kinds, sys.argv[2:])), ctypes.byref(wall), ctypes.byref(cpu))
print(json.dumps({"wall_ns": wall.value, "cpu_ns": cpu.value}))
"""


class UnavailableError(Exception):
    """Why a column cannot be had."""


@dataclass(frozen=True)
class Mix:
    """One cell of the table."""

    sizes: str
    live: int
    threads: int
    streams: int

    def arguments(self, operations: int) -> list[str]:
        return [str(n) for n in (SIZES[self.sizes], self.live, self.threads, self.streams, operations)]


class Column:
    """An allocator; ``command`` times one mix and prints the result."""

    def __init__(self, name: str, command: list[str], operations: int, environment: dict[str, str]) -> None:
        self.name = name
        self._command = command
        self._operations = operations
        self._environment = environment
        self._known: dict[object, dict[str, float] | str] = {}
        self.knows_streams = "host" not in Path(command[0]).name

    def measure(self, mix: Mix, repeats: int) -> dict[str, float] | str:
        """The best of some runs, or why there is none."""
        key = mix if self.knows_streams else (mix.sizes, mix.live, mix.threads)
        if key not in self._known:
            results = [self._run(mix) for _ in range(repeats)]
            good = [r for r in results if not isinstance(r, str)]
            self._known[key] = min(good, key=lambda r: r["cpu_ns"]) if good else results[0]
        return self._known[key]

    def _run(self, mix: Mix) -> dict[str, float] | str:
        try:
            done = subprocess.run(
                [*self._command, *mix.arguments(self._operations)],
                env=os.environ | self._environment,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=True,
            )
            return dict(json.loads(done.stdout.splitlines()[-1]))
        except subprocess.TimeoutExpired:
            return f"over {LIMIT_S} s"
        except subprocess.CalledProcessError as error:
            return f"failed ({error.returncode})"


def build(*arguments: str | Path) -> None:
    done = subprocess.run([*COMPILE, *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError("does not compile: " + done.stderr.strip().splitlines()[0])


def cuda_headers(python: str = sys.executable, name: str = "cuda.h") -> Path:
    """A folder of CUDA headers: the packages' of a Python, or a toolkit's."""
    paths = subprocess.run(
        [python, "-c", "import sys; print(*sys.path, sep='\\n')"], capture_output=True, text=True, check=True
    )
    folders = [Path(line) for line in paths.stdout.splitlines() if line]
    candidates = [
        found.parents[name.count("/")] for folder in folders for found in folder.glob(f"nvidia/*/include/{name}")
    ]
    candidates += [folder / "triton/backends/nvidia/include" for folder in folders]
    candidates += [Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"]
    for candidate in candidates:
        if (candidate / name).exists():
            return candidate
    raise UnavailableError(f"no CUDA header {name}")


def memx_column(work: Path, operations: int) -> Column:
    program = work / "memx"
    native = ROOT / "native"
    includes = [f"-I{path}" for path in (native / "include", native / "sim" / "include", cuda_headers())]
    build(*includes, HERE / "memx.cpp", *sorted(native.glob("src/*/*.cpp")), "-ldl", "-o", program)
    return Column("memx", [str(program), str(DRIVER)], operations, {})


def torch_column(work: Path, operations: int, python: str) -> Column:
    asked = subprocess.run(
        [python, "-c", "import torch; print(torch.version.cuda, torch.__path__[0])"],
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.returncode or asked.stdout.startswith("None"):
        raise UnavailableError(f"{Path(python).name} has no CUDA build of PyTorch")
    folder = Path(asked.stdout.split(maxsplit=1)[1].strip())
    library = work / "libtorch_mix.so"
    headers = cuda_headers(python, "crt/host_config.h")
    build(
        "-shared", "-fPIC", f"-I{folder / 'include'}", f"-I{headers}", f"-L{folder / 'lib'}", HERE / "torch.cpp",
        "-lc10_cuda", "-lc10", "-o", library,
    )  # fmt: skip
    run = [python, "-m", "memx", "sim", "run", "--quiet", "--memory", "1TiB", "--", python, "-c", TORCH, str(library)]
    return Column("PyTorch", run, operations, {"PYTHONPATH": str(ROOT)})


def host_columns(work: Path, operations: int, mimalloc: str | None) -> Iterator[Column | tuple[str, str]]:
    program = work / "host"
    build(HERE / "host.cpp", "-o", program)
    found = mimalloc or ctypes.util.find_library("mimalloc")
    if found:
        yield Column("mimalloc", [str(program)], operations, {"LD_PRELOAD": found})
    else:
        yield "mimalloc", "not installed"
    yield Column("malloc", [str(program)], operations, {})


def text(result: dict[str, float] | str, threads: int) -> str:
    if isinstance(result, str):
        return result
    return f"{result['cpu_ns']:.0f}" + (f" / {result['wall_ns']:.0f}" if threads > 1 else "")


def ratio(over: dict[str, float] | str, under: dict[str, float] | str, threads: int) -> str:
    which = "wall_ns" if threads > 1 else "cpu_ns"
    return "" if isinstance(over, str) or isinstance(under, str) else f"{over[which] / under[which]:.1f}"


PAGE = """# How long an allocation takes

Written by `benchmarks/pool.py` on {date} ({processor}, {cores} cores; no measurement of a GPU, and neither
memx nor PyTorch's allocator asks the driver anything in most of these calls). Nanoseconds of processor time for one
operation, an allocation or a free, of a random mix, the best of {repeats} runs; with several threads also the time that
passed, per operation of a thread, waiting included. *Probes* are free blocks looked at for an allocation.
{missing}
{table}

## Against what was aimed at

{aims}
"""


def aims(results: dict[Mix, dict[str, dict[str, float] | str]]) -> str:
    """Which of the aims this run meets, in words."""

    def time(mix: Mix, name: str) -> float:
        result = results[mix].get(name, "")
        return math.nan if isinstance(result, str) else result["wall_ns" if mix.threads > 1 else "cpu_ns"]

    first = next(iter(results))
    lines = [f"- At most 80 ns in the first cell: {time(first, 'memx'):.0f}."]
    faster = {mix: time(mix, "PyTorch") / time(mix, "memx") for mix in results}
    known = [ratio for ratio in faster.values() if not math.isnan(ratio)]
    if known:
        met = sum(ratio >= TIMES_FASTER for ratio in known)
        lines.append(
            f"- At least {TIMES_FASTER} times faster than PyTorch's allocator in every cell: in {met} of {len(known)}; "
            f"from {min(known):.1f} to {max(known):.1f} times, in the middle {statistics.median(known):.1f}."
        )
    lines.append(
        "- With the number of live blocks the time grows at most 1.5 times as fast as mimalloc's (one thread):"
    )
    for sizes in SIZES:
        few, many = (Mix(sizes, live, 1, 1) for live in LIVE)
        growth = {name: time(many, name) / time(few, name) for name in ("memx", "PyTorch", "mimalloc")}
        words = ", ".join(f"{name}'s {times:.1f}-fold" for name, times in growth.items() if not math.isnan(times))
        lines.append(f"  {sizes}: {words}; {growth['memx'] / growth['mimalloc']:.1f} times as fast.")
    return "\n".join(lines)


def main() -> int:
    """Measure all cells."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-python", default=sys.executable, help="interpreter that has PyTorch")
    parser.add_argument("--mimalloc", help="its shared library; default: the system's")
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path, help="write the page there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        columns: dict[str, Column] = {}
        missing: dict[str, str] = {}
        for name, make in {
            "memx": lambda: [memx_column(work, arguments.operations)],
            "PyTorch": lambda: [torch_column(work, arguments.operations // 2, arguments.torch_python)],
            "host": lambda: host_columns(work, arguments.operations, arguments.mimalloc),
        }.items():
            try:
                for made in make():
                    if isinstance(made, Column):
                        columns[made.name] = made
                    else:
                        missing[made[0]] = made[1]
            except UnavailableError as error:
                missing[name] = str(error)
        names = list(columns)
        header = ["sizes", "live", "threads", "streams", *names, "PyTorch / memx", "memx / mimalloc", "probes"]
        rows = [header, ["---"] * len(header)]
        measured: dict[Mix, dict[str, dict[str, float] | str]] = {}
        for cell in itertools.product(SIZES, LIVE, (1, 4), (1, 8)):
            mix = Mix(*cell)
            results = {name: column.measure(mix, arguments.repeats) for name, column in columns.items()}
            measured[mix] = results
            memx = results.get("memx", "")
            rows.append(
                [
                    mix.sizes, f"{mix.live:,}", str(mix.threads), str(mix.streams),
                    *(text(results[name], mix.threads) for name in names),
                    ratio(results.get("PyTorch", ""), memx, mix.threads),
                    ratio(memx, results.get("mimalloc", ""), mix.threads),
                    "" if isinstance(memx, str) else f"{memx['probes']:.2f}",
                ]
            )  # fmt: skip
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    page = PAGE.format(
        date=datetime.datetime.now(datetime.UTC).date(),
        processor=processor(),
        cores=os.cpu_count(),
        repeats=arguments.repeats,
        missing="".join(f"\nNot measured: {name}, {why}.\n" for name, why in missing.items()),
        table=table,
        aims=aims(measured),
    )
    if arguments.output:
        arguments.output.write_text(page)
    print(page)
    return 0


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    sys.exit(main())
