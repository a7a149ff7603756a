"""``python -m memx.torch script.py args``: runs a script with memx as PyTorch's allocator."""

from __future__ import annotations

import runpy
import sys

from ..errors import MemxError
from .allocator import enable

_USAGE = """usage: python -m memx.torch [-m] SCRIPT [ARGUMENTS]
Settings: MEMX_CONF=device_limit:20GiB,reuse:mutual"""


def main() -> int:
    """Settings come from ``MEMX_CONF``; ``-m module`` runs a module."""
    arguments = sys.argv[1:]
    module = arguments[:1] == ["-m"]
    target = arguments[1:] if module else arguments
    if not target or target[0] in ("-h", "--help"):
        print(_USAGE, file=sys.stderr)
        return 0 if target else 2
    try:
        enable()
    except MemxError as error:
        print(f"memx: {error}", file=sys.stderr)
        return 2
    sys.argv = target
    if module:
        runpy.run_module(target[0], run_name="__main__", alter_sys=True)
    else:
        import os

        sys.path[0] = os.path.dirname(os.path.abspath(target[0]))
        runpy.run_path(target[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
