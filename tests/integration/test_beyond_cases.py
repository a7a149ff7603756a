"""What the cases ask for that an event list cannot say: exits, the collector, threads and the limit, forks."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
from allocator.conftest import PAGE
from allocator.device import Kernels

import memx
from memx import _native

Make = Callable[..., _native.Resource]
PACKAGE = Path(memx.__file__).parent
SIMULATE = (
    "import gc, os, threading\n"
    "import memx\n"
    f"memx.simulate(memory='16MiB', host_memory='16MiB', page={PAGE})\n"
    "mr = memx.MemoryResource(0, device_limit='4MiB', host_limit='4MiB')\n"
)
AT_ONCE = 4
EXITS = 10


def exits(code: str, times: int = 1) -> None:
    """Child processes that run code and must end with status 0 and say nothing."""
    for start in range(0, times, AT_ONCE):
        children = [
            subprocess.Popen(
                [sys.executable, "-c", SIMULATE + code],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=PACKAGE / "data",  # not the sources, which may lie in the working directory
                env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
            )
            for _ in range(min(AT_ONCE, times - start))
        ]
        for child in children:
            out, err = child.communicate(timeout=100)
            assert (child.returncode, out, err) == (0, "", "")


CYCLE = """
cached = mr.allocate(70000); cached.close()
live = mr.allocate(70000)
class Node: pass
allocator, pool = Node(), Node()
allocator.other, pool.other = pool, allocator
"""


@pytest.mark.parametrize(
    "order",
    [
        "allocator.mr, pool.live = mr, live\ndel mr, live, allocator, pool",
        "pool.live, allocator.mr = live, mr\ndel live, mr, pool, allocator",
    ],
    ids=["resource first", "buffer first"],
)
def test_exits_with_live_and_cached_memory_are_silent(order: str) -> None:
    exits(CYCLE + order, EXITS)


@pytest.mark.parametrize(
    "code",
    [
        "kept = [mr.allocate(70000) for _ in range(3)]; mr.pin(kept[0])",
        "tag = mr.tag('t'); tag.__enter__(); kept = mr.allocate(70000); mr.pause('t')",
        "mr.allocate(70000); mr.native.close(); mr.native.close()",
        "kept = mr.allocate(70000); mr.native.close()",
        # A buffer's close() runs inside cuda.core, which a thread that is ended there takes down with it.
        "n = mr.native\n"
        "def run():\n"
        "    while True: n.free(n.allocate(70000))\n"
        "[threading.Thread(target=run, daemon=True).start() for _ in range(3)]",
    ],
    ids=["pinned", "paused", "closed twice", "closed before its buffer", "threads that go on"],
)
def test_exits_in_other_states_are_silent(code: str) -> None:
    exits(code)


def test_finalisers_may_allocate_and_free_inside_an_allocation(kernels: Kernels) -> None:
    mr = memx.MemoryResource(0, device_limit="16MiB", host_limit=0, page=PAGE)
    rng = random.Random(5)
    spare: list[memx.Buffer] = []

    class Owner:
        """Frees its buffer, and another, from a weak reference's callback: wherever the collector runs."""

        def __init__(self) -> None:
            self.buffer = mr.allocate(rng.randint(1, 64) * 512)
            self.cycle = self
            weakref.finalize(self, finish)

    def finish() -> None:
        if spare and rng.random() < 0.5:
            spare.pop().close()
        else:
            spare.append(mr.allocate(512))

    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(2000):
            Owner()
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    spare.clear()
    gc.collect()
    mr.native.check()
    assert mr.statistics()["allocated_bytes.current"] == 0
    mr.native.close()


def test_a_hook_on_every_call_may_free_and_allocate(kernels: Kernels) -> None:
    """A profiler's hook runs at the entry and exit of the allocation itself."""
    mr = memx.MemoryResource(0, device_limit="16MiB", host_limit=0, page=PAGE)
    held: list[memx.Buffer] = []
    calls = 0

    def hook(frame: FrameType, _event: str, _argument: object) -> None:
        nonlocal calls
        if frame.f_code.co_name in ("allocate", "deallocate"):
            calls += 1
            if held:
                held.pop().close()
            else:
                held.append(mr.allocate(1000))

    for _ in range(200):
        held.append(mr.allocate(2000))
        sys.setprofile(hook)
        try:
            mr.allocate(3000).close()
        finally:
            sys.setprofile(None)
    assert calls >= 200
    held.clear()
    mr.native.check()
    assert mr.statistics()["allocated_bytes.current"] == 0
    mr.native.close()


