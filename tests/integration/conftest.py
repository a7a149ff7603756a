from __future__ import annotations

import pytest
from allocator.conftest import kernels, resource
from allocator.device import Kernels

__all__ = ["kernels", "resource"]


@pytest.fixture
def streams(kernels: Kernels) -> list[int]:
    """Two non-blocking streams, destroyed afterwards."""
    made = [kernels.stream(), kernels.stream()]
    yield made
    for stream in made:
        kernels.destroy(stream)
