"""Real pages in a real Firefox: what they report about themselves is true, bounded, and the same each time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweet.render.browser import LONGEST_REPORT, MOST_LETTERS, _parse
from sweet.render.page import RenderFailed, Screenshot
from sweet.tasks.html.diagnostics import NOTHING, diagnose
from tests.render.hostile_pages import PLAIN, forging_page, forging_scripts, illegible_pages, invisible_pages
from tests.render.real_browser import PATIENT, Shared, needs_firefox, outcome

pytestmark = needs_firefox

START = 1704110400000
"""The time at which the clocks of all pages stand still, in milliseconds since 1970."""


def body(markup: str) -> str:
    return f"<!DOCTYPE html><html><body style='margin: 0'>{markup}</body></html>"


def test_a_page_cannot_change_how_it_is_measured(shared: Shared) -> None:
    plain = shared.run(shared.pool.shoot(PLAIN))
    for name, script in forging_scripts().items():
        assert shared.run(outcome(shared.pool, forging_page(script))) == plain, name


def test_neither_can_a_page_that_changes_everything(either: Shared) -> None:
    plain = either.run(either.pool.shoot(PLAIN))
    assert either.run(outcome(either.pool, forging_page(*forging_scripts().values()))) == plain


def test_named_elements_do_not_hide_functions(shared: Shared) -> None:
    names = ("tagName", "firstChild", "nextSibling", "nodeType", "getBoundingClientRect", "childNodes", "type")
    form = "".join(f"<input hidden name={name}>" for name in names)
    found = shared.run(shared.pool.shoot(body(f"<form>shown{form}</form><img name=images><img name=documentElement>")))
    assert [block.text for block in found.blocks if block.tag == "form"] == ["shown"]


def test_texts_that_are_not_seen_match_none_that_is(shared: Shared) -> None:
    plain = shared.run(shared.pool.shoot(PLAIN))
    assert diagnose(plain, plain) == type(NOTHING)(1, 1, 1, 1)
    white = shared.run(shared.pool.shoot(body("<div style='height: 300px'></div>")))
    for name, page in invisible_pages().items():
        shot = shared.run(shared.pool.shoot(page))
        assert diagnose(shot, plain) == NOTHING, name
        assert set(pixels(shot)) == set(pixels(white)), name
    for name, page in illegible_pages().items():
        assert diagnose(shared.run(shared.pool.shoot(page)), plain) == NOTHING, name


def pixels(shot: Screenshot) -> list[tuple[int, ...]]:
    """Return the colours of a screenshot, those that a person cannot tell from white as white."""
    from sweet.render.screenshot_images import read_image

    return [
        (255, 255, 255) if min(colour) > 245 else colour
        for _, colour in read_image(shot.png).getcolors(shot.width * shot.height) or []
        if isinstance(colour, tuple)
    ]


def test_the_colour_of_letters_is_that_which_fills_them(shared: Shared) -> None:
    shot = shared.run(shared.pool.shoot(body("<p style='color: #112233; -webkit-text-fill-color: #aabbcc'>filled</p>")))
    assert [block.color for block in shot.blocks if block.tag == "p"] == ["#aabbcc"]
    gradient = "color: #112233; -webkit-text-fill-color: transparent; background: linear-gradient(red, blue) text"
    shot = shared.run(shared.pool.shoot(body(f"<p style='{gradient}'>gradient</p>")))
    assert [block.color for block in shot.blocks if block.tag == "p"] == ["#112233"]


def test_a_report_is_bounded(either: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "<script>for (let i = 0; i < 205; i++) document.body.appendChild(document.createElement('p')).textContent ="
    shot = either.run(either.pool.shoot(body(f"{line} '\\0\\ud83d'.repeat(1010)</script>")))
    assert 0.9 * MOST_LETTERS < sum(len(block.text) for block in shot.blocks) <= MOST_LETTERS
    wide = "<p style='width: 20000000px; height: 20px; background: red; margin-left: -10px'>far</p>"
    assert [block.text for block in either.run(either.pool.shoot(body(wide))).blocks] == ["far"]
    many = "<script>for (let i = 0; i < 5000; i++) document.body.append(document.createElement('br'), 'x')</script>"
    assert either.run(either.pool.shoot(body(many))).blocks[0].text.startswith("x x")
    monkeypatch.setattr(either.pool, "settings", replace(PATIENT, max_height=40))
    gone = "<p>x</p><script>document.documentElement.remove()</script>"
    assert either.run(either.pool.shoot(body(gone))).blocks == ()


def test_a_report_that_is_too_long_is_not_parsed() -> None:
    report = '{"height": 1, "blocks": []}'
    assert _parse(report).height == 1
    for bad in (report + LONGEST_REPORT * " ", report[1:], None, 5):
        with pytest.raises(RenderFailed) as caught:
            _parse(bad)
        assert caught.value.reason == "blocked"


def test_a_screenshot_of_noise_is_refused(either: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweet.render.browser.LARGEST_SCREENSHOT", 100_000)
    noise = (
        "<canvas id=c width=300 height=300></canvas><script>const d = c.getContext('2d');"
        " const i = d.createImageData(300, 300);"
        " for (let k = 0; k < i.data.length; k++) i.data[k] = 256 * Math.random(); d.putImageData(i, 0, 0)</script>"
    )
    failed = either.run(outcome(either.pool, body(noise)))
    assert isinstance(failed, RenderFailed)
    assert (failed.reason, failed.lasting) == ("too_large", True)
    assert "1280 x 720 px) has" in str(failed)
    assert "more than 100000" in str(failed)
    assert isinstance(either.run(outcome(either.pool, PLAIN)), Screenshot)


CLOCKS = {
    "performance.now() + performance.timeOrigin": START,
    "Performance.prototype.now.call(performance)": 0,
    "performance.timing.navigationStart + performance.timing.domLoading": 2 * START,
    "JSON.stringify(performance)": f'{{"timeOrigin":{START}}}',
    "performance.mark('a').startTime": 0,
    "new Event('x').timeStamp + new MouseEvent('x').timeStamp": 0,
    "document.timeline.currentTime": 0,
    "new AudioContext().getOutputTimestamp().performanceTime": 0,
    "new File([], 'x').lastModified": START,
    "new File([], 'x', {lastModified: 5}).lastModified": 5,
    "new Document().lastModified": "01/01/2024 12:00:00",
    "new Intl.DateTimeFormat('en', {second: 'numeric', fractionalSecondDigits: 3}).formatToParts().length": 3,
    "new Intl.DateTimeFormat('en', {hour: 'numeric', hour12: false}).formatToParts()[0].value": 12,
    "typeof Temporal == 'undefined' ? '2024-01-01T12:00:00' : Temporal.Now.plainDateTimeISO()": "2024-01-01T12:00:00",
    "new Promise((done) => { AbortSignal.timeout(50).onabort = () => done(performance.now()) })": 50,
    "window.scheduler ? scheduler.postTask(() => performance.now(), {delay: 300}) : 300": 300,
    "window.scheduler?.yield ? scheduler.yield().then(() => performance.now()) : 0": 0,
    "performance.getEntriesByType('navigation')[0].transferSize": 0,
    "'decodedBodySize' in performance.getEntriesByType('navigation')[0].toJSON()": "false",
    "typeof XSLTProcessor": "undefined",
    "new MediaStream().id": "00000000-0000-4000-8000-000000000000",
    "window.navigation ? navigation.currentEntry.key : '00000000-0000-4000-8000-000000000000'": (
        "00000000-0000-4000-8000-000000000000"
    ),
    "new Promise((done) => { const w = new Worker('data:text/javascript,postMessage(Math.random() + Date.now())');"
    " w.onmessage = (e) => done(e.data); w.onerror = () => done('refused') })": "refused",
    "new Promise((done) => { const w = new Worker(URL.createObjectURL(new Blob(['postMessage(Math.random())'])));"
    " w.onmessage = (e) => done(e.data); w.onerror = () => done('refused') })": "refused",
    "(() => { const f = document.createElement('iframe'); document.body.append(f); const w = f.contentWindow;"
    " const all = [+new w.Date(), w.performance.now(), w.document.lastModified]; f.remove(); return all })()": (
        f"{START},0,01/01/2024 12:00:00"
    ),
}


def test_all_clocks_and_made_up_names_are_the_same_each_time(either: Shared) -> None:
    scripts = "".join(
        f"<p id=p{number}></p><script>Promise.resolve({code}).then((v) => p{number}.textContent = v,"
        f" (e) => p{number}.textContent = e)</script>"
        for number, code in enumerate(CLOCKS)
    )
    shot = either.run(either.pool.shoot(body(scripts)))
    shown = [block.text for block in shot.blocks if block.tag == "p"]
    assert dict(zip(CLOCKS, shown, strict=True)) == {code: str(value) for code, value in CLOCKS.items()}