@pytest.mark.parametrize("lazy", [False, True], ids=["eager", "lazy"])
@pytest.mark.parametrize("reuse", ["stream", "default", "mutual"])
def test_threads_with_failures_keep_the_limit_in_every_mode(
    resource: Make, kernels: Kernels, reuse: str, lazy: bool
) -> None:
    limit = 8 * PAGE
    r = resource(device=8, host=0, reuse=reuse, lazy=lazy)
    failing = ("cuMemCreate", "cuMemMap", "cuMemSetAccess")
    for call in failing:
        memx.sim.fail(call, every=7, code="OUT_OF_MEMORY")
    streams = [kernels.stream(flags) for flags in (0, 1) * 4]
    together = threading.Barrier(8)
    surprises: list[BaseException] = []
    failures = 0

    def work(seed: int) -> None:
        nonlocal failures
        rng = random.Random(seed)
        stream = streams[seed]
        held: list[int] = []
        try:
            for step in range(1000):
                if step % 100 == 0:
                    together.wait()
                try:
                    held.append(r.allocate(2 * PAGE, stream))
                    r.end_use(r.begin_use([(held[-1], 0, 2 * PAGE, 2)], stream))
                except memx.OutOfMemoryError as error:
                    failures += 1
                    if not str(error):
                        raise
                while held and (len(held) > 1 or rng.random() < 0.7):
                    r.free(held.pop(rng.randrange(len(held))))
        except BaseException as error:
            surprises.append(error)
            together.abort()
        for address in held:
            r.free(address)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for call in failing:
        memx.sim.fail(call)
    assert surprises == []
    assert failures
    kernels.synchronize()
    r.trim()
    kernels.synchronize()
    r.trim()
    s = r.statistics()
    assert s["reserved_bytes.peak"] <= limit
    counters = ("requested_bytes", "allocated_bytes", "active_bytes", "inactive_bytes", "reserved_bytes")
    assert {name: s[f"{name}.current"] for name in counters} == dict.fromkeys(counters, 0)
    r.check()
    for stream in streams:
        kernels.destroy(stream)


def test_a_forked_child_drops_what_it_inherited_without_a_driver_call() -> None:
    exits(
        "buffer, other = mr.allocate(70000), mr.allocate(70000)\n"
        "other.close()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    before = memx.sim.calls()\n"
        "    del buffer, other\n"
        "    gc.collect()\n"
        "    del mr\n"
        "    gc.collect()\n"
        "    os._exit(0 if memx.sim.calls() == before else 1)\n"
        "assert os.waitpid(pid, 0)[1] == 0\n"
        "assert mr.statistics()['allocated_bytes.current'] == 70144\n"
        "buffer.close()\n"
        "mr.native.check()\n"
        "mr.allocate(70000).close()\n"
    )


def test_a_forked_child_is_told_at_once_whatever_it_asks() -> None:
    exits(
        "buffer = mr.allocate(70000)\n"
        "asks = [lambda: mr.allocate(10), lambda: mr.resident(buffer).__enter__(), mr.trim, mr.rebalance,\n"
        "        lambda: mr.evict(buffer), lambda: mr.prefetch(buffer), lambda: mr.pause('t'), mr.statistics,\n"
        "        lambda: mr.record_stream(buffer, 0), lambda: mr.note_wait(0, 0), mr.reset_peak_statistics,\n"
        "        mr.native.check, mr.native.drain_events, lambda: mr.native.record_events(True)]\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    told = 0\n"
        "    for ask in asks:\n"
        "        try:\n"
        "            ask()\n"
        "        except memx.InvalidStateError as error:\n"
        "            told += 'initialised before fork' in str(error)\n"
        "    os._exit(0 if told == len(asks) else 1)\n"
        "assert os.waitpid(pid, 0)[1] == 0\n"
    )


def test_a_fork_while_another_thread_allocates_does_not_deadlock_the_child() -> None:
    exits(
        "go = True\n"
        "def run():\n"
        "    while go: mr.allocate(70000).close()\n"
        "thread = threading.Thread(target=run); thread.start()\n"
        "kept = mr.allocate(70000)\n"
        "for _ in range(10):\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        del kept\n"
        "        gc.collect()\n"
        "        os._exit(0)\n"
        "    assert os.waitpid(pid, 0)[1] == 0\n"
        "go = False; thread.join()\n"
    )
