"""Runs what is to be done in a recorded process as soon as it has imported PyTorch.

This module is imported at the start of every Python process of a recorded program: it imports nothing that is slow.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["install"]

#: The module of memx whose ``begin(torch)`` is called, by what ``MEMX_CHILD`` says.
_TASKS = {"record": "memx.record.child", "estimate": "memx.estimate.child"}


def install() -> None:
    """Watch for PyTorch, if this process is to be recorded."""
    task = _TASKS.get(os.environ.get("MEMX_CHILD", ""))
    if task:
        sys.meta_path.insert(0, _Watcher("torch", task))


class _Watcher(MetaPathFinder):
    def __init__(self, name: str, task: str) -> None:
        self._name = name
        self._task = task

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's own spec, whose loader begins the task when it is done."""
        if fullname != self._name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec: ModuleSpec | None = None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(fullname, path, target) if find else None
            if spec is not None:
                break
        if spec is None or spec.loader is None:
            sys.meta_path.insert(0, self)  # it may be found later, on another path
            return spec
        loader: Any = spec.loader
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            _begin(self._task, module)

        loader.exec_module = exec_module
        return spec


def _begin(task: str, torch: ModuleType) -> None:
    try:
        importlib.import_module(task).begin(torch)
    except Exception as error:
        sys.stderr.write(f"memx: this program is not recorded: {error}\n")
