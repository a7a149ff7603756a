"""What device memory a program will need, found by running it for a few steps where there is no GPU.

`child` watches in the program's process and writes a `raw` file; here `history` finds out what memory was for, `events`
makes a trace of it, `replays` says what each allocator makes of that, `traffic` what crosses the bus on a smaller
device, `report` puts it together, and `text` and `page` show it.
"""

from __future__ import annotations

from .devices import DEVICES, device_bytes
from .run import estimate

__all__ = ["DEVICES", "device_bytes", "estimate"]
