"""Recording what a program does with device memory, from outside the program.

A process that is started with :func:`launch.environment` finds ``site/sitecustomize.py``, which waits for PyTorch to be
imported. Then `child` puts memx below PyTorch and sends the allocator's events, a few times a second, through a socket
to the process that started it, where `server` makes traces of them. Nothing of the program's own is replaced.
"""

from __future__ import annotations

from .launch import environment, launch
from .server import Recording, Server

__all__ = ["Recording", "Server", "environment", "launch"]
