"""``memx plan --plot page.html`` in a real browser: what is drawn, what pointer, keys and search do, and how fast."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plan_browser import BROWSER, Browser, browser

from memx.plan import Buffer, Buffers, Layout, layout
from memx.plan.page import tag_groups
from memx.plan.plot import plot_layout

needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium on the path (Debian: apt-get install chromium)")


def steps(count: int = 4) -> tuple[Buffers, Layout]:
    """Buffers that nothing moves: n of them, each on the one before, and a tagged one over all of time."""
    rows = [Buffer(f"step-{i}", 100 * i, 100 * i + 100, 1 << 20, offset=i << 20, tag="forward") for i in range(count)]
    rows.append(Buffer("weights </script>", 0, 100 * count, 2 << 20, offset=count << 20, tag="weights"))
    return Buffers.of(rows), layout(rows, capacity=8 << 20)


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as one:
        yield one


@pytest.fixture
def page(window: Browser, tmp_path: Path) -> Iterator[Browser]:
    """The steps' page, opened anew; nothing it does may go wrong or ask for anything outside."""
    buffers, found = steps()
    path = tmp_path / "page.html"
    plot_layout(path, buffers, found, "Steps <&>", time="event of the trace")
    window.events.clear()
    window.do("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])
    window.open(path)
    yield window
    assert trouble(window) == []


def trouble(window: Browser) -> list[dict[str, Any]]:
    asked = [
        event
        for event in window.events
        if event["method"] == "Network.requestWillBeSent"
        and not event["params"]["request"]["url"].startswith(("file:", "data:"))
    ]
    wrong = [event for event in window.events if event["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")]
    return asked + wrong


def place(window: Browser, time: float, address: float) -> tuple[float, float]:
    """Where a moment and an address are in the window."""
    spot = window.ask(
        f"(() => {{ const box = document.getElementById('layout').getBoundingClientRect(), view = memxLayout.view;"
        f" return [box.left + view.x({time}), box.top + view.y({address})]; }})()"
    )
    return spot[0], spot[1]


def shown(window: Browser) -> dict[str, float]:
    view: dict[str, float] = window.ask(
        "(({left, right, bottom, top}) => ({left, right, bottom, top}))(memxLayout.view)"
    )
    return view


def picture(window: Browser, path: Path) -> np.ndarray[Any, Any]:
    image = pytest.importorskip("matplotlib.image")
    pixels: np.ndarray[Any, Any] = image.imread(window.screenshot(path))[..., :3]
    return pixels


def colour_at(pixels: np.ndarray[Any, Any], spot: tuple[float, float]) -> str:
    x, y = round(spot[0]), round(spot[1])
    return "#" + "".join(f"{round(float(v) * 255):02x}" for v in pixels[y, x])


# -- the file ----------------------------------------------------------------------------------------------------------


def test_the_page_is_whole_and_its_data_are_the_layout(tmp_path: Path) -> None:
    buffers, found = steps()
    path = tmp_path / "page.html"
    plot_layout(path, buffers, found, "Steps <&>")
    text = path.read_text()
    assert "<title>Steps &lt;&amp;&gt;</title>" in text
    assert "<!--memx:" not in text
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?!data:)[a-z/]|https?://|@import|url\(""", text, re.I)
    assert text.count("</script>") == 2  # one after the data, one after the code: none from an id
    found_data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found_data is not None
    data = json.loads(found_data[1])
    assert data["ids"] == list(buffers.ids)
    assert (data["offset"], data["size"]) == (found.offsets.tolist(), buffers.size.tolist())
    assert (data["lower"], data["upper"]) == (buffers.lower.tolist(), buffers.upper.tolist())
    assert (data["height"], data["bound"], data["capacity"]) == (6 << 20, 3 << 20, 8 << 20)
    assert max(data["load_bytes"]) == 3 << 20


def test_times_that_no_double_holds(tmp_path: Path) -> None:
    start = 1_700_000_000_000_000_001
    path = tmp_path / "page.html"
    rows = Buffers.of([Buffer("a", start, start + 7, 8), Buffer("b", start + 7, start + 9, 8)])
    plot_layout(path, rows, layout(rows))
    assert f'"begin":"{start}"' in path.read_text()
    assert '"upper":[7,9]' in path.read_text()


def test_tags_by_what_they_hold_at_most() -> None:
    rows = [Buffer(0, 0, 1, 5, tag="x"), Buffer(1, 1, 2, 6, tag="x"), Buffer(2, 0, 2, 9), Buffer(3, 0, 2, 7, tag="y")]
    tags, group, peaks = tag_groups(Buffers.of(rows), np.arange(4))
    assert (tags, group.tolist(), peaks) == ([None, "y", "x"], [2, 2, 0, 1], [9, 7, 6])
    assert tag_groups(Buffers.of(rows[2:3]), np.arange(1)) == ([], [0], [])


# -- in the browser ----------------------------------------------------------------------------------------------------


