"""Random sequences of maps, unmaps and grants against a model of what cuda.h says of them."""

from __future__ import annotations

import pytest

from .api import DEVICE, NO_ACCESS, READ, READ_WRITE, Range, access, call, code, location, properties, refusals

pytest.importorskip("hypothesis")
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

PAGES = 8
FLAGS = {NO_ACCESS: 0, READ: 1, READ_WRITE: 3}


class Pages:
    """The model: for each page the (first page, size, handle) that maps it, and its flags."""

    def __init__(self) -> None:
        self.mapping: list[tuple[int, int, int] | None] = [None] * PAGES
        self.flags = [0] * PAGES

    def whole(self, first: int, count: int) -> bool:
        """Whether a range is mapped, by mappings that lie in it wholly."""
        end = first + count
        return (
            count > 0
            and end <= PAGES
            and all(m and first <= m[0] and m[0] + m[1] <= end for m in self.mapping[first:end])
        )

    def free(self, first: int, count: int) -> bool:
        """Whether a range lies in the reservation and is not mapped."""
        end = first + count
        return count > 0 and end <= PAGES and not any(self.mapping[first:end])


def machine(page: int) -> type[RuleBasedStateMachine]:
    """The machine for a page size."""
    at, count = st.integers(0, PAGES), st.integers(0, 5)

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.range = Range(page, room=PAGES)
            self.model = Pages()
            self.sizes: list[int] = []

        def teardown(self) -> None:
            self.range.__exit__(None, None, None)

        def address(self, first: int) -> int:
            return self.range.va + first * page

        def expect(self, fine: bool, function: str, *arguments: object) -> bool:
            assert code(function, *arguments) == ("SUCCESS" if fine else "INVALID_VALUE")
            return fine

        @precondition(lambda self: len(self.sizes) < 6)
        @rule(pages=st.sampled_from([1, 2, 4]))
        def create(self, pages: int) -> None:
            self.range.handles.append(call("cuMemCreate", pages * page, properties(DEVICE), 0))
            self.sizes.append(pages)

        @precondition(lambda self: self.sizes)
        @rule(first=at, pages=st.sampled_from([1, 2, 4]), which=st.integers(0, 5))
        def map(self, first: int, pages: int, which: int) -> None:
            which %= len(self.sizes)
            fine = pages == self.sizes[which] and self.model.free(first, pages)
            if pages < self.sizes[which]:
                return  # a mapping of part of a handle has a test of its own
            handle = self.range.handles[which]
            if self.expect(fine, "cuMemMap", self.address(first), pages * page, 0, handle, 0):
                self.model.mapping[first : first + pages] = [(first, pages, which)] * pages
                self.model.flags[first : first + pages] = [0] * pages

        @rule(first=at, pages=count)
        def unmap(self, first: int, pages: int) -> None:
            fine = self.model.whole(first, pages)
            if self.expect(fine, "cuMemUnmap", self.address(first), pages * page):
                self.model.mapping[first : first + pages] = [None] * pages

        @rule(first=at, pages=count, flags=st.sampled_from(list(FLAGS)))
        def grant(self, first: int, pages: int, flags: object) -> None:
            descs = [access(flags=flags)]
            fine = self.model.whole(first, pages)
            if self.expect(fine, "cuMemSetAccess", self.address(first), pages * page, descs, 1):
                self.model.flags[first : first + pages] = [FLAGS[flags]] * pages

        @rule(first=st.integers(0, PAGES - 1))
        def look(self, first: int) -> None:
            va = self.address(first) + page // 2
            mapping = self.model.mapping[first]
            if mapping is None:
                assert code("cuMemGetAccess", location(), va) == "INVALID_VALUE"
                assert code("cuMemRetainAllocationHandle", va) == "INVALID_VALUE"
                return
            assert call("cuMemGetAccess", location(), va) == self.model.flags[first]
            handle = call("cuMemRetainAllocationHandle", va)
            assert int(handle) == int(self.range.handles[mapping[2]])
            call("cuMemRelease", handle)
            base, nbytes = call("cuMemGetAddressRange", va)
            assert (int(base), int(nbytes)) == (self.address(mapping[0]), mapping[1] * page)

    return Machine


def test_sequences_of_calls_answer_as_the_model_does(page: int) -> None:
    """cuMemMap, cuMemUnmap, cuMemSetAccess, cuMemGetAccess, cuMemRetainAllocationHandle, cuMemGetAddressRange."""
    run_state_machine_as_test(machine(page), settings=settings(max_examples=60, stateful_step_count=40, deadline=None))
    refusals.clear()  # those of sequences drawn at random tell nothing
