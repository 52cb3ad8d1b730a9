"""What a page loads lazily, or reveals when it is in view, is in the screenshot."""

from __future__ import annotations

import pytest

from tests.render.real_browser import Shared, needs_firefox

pytestmark = needs_firefox

HEAD = (
    "<!DOCTYPE html><html><head><meta charset=utf-8><style>body{margin:0;font-family:sans-serif}</style></head><body>"
)
BOX = "width:400px;height:300px;background:#c00"
PICTURE = "src='https://picsum.photos/400/300' width=400 height=300"
GAP = "<div style='height:1800px'></div>"


def revealed(change: str, style: str, act: str = "e.target.style.opacity = 1", more: str = "") -> str:
    """A box that an observer reveals once it is in view."""
    return (
        f"{HEAD}{change}<div class=r style='{style};{BOX}'></div><script>"
        "const seen = new IntersectionObserver((all) => all.forEach((e) => {"
        f"if (e.isIntersecting) {{ {act}; {more} }} }}));"
        "seen.observe(document.querySelector('.r'))</script></body></html>"
    )


PLAIN = f"{HEAD}<div style='{BOX}'></div></body></html>"
LOW = f"{HEAD}{GAP}<div style='{BOX}'></div></body></html>"
IMAGE = f"{HEAD}<img {PICTURE}></body></html>"
LOW_IMAGE = f"{HEAD}{GAP}<img {PICTURE}></body></html>"

SAME = {
    "lazy image": (f"{HEAD}<img loading=lazy {PICTURE}></body></html>", IMAGE),
    "lazy image below the window": (f"{HEAD}{GAP}<img loading=LAZY {PICTURE}></body></html>", LOW_IMAGE),
    "image that is given its address when it is in view": (
        f"{HEAD}{GAP}<img width=400 height=300><script>new IntersectionObserver((all) => all.forEach((e) => {{"
        "if (e.isIntersecting) e.target.src = 'https://picsum.photos/400/300' }))"
        ".observe(document.querySelector('img'))</script></body></html>",
        LOW_IMAGE,
    ),
    "revealed at once": (revealed("", "opacity:0"), PLAIN),
    "revealed by a transition": (revealed("", "opacity:0;transition:opacity .6s"), PLAIN),
    "revealed with a delay": (revealed("", "opacity:0;transition:opacity 2s 3s"), PLAIN),
    "revealed below the window": (revealed(GAP, "opacity:0;transition:opacity .6s"), LOW),
    "revealed after a while": (
        revealed("", "opacity:0", "setTimeout(() => (e.target.style.opacity = 1), 200)"),
        PLAIN,
    ),
    "revealed in the next frame": (
        revealed("", "opacity:0", "requestAnimationFrame(() => (e.target.style.opacity = 1))"),
        PLAIN,
    ),
    "revealed and no more observed": (revealed("", "opacity:0", more="seen.unobserve(e.target)"), PLAIN),
    "moved in": (
        revealed("", "transform:translateX(500px);transition:transform 1s", "e.target.style.transform = 'none'"),
        PLAIN,
    ),
    "revealed when it is loaded": (
        f"{HEAD}<div class=r style='opacity:0;transition:opacity .6s;{BOX}'></div><script>addEventListener('load', "
        "() => (document.querySelector('.r').style.opacity = 1))</script></body></html>",
        PLAIN,
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_what_is_revealed_is_in_the_screenshot(shared: Shared, name: str) -> None:
    page, as_shown = SAME[name]
    found, expected = (shared.run(shared.pool.shoot(one)) for one in (page, as_shown))
    assert found.png == expected.png


def test_a_page_that_hides_what_is_out_of_view_is_as_at_its_top(either: Shared) -> None:
    hiding = (
        f"{HEAD}<p>top</p>{GAP}<div class=r style='{BOX}'></div><script>new IntersectionObserver((all) => "
        "all.forEach((e) => (e.target.style.visibility = e.isIntersecting ? 'visible' : 'hidden')))"
        ".observe(document.querySelector('.r'))</script></body></html>"
    )
    hidden = f"{HEAD}<p>top</p>{GAP}<div style='visibility:hidden;{BOX}'></div></body></html>"
    shots = [either.run(either.pool.shoot(page)).png for page in (hiding, hidden, hiding)]
    assert shots[0] == shots[1] == shots[2]


def test_a_page_that_observes_for_ever_ends(shared: Shared) -> None:
    growing = revealed(
        "", "opacity:1", "document.body.insertAdjacentHTML('beforeend', '<div style=\\'height:900px\\'>x')"
    )
    endless = growing.replace("e.isIntersecting", "true").replace("seen.observe(", "setInterval(() => seen.observe(")
    endless = endless.replace("('.r'))</script>", "('.r')), 10)</script>")
    assert shared.run(shared.pool.shoot(endless)).height > 0