@needs_browser
def test_each_buffer_is_a_rectangle_in_its_place(page: Browser, tmp_path: Path) -> None:
    pixels = picture(page, tmp_path / "page.png")
    small, large, empty = (
        "#440154",
        "#fde725",
        page.ask("getComputedStyle(document.documentElement).getPropertyValue('--plot').trim()"),
    )
    for i in range(4):
        for time in (100 * i + 8, 100 * i + 92):
            for share in (0.15, 0.85):
                assert colour_at(pixels, place(page, time, (i + share) * (1 << 20))) == small
        assert colour_at(pixels, place(page, 100 * i + 50, 5.5 * (1 << 20))) == large
        elsewhere = (i + 2) % 4
        assert colour_at(pixels, place(page, 100 * elsewhere + 50, (i + 0.3) * (1 << 20))) == empty
    assert page.ask("document.title") == "Steps <&>"
    summary = page.ask("document.getElementById('summary').textContent")
    assert "5 buffers in 6 MiB" in summary
    assert "(2.0000 " in summary
    assert "KiB" not in page.ask("document.getElementById('scale').textContent")


@needs_browser
def test_the_lines_are_where_their_bytes_are(page: Browser, tmp_path: Path) -> None:
    pixels = picture(page, tmp_path / "page.png")
    red, black = "#c1121f", "#1c2330"
    x, y = place(page, 250, 6 << 20)
    assert black in {colour_at(pixels, (x, y + dy)) for dy in (-1, 0, 1)}
    x, y = place(page, 50, 3 << 20)  # the bytes alive never change here, and are the bound
    assert red in {colour_at(pixels, (x, y + dy)) for dy in (-1, 0, 1)}
    assert page.ask("[...document.querySelectorAll('#lines dt')].map((term) => term.textContent)") == [
        "alive", "bound", "height", "capacity",
    ]  # fmt: skip


@needs_browser
def test_hovering_tells_everything(page: Browser) -> None:
    page.mouse("mouseMoved", *place(page, 250, 2.5 * (1 << 20)))
    page.drawn()
    assert page.ask("document.getElementById('tip').hidden") is False
    text = page.ask("document.getElementById('tip').innerText").replace("\xa0", " ")
    for part in ("step-2", "1 MiB (1,048,576 B)", "200 to 300, for 100", "2 MiB (2,097,152 B)", "forward"):
        assert part in text
    page.mouse("mouseMoved", *place(page, 50, 3.5 * (1 << 20)))
    page.drawn()
    assert page.ask("document.getElementById('tip').hidden") is True


@needs_browser
def test_wheel_and_drag(page: Browser) -> None:
    before = shown(page)
    spot = place(page, 150, 1.5 * (1 << 20))
    page.wheel(*spot, -240)
    closer = shown(page)
    factor = (closer["right"] - closer["left"]) / (before["right"] - before["left"])
    assert 0.4 < factor < 0.8
    assert place(page, 150, 1.5 * (1 << 20)) == pytest.approx(spot, abs=0.5)
    page.drag(spot, (spot[0] - 80, spot[1] + 40))
    assert place(page, 150, 1.5 * (1 << 20)) == pytest.approx((spot[0] - 80, spot[1] + 40), abs=1.5)
    in_time = shown(page)
    page.wheel(*spot, -240, modifiers=8)
    narrower = shown(page)
    assert narrower["right"] - narrower["left"] < in_time["right"] - in_time["left"]
    assert (narrower["bottom"], narrower["top"]) == pytest.approx((in_time["bottom"], in_time["top"]))
    for _ in range(8):
        page.wheel(*spot, 300)
    assert shown(page) == pytest.approx(before)


@needs_browser
def test_search_moves_the_view_to_a_buffer(page: Browser, tmp_path: Path) -> None:
    page.key("/", "/")
    assert page.ask("document.activeElement.id") == "query"
    page.type("STEP-3")
    assert page.ask("document.getElementById('matches').textContent") == "1 of 1"
    assert "step-3" in page.ask("document.getElementById('details').textContent")
    view = shown(page)
    assert view["left"] <= 300
    assert view["right"] >= 400
    assert view["bottom"] <= 3 << 20
    assert view["top"] >= 4 << 20
    assert view["right"] - view["left"] <= 400
    # The others fade.
    pixels = picture(page, tmp_path / "found.png")
    assert colour_at(pixels, place(page, 320, 3.2 * (1 << 20))) == "#440154"
    assert colour_at(pixels, place(page, 350, 4.4 * (1 << 20))) != "#fde725"
    page.ask("document.getElementById('query').value = ''")
    page.type("step")
    assert page.ask("document.getElementById('matches').textContent") == "1 of 4"
    page.key("Enter")
    assert page.ask("document.getElementById('matches').textContent") == "2 of 4"
    page.key("Enter", modifiers=8)
    page.key("Enter", modifiers=8)
    assert page.ask("document.getElementById('matches').textContent") == "4 of 4"
    page.type("nowhere")
    assert page.ask("document.getElementById('matches').textContent") == "no such buffer"
    page.key("Escape")
    assert page.ask("[document.getElementById('query').value, memxLayout.state.chosen]") == ["", None]


