"""Found by Python at its start, before a program that memx records; the program's own ``sitecustomize`` runs too."""

import importlib.machinery
import importlib.util
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))


def _run_the_next() -> None:
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _watch() -> None:
    root = os.environ.get("MEMX_RECORD_ROOT", "")
    try:
        try:
            import memx.record.hook
        except ModuleNotFoundError:
            if not root:
                raise
            sys.path.append(root)
            import memx.record.hook
        memx.record.hook.install()
    except Exception as error:
        sys.stderr.write(f"memx: this program is not recorded: {error}\n")


try:
    _run_the_next()
finally:
    _watch()
