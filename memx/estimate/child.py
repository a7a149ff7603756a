"""In the estimated process: PyTorch's own record of its allocations, and marks that say what the program was doing."""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from ..record.calls import before
from ..record.storages import cuda_storage
from .raw import Raw

__all__ = ["EnoughSteps", "begin"]

_MOST_ENTRIES = 4_000_000


class EnoughSteps(SystemExit):
    """Ends the program, as ``sys.exit(0)`` would, when what was to be seen has been seen."""


def begin(torch: ModuleType) -> None:
    """Watch this process from here on; PyTorch has just been imported."""
    watch = _Watch(torch, Path(os.environ["MEMX_ESTIMATE_FOLDER"]), int(os.environ["MEMX_ESTIMATE_STEPS"]))
    watch.start()


class _Watch:
    def __init__(self, torch: Any, folder: Path, steps: int) -> None:
        self._torch = torch
        self._path = folder / f"{os.getpid()}.json"
        self._wanted = steps
        self._process = os.getpid()
        self._optimizer: Any = None
        self._in_step = False
        self._depth = 0
        self._done = False
        self._raw = Raw(program=" ".join(sys.argv))
        self._numbering: Any = None

    def start(self) -> None:
        torch = self._torch
        torch.cuda._lazy_call(self._record)
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)
        for name in ("backward", "grad"):
            self._wrap_backward(torch.autograd, name)
        self._one_rank(torch)
        if os.environ.get("MEMX_ESTIMATE_OPERATIONS") == "1":
            self._number_operations()
        atexit.register(self.finish)
        seconds = float(os.environ.get("MEMX_ESTIMATE_SECONDS", "0"))
        if seconds and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGALRM, self._out_of_time)
            signal.setitimer(signal.ITIMER_REAL, seconds)
        shown = sys.excepthook

        def noting(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            self._raw.error = f"{kind.__name__}: {error}"
            shown(kind, error, trace)

        sys.excepthook = noting

    def _record(self) -> None:
        self._torch.cuda.memory._record_memory_history(
            enabled="all", context="alloc", stacks="python", max_entries=_MOST_ENTRIES
        )

    def _out_of_time(self, _number: int, _frame: object) -> None:
        if not self._torch.cuda.is_initialized() or self._done:
            return
        self._raw.notes.append("The program was ended: its time was over, and it would have gone on")
        self.finish()
        raise EnoughSteps(0)

    def _number_operations(self) -> None:
        from .naming import Numbering

        self._numbering = Numbering(self._torch)
        self._numbering.__enter__()
        graph = self._torch.cuda.CUDAGraph
        compiled = "what torch.compile makes of the program would not be the same while its operations are watched"
        replayed = "the program launches CUDA graphs, and what is in them is not seen"
        for owner, name, why in ((self._torch, "compile", compiled), (graph, "replay", replayed)):
            before(owner, name, functools.partial(self._give_up, why))

    def _give_up(self, why: str) -> None:
        """See no more operations."""
        self._raw.unseen = self._raw.unseen or why
        self._numbering.leave()

    def mark(self, kind: str, **what: Any) -> None:
        """Say what happens at this point, which is known by how many allocations and frees there were."""
        if not self._torch.cuda.is_initialized() or self._done or os.getpid() != self._process:
            return
        count = self._torch._C._cuda_memoryStats(0)["allocation"]["all"]
        self._raw.marks.append((count["allocated"], count["freed"], kind, what))

    def _naming(self) -> Any:
        """While a backward pass runs, tell PyTorch's record which operation allocates: there are no frames to tell."""
        dynamo = sys.modules.get("torch._dynamo.utils")
        if dynamo is not None and dynamo.counters["frames"]:  # what is compiled is not to meet such a mode
            return nullcontext()
        if self._numbering is not None and not self._raw.unseen:  # which tells it already
            return nullcontext()
        from .naming import Naming

        return Naming(self._torch)

    def _wrap_backward(self, owner: Any, name: str) -> None:
        whole = getattr(owner, name)

        def watched(*arguments: Any, **named: Any) -> Any:
            if threading.current_thread() is not threading.main_thread() or self._depth:
                return whole(*arguments, **named)
            self._depth += 1
            self.mark("backward_begins")
            try:
                with self._naming():
                    return whole(*arguments, **named)
            finally:
                self._depth -= 1
                if self._numbering is not None:
                    self._numbering.settle()
                self.mark("backward_ends")

        watched.__doc__, watched.__name__ = whole.__doc__, name
        setattr(owner, name, watched)

    def _one_rank(self, torch: Any) -> None:
        if not torch.distributed.is_available():
            return
        whole = torch.distributed.init_process_group

        def alone(backend: Any = None, *arguments: Any, **named: Any) -> Any:
            ranks = int(named.get("world_size", -1))
            ranks = ranks if ranks > 0 else int(os.environ.get("WORLD_SIZE", "1"))
            if ranks > 1:
                raise RuntimeError(f"memx estimate looks at one process: start the program with one rank, not {ranks}")
            if backend is None or "nccl" in str(backend):
                self._raw.notes.append("NCCL was replaced by gloo: the buffers that NCCL has on the device are missing")
                backend = "gloo"
                named.pop("device_id", None)
            return whole(backend, *arguments, **named)

        torch.distributed.init_process_group = alone

    def _before_step(self, optimizer: Any, _arguments: Any, _named: Any) -> None:
        self._in_step = True
        if not self._raw.names:
            self._raw.names = _names_of_parameters(self._torch)
        self.mark("step_begins", **self._owners(optimizer))

    def _after_step(self, optimizer: Any, _arguments: Any, _named: Any) -> None:
        self._in_step = False
        if self._optimizer is None:
            self._optimizer = optimizer
        self.mark("step_ends", main=optimizer is self._optimizer, **self._owners(optimizer))
        if optimizer is not self._optimizer:
            return
        self._raw.steps += 1
        if self._numbering is not None:
            self._raw.step_operations.append(self._numbering.count)
        if self._raw.steps >= self._wanted:
            self.finish()
            if threading.current_thread() is threading.main_thread():
                raise EnoughSteps(0)
            os._exit(0)

    def _owners(self, optimizer: Any) -> dict[str, list[int]]:
        """Addresses of what an optimizer has to do with; gradients stand where their parameters do, 0 for none."""
        out: dict[str, list[int]] = {"parameters": [], "gradients": [], "state": []}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                for address in _address(self._torch, parameter):
                    out["parameters"].append(address)
                    out["gradients"] += _address(self._torch, parameter.grad) or [0]
        for state in optimizer.state.values():
            for value in state.values() if isinstance(state, dict) else ():
                out["state"] += _address(self._torch, value)
        return out

    def finish(self) -> None:
        """Write down what was seen."""
        torch = self._torch
        if self._done or os.getpid() != self._process or not torch.cuda.is_initialized():
            return
        torch.cuda.synchronize()
        self._raw.names = self._raw.names or _names_of_parameters(torch)
        stats = torch.cuda.memory_stats(0)
        for name in ("requested", "allocated", "reserved"):
            self._raw.peaks[name] = stats[f"{name}_bytes.all.peak"]
        self.mark("clearing")
        torch._C._cuda_clearCublasWorkspaces()
        self.mark("cleared")
        self._done = True
        if self._numbering is not None:
            self._raw.operations = sorted(self._numbering.done, key=lambda one: one[0])
            self._numbering.leave()
        self._raw.take(torch.cuda.memory._snapshot()["device_traces"][0], Path(torch.__file__).parent)
        self._raw.kernels = _kernels()
        partial = self._path.with_suffix(".part")
        partial.write_text(json.dumps(self._raw.as_json()))
        partial.rename(self._path)


def _address(torch: Any, value: Any) -> list[int]:
    found = cuda_storage(value) if isinstance(value, torch.Tensor) else None
    return [] if found is None else [found[0]]


def _names_of_parameters(torch: Any) -> dict[int, str]:
    """By address; what a larger module calls them goes before what its parts do."""
    import gc
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        modules = [found for found in gc.get_objects() if issubclass(type(found), torch.nn.Module)]
    inner = {id(child) for module in modules for child in module._modules.values()}
    names: dict[int, str] = {}
    for module in modules:
        if id(module) in inner:
            continue
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            for address in _address(torch, tensor):
                names.setdefault(address, name)
    return names


def _kernels() -> dict[str, int]:
    from .. import sim

    if not sim.active():
        return {}
    return {name[7:]: count for name, count in sim.calls().items() if name.startswith("kernel:")}
