"""memx as the memory that PyTorch's own allocator takes its segments from, inside a MemPool."""

from __future__ import annotations

import pytest

from .child import run

pytestmark = pytest.mark.torch_cuda

MIB = 1 << 20


def test_tensors_of_the_block_live_on_memx() -> None:
    inside, outside, allocated, held, after = run(
        """
with memx.torch.pool(device_limit="128MiB", host_limit=0) as pool:
    a = tensor(40)
    small = tensor(0.25)
b = tensor(40)
inside, outside = native().covers(a.data_ptr()), native().covers(b.data_ptr())
allocated = torch.cuda.memory_allocated()
held = native().statistics()["allocated_bytes.current"]
del a, small, pool
gc.collect()
torch.cuda.empty_cache()
intact()
print(json.dumps([inside, outside, allocated, held, native().statistics()["allocated_bytes.current"]]))
"""
    )
    assert inside
    assert not outside
    assert allocated == 80 * MIB + MIB // 4
    assert held == 42 * MIB  # a segment of 40 MiB, and one of 2 MiB for the small tensor
    assert after == 0


def test_out_of_memory_is_pytorchs_and_survived() -> None:
    kind, fits = run(
        """
with memx.torch.pool(device_limit="64MiB", host_limit=0) as pool:
    a = tensor(40)
    try:
        tensor(40)
    except torch.OutOfMemoryError as error:
        kind = type(error).__name__
    b = tensor(20)
intact()
print(json.dumps([kind, b.numel()]))
""",
        quiet=False,  # PyTorch warns of a refused segment
    )
    assert kind == "OutOfMemoryError"
    assert fits == 20 * MIB


def test_the_pool_oversubscribes() -> None:
    place, same = run(
        """
data = torch.arange(48 * MIB, dtype=torch.int64).to(torch.uint8)
with memx.torch.pool(device_limit="64MiB", host_limit="64MiB"):
    a = tensor(48)
    b = data.cuda()
place = [p for address, *_, state, p, _, _ in native().blocks() if state == "allocated" and address == b.data_ptr()]
intact()
print(json.dumps([place, torch.equal(b.cpu(), data)]))
"""
    )
    assert place == ["host"]
    assert same


def test_settings_are_those_of_the_first_use() -> None:
    message = run(
        """
with memx.torch.pool(device_limit="64MiB"):
    pass
try:
    with memx.torch.pool(device_limit="32MiB"):
        pass
except memx.InvalidStateError as error:
    print(json.dumps(str(error)))
"""
    )
    assert "settings already" in message