@needs_browser
def test_keys(page: Browser) -> None:
    all_of_it = shown(page)
    page.ask("document.getElementById('layout').focus()")
    page.key("+", "+")
    closer = shown(page)
    assert closer["right"] - closer["left"] < all_of_it["right"] - all_of_it["left"]
    page.key("ArrowRight")
    assert shown(page)["left"] > closer["left"]
    page.key("ArrowUp")
    assert shown(page)["top"] > closer["top"]
    page.key("0", "0")
    assert shown(page) == pytest.approx(all_of_it)
    page.key("n", "n")
    page.key("n", "n")
    page.key("n", "n")
    assert page.ask("memxLayout.model.ids[memxLayout.state.chosen]") == "step-1"
    page.key("p", "p")
    assert page.ask("memxLayout.model.ids[memxLayout.state.chosen]") == "weights </script>"
    page.key("p", "p")
    page.key("Enter")
    assert shown(page)["right"] < all_of_it["right"]
    assert page.ask("document.querySelectorAll('#details dd')[0].textContent") == "step-0"


@needs_browser
def test_colours_by_tag_and_one_tag_alone(page: Browser, tmp_path: Path) -> None:
    page.ask("document.querySelector('input[value=tag]').click()")
    page.drawn()
    assert page.ask("[...document.querySelectorAll('#tags span')].map((span) => span.textContent)") == [
        "weights", "forward",
    ]  # fmt: skip
    weights, forward = page.ask("memxLayout.model.tag_colours.slice(0, 2)")
    pixels = picture(page, tmp_path / "tags.png")
    assert colour_at(pixels, place(page, 40, 0.3 * (1 << 20))) == forward
    assert colour_at(pixels, place(page, 350, 4.5 * (1 << 20))) == weights
    page.ask("document.querySelectorAll('#tags button')[1].click()")
    page.drawn()
    pixels = picture(page, tmp_path / "tag.png")
    assert colour_at(pixels, place(page, 40, 0.3 * (1 << 20))) == forward
    assert colour_at(pixels, place(page, 350, 4.5 * (1 << 20))) != weights


@needs_browser
def test_light_and_dark(page: Browser, window: Browser, tmp_path: Path) -> None:
    light = picture(page, tmp_path / "light.png")
    page.key("d", "d")
    dark = picture(page, tmp_path / "dark.png")
    assert light[5, 5].mean() > 0.9
    assert dark[5, 5].mean() < 0.2
    inside = place(page, 50, 5.5 * (1 << 20))
    assert colour_at(dark, inside) == colour_at(light, inside)
    window.do("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    window.do("Page.reload")
    window.until("window.memxLayout?.frames.length > 0")
    assert page.ask("document.documentElement.dataset.theme") == "dark"


@needs_browser
def test_nothing_to_show(window: Browser, tmp_path: Path) -> None:
    path = tmp_path / "empty.html"
    plot_layout(path, Buffers.of([]), layout([]))
    window.events.clear()
    window.open(path)
    window.key("n", "n")
    window.wheel(300, 300, -100)
    assert "0 buffers" in window.ask("document.getElementById('summary').textContent")
    assert trouble(window) == []


@needs_browser
def test_twenty_thousand_buffers_stay_usable(window: Browser, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    count = 20_000
    lower = np.sort(rng.integers(0, 2 * count, count))
    size = (1 << rng.integers(0, 14, count)) * 512
    buffers = Buffers([f"t{i}" for i in range(count)], lower, lower + rng.integers(1, 4000, count), size)
    found = layout(buffers, method="greedy", time_limit=1)
    path = tmp_path / "large.html"
    plot_layout(path, buffers, found)
    window.events.clear()
    window.open(path)
    window.ask("document.getElementById('layout').focus()")
    # All of it, from everywhere to close by; what others take of this machine must not count.
    for scene in ("0", "+", "+"):
        window.ask("memxLayout.frames.length = 0")
        window.key(scene, scene)
        for k in range(8):
            window.key("ArrowRight" if k % 2 else "ArrowLeft")
        frames = sorted(window.ask("memxLayout.frames"))
        assert frames[len(frames) // 4] < 50, frames
    # The index finds what a look at every buffer finds.
    for time, address in zip(rng.uniform(0, 2 * count, 200), rng.uniform(0, found.height, 200), strict=True):
        inside = (
            (lower <= time) & (time < buffers.upper) & (found.offsets <= address) & (address < found.offsets + size)
        )
        point = f"{time}, {address}, {time} + 1e-9, {address} + 1e-9"
        window.ask(f"window.hits = []; memxLayout.model.index.search({point}, (i) => window.hits.push(i))")
        answer = window.ask("window.hits")
        assert answer == np.flatnonzero(inside).tolist()
    window.key("/", "/")
    window.type("t12345")
    assert window.ask("memxLayout.model.ids[memxLayout.state.chosen]") == "t12345"
    assert trouble(window) == []
