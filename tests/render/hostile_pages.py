"""Hostile pages for the benchmark and the tests of rendering, and a sink that records what leaks out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

PLAIN = "<!DOCTYPE html><html><body style='margin:0'><h1>Plain</h1><p>A page like any other.</p></body></html>"
"""The page that must render correctly after each of the others."""


@dataclass
class Sink:
    """Listens on the loopback interface, by TCP and UDP, and records what arrives."""

    port: int = 0
    arrived: list[str] = field(default_factory=list)


@asynccontextmanager
async def sink() -> AsyncIterator[Sink]:
    """Open a sink on one port for both."""
    there = Sink()

    async def take(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there.arrived.append("tcp")
        writer.close()

    class Datagrams(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, address: object) -> None:
            there.arrived.append("udp")

    listener = await asyncio.start_server(take, "127.0.0.1", 0)
    there.port = listener.sockets[0].getsockname()[1]
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        Datagrams, local_addr=("127.0.0.1", there.port)
    )
    try:
        yield there
    finally:
        transport.close()
        listener.close()
        await listener.wait_closed()


def _script(code: str) -> str:
    return f"<!DOCTYPE html><html><body><p>before</p><script>{code}</script><p>after</p></body></html>"


def _body(markup: str) -> str:
    return f"<!DOCTYPE html><html><body><p>before</p>{markup}<p>after</p></body></html>"


def costly_pages() -> dict[str, str]:
    """Return pages that use unlimited time, memory or size."""
    return {
        "endless loop": _script("while (true) {}"),
        "endless promises": _script("const again = () => Promise.resolve().then(again); again()"),
        "endless messages": _script(
            "const c = new MessageChannel(); c.port1.onmessage = () => c.port2.postMessage(0);"
            " c.port1.onmessage(); addEventListener('load', () => { for (;;); })"
        ),
        "timer storm": _script("const f = () => { setTimeout(f); setTimeout(f) }; f()"),
        "loop in a timer": _script("setTimeout(() => { for (;;); }, 900)"),
        "memory bomb": _script("const a = []; for (let i = 0; i < 4000; i++) a.push(new Uint8Array(16 << 20).fill(i))"),
        "string bomb": _script(
            "let s = 'x'.repeat(1 << 20); const a = []; for (;;) a.push(s + a.length + Math.random())"
        ),
        "giant canvas": _script(
            "for (let i = 0; i < 40; i++) { const c = document.createElement('canvas'); c.width = c.height = 11000;"
            " document.body.append(c); c.getContext('2d').fillRect(0, 0, 11000, 11000) }"
        ),
        "huge document": _script(
            "for (let i = 0; i < 400000; i++) document.body.appendChild(document.createElement('div')).textContent = i"
        ),
        "deep nesting": "<!DOCTYPE html><body>" + "<div>" * 50_000 + "deep",
        "100,000 px": _body("<div style='height:100000px;background:linear-gradient(red,blue)'></div>"),
        "endless writing": _script("for (;;) document.write('<p>more and more</p>')"),
        "huge blur": _body("<div style='filter:blur(400px);height:9000px;background:red'></div>" * 5),
        "many shadows": _body("<i style='box-shadow:0 0 300px #000;display:block;height:40px'></i>" * 500),
        "regular expression": _script(r"/^(a+)+$/.test('a'.repeat(60) + 'b')"),
        "data address of 50 MB": _body(f"<img src='data:image/png;base64,{'A' * 50_000_000}'>"),
        "broken markup": "<html><body><div><p>one<table><tr><div></p></span><b><i>two</b></i><![CDATA[ <x y='",
        "only blanks": " \n\t ",
    }


def annoying_pages() -> dict[str, str]:
    """Return pages that open dialogs, or navigate away."""
    away = "http://127.0.0.2/"
    return {
        "alert storm": _script("for (let i = 0; i < 1000; i++) { alert(i); confirm(i); prompt(i) }"),
        "windows": _script("for (let i = 0; i < 100; i++) window.open('about:blank', i)"),
        "print": _script("for (let i = 0; i < 50; i++) print()"),
        "full screen": _script("document.documentElement.requestFullscreen().catch(() => {})"),
        "clipboard": _script("navigator.clipboard?.writeText('x'); document.execCommand('copy')"),
        "leaving asked": _script("onbeforeunload = (e) => { e.preventDefault(); return e.returnValue = 'stay' }"),
        "history loop": _script("for (let i = 0; i < 500; i++) history.pushState(i, '', '#' + i); history.go(-5)"),
        "reload loop": _script("location.reload()"),
        "hash loop": _script("onhashchange = () => { location.hash += 1 }; location.hash = 1"),
        "refresh to itself": "<html><head><meta http-equiv=refresh content=0></head><body><p>again</p></body></html>",
        "refresh to elsewhere": f"<html><head><meta http-equiv=refresh content='0;url={away}'></head><p>x",
        "redirects": _script(f"location.replace('{away}1'); location.href = '{away}2'; location.assign('{away}3')"),
        "to another scheme": _script(
            "location.href = 'mailto:a@example.invalid'; location.href = 'file:///etc/passwd'"
        ),
        "to a blank page": _script("location.href = 'about:blank'"),
        "download": _script(
            "const a = document.createElement('a'); a.download = 'x'; a.href = 'data:application/zip,x';"
            " document.body.append(a); for (let i = 0; i < 20; i++) a.click()"
        ),
        "script files": _script(
            "for (const u of ['file:///etc/passwd', 'resource://gre/', 'chrome://global/content/']) {"
            " const f = document.createElement('iframe'); f.src = u; document.body.append(f) }"
        ),
        "changed builtins": _script(
            "JSON.stringify = () => 'x'; Array.prototype.map = null; window.getComputedStyle = () => { throw 1 };"
            " Element.prototype.getBoundingClientRect = () => ({ get left() { throw 1 } }); Promise = null"
        ),
    }


def forging_scripts() -> dict[str, str]:
    """Return scripts that change whatever a page could be measured with, but nothing of how it looks."""
    block = (
        "{tag: 'p', text: 'forged', x: 0, y: 0, width: 600, height: 40, color: '#000000', background: '',"
        " font_size: 16, bold: false, image: false, text_x: 0, text_width: 600}"
    )
    words = "function () { return 'forged' }"
    box = "{left: 1, right: 601, top: 1, bottom: 41, x: 1, y: 1, width: 600, height: 40}"
    return {
        "toJSON of all objects": (
            f"Object.prototype.toJSON = () => ({{height: 43, blocks: Array(900000).fill({block})}})"
        ),
        "toJSON of arrays": f"Array.prototype.toJSON = () => Array(900000).fill({block})",
        "toJSON of texts": f"String.prototype.toJSON = {words}; Number.prototype.toJSON = () => 600",
        "JSON": f'JSON.stringify = () => \'{{"height": 43, "blocks": []}}\'; JSON.parse = {words}',
        "arrays": "Array.prototype[Symbol.iterator] = function* () {}; Array.prototype.push = function () { return 0 };"
        " for (const name of ['map', 'join', 'slice', 'includes', 'filter']) Array.prototype[name] = null",
        "iterators": "for (const all of [[], new Map(), new Set(), '']) {"
        " const it = Object.getPrototypeOf(all[Symbol.iterator]()); it.next = () => ({done: true}) }",
        "maps and sets": "for (const type of [Map, Set, WeakMap]) for (const name of ['get', 'has', 'set', 'delete'])"
        " type.prototype[name] = () => 'forged'; Map.prototype[Symbol.iterator] = null",
        "texts": "for (const name of ['trim', 'slice', 'replace', 'includes', 'toUpperCase', 'toLowerCase', 'padStart',"
        f" 'toWellFormed', 'toString']) String.prototype[name] = {words}; RegExp.prototype[Symbol.replace] = {words}",
        "numbers": "Math.min = Math.max = Math.round = Math.floor = () => 7; parseFloat = () => 7; Number = () => 7;"
        " Number.prototype.toString = () => 'ff'",
        "promises": "Promise.prototype.then = () => {}; Promise.prototype.constructor = null; Promise.race = null;"
        " Promise = null",
        "descriptors": "Object.prototype.get = () => 'forged'; Object.prototype.value = 'forged';"
        " Object.defineProperty = null; Reflect.apply = null; Function.prototype.call = null;"
        " Function.prototype.apply = null; Function.prototype.bind = null",
        "eval": "eval = Function = () => 'x'.repeat(1e8); setTimeout = setInterval = null",
        "styles": "getComputedStyle = () =>"
        " new Proxy({}, {get: (_, name) => name === 'display' ? 'block' : 'rgb(1, 2, 3)'});"
        f" CSSStyleDeclaration.prototype.getPropertyValue = {words};"
        " for (const name of ['color', 'display', 'opacity', 'fontSize', 'backgroundColor', 'webkitTextFillColor'])"
        " Object.defineProperty(CSSStyleProperties.prototype, name, {get: () => 'none'})",
        "boxes": "for (const type of [Element, Range]) for (const name of ['getBoundingClientRect', 'getClientRects'])"
        f" type.prototype[name] = () => ({box}); Range.prototype.selectNodeContents = null;"
        " Object.defineProperty(Element.prototype, 'scrollHeight', {get: () => 5000}); scrollX = scrollY = 40",
        "the tree": "Document.prototype.createTreeWalker = document.createTreeWalker = () => ({firstChild: () => null,"
        " nextSibling: () => null, parentNode: () => null});"
        " for (const name of ['firstChild', 'nextSibling', 'parentNode'])"
        " TreeWalker.prototype[name] = () => document.body",
        "nodes": "for (const [type, name] of [[Node, 'firstChild'], [Node, 'nextSibling'], [Node, 'nodeType'],"
        " [Node, 'childNodes'], [CharacterData, 'data'], [Element, 'tagName'], [Element, 'localName']])"
        " Object.defineProperty(type.prototype, name, {get: () => 'forged'});"
        f" CharacterData.prototype.substringData = {words}",
        "getters of the document": "for (const name of ['documentElement', 'body', 'images', 'fonts', 'activeElement',"
        " 'adoptedStyleSheets', 'getAnimations', 'createRange', 'querySelectorAll'])"
        " Object.defineProperty(document, name, {get() { throw 1 }})",
        "the window": "for (const name of ['document', 'window']) try { window[name] = null } catch {}"
        " for (const name of ['scrollTo', 'stop', 'Document', 'Node', 'HTMLElement', 'CSSStyleSheet', 'scrollX'])"
        " Object.defineProperty(window, name, {value: null})",
        "canvases": "OffscreenCanvas = null; OffscreenCanvasRenderingContext2D.prototype.getImageData ="
        " CanvasRenderingContext2D.prototype.getImageData = () => ({data: [1, 2, 3, 255]})",
        "its own functions": "for (const name of Object.getOwnPropertyNames(window)) if (/settle|measure/.test(name)) {"
        " window[name](); try { Object.defineProperty(window, name, {value: () => 'forged'}) } catch {} }",
    }


def forging_page(*scripts: str) -> str:
    """Return a page that looks like `PLAIN` and runs these scripts."""
    end = "</body></html>"
    return PLAIN.removesuffix(end) + "".join(f"<script>{script}</script>" for script in scripts) + end


def invisible_pages() -> dict[str, str]:
    """Return white pages that contain the texts of `PLAIN`, where nobody can see them."""
    body = "<h1>Plain</h1><p>A page like any other.</p>"
    head = "<!DOCTYPE html><html><body style='margin:0'>"
    cover = "<div style='position:fixed;inset:0;background:white;pointer-events:none'></div>"
    late = (
        "<script>const c = new MessageChannel(); const w = window; c.port1.onmessage = () => {"
        " if (w.__sweet_settle__ && w.late) document.body.style.color = 'white'; else c.port2.postMessage(0) };"
        " setTimeout(() => { w.late = true }, 900); c.port2.postMessage(0)</script>"
    )
    return {
        "white": f"{head}<style>body {{ color: white }}</style>{body}",
        "transparent": f"{head}<style>body {{ color: transparent }}</style>{body}",
        "filled with white": f"{head}<style>body {{ -webkit-text-fill-color: white }}</style>{body}",
        "nearly white by opacity": f"{head}<div style='opacity: 0.03'>{body}</div>",
        "covered": f"{head}{body}{cover}",
        "clipped": f"{head}<div style='clip-path: inset(100%)'>{body}</div>",
        "masked": f"{head}<div style='mask: linear-gradient(transparent, transparent)'>{body}</div>",
        "filtered": f"{head}<div style='filter: opacity(0)'>{body}</div>",
        "indented": f"{head}<style>h1, p {{ text-indent: -9999px }}</style>{body}",
        "in a host": f"{head}{body}<script>for (const e of document.querySelectorAll('h1, p')) {{"
        " const d = document.createElement('div'); d.textContent = e.textContent; d.style.height = '30px';"
        " e.replaceWith(d); d.attachShadow({mode: 'closed'}) }</script>",
        "in a frame": f"{head}<iframe style='border:0'>Plain</iframe>"
        "<iframe style='border:0'>A page like any other.</iframe>",
        "removed when measured": f"{head}{body}{late}",
    }


def illegible_pages() -> dict[str, str]:
    """Return pages in which the texts of `PLAIN` are a few grey dots."""
    end = "</style><h1>Plain</h1><p>A page like any other.</p>"
    head = "<!DOCTYPE html><html><body style='margin:0'><style>h1, p "
    return {
        "letters of a pixel": f"{head}{{ font-size: 1px }}{end}",
        "letters of a tenth of a pixel": f"{head}{{ font-size: 0.1px }}{end}",
        "scaled down": f"{head}{{ transform: scale(0.05) }}{end}",
    }


def prying_pages(port: int) -> dict[str, str]:
    """Return pages that try to reach a server on this machine: the sink on this port would record each of them."""
    place = f"127.0.0.1:{port}"
    web = f"http://{place}"
    worker = f"new Blob(['fetch(\\'{web}/worker\\'); importScripts(\\'{web}/import\\')'], {{type: 'text/javascript'}})"
    return {
        "fetch": _script(
            f"fetch('{web}/a', {{mode: 'no-cors'}}); fetch('http://localhost:{port}/b', {{mode: 'no-cors'}});"
            f" fetch('https://{place}/c', {{mode: 'no-cors', keepalive: true, method: 'POST', body: 'x'}})"
        ),
        "request": _script(f"const r = new XMLHttpRequest(); r.open('GET', '{web}/x', false); r.send()"),
        "socket": _script(f"new WebSocket('ws://{place}/'); new WebSocket('wss://{place}/')"),
        "beacon": _script(
            f"navigator.sendBeacon('{web}/beacon', 'x'); onpagehide = () => navigator.sendBeacon('{web}/late', 'x')"
        ),
        "events": _script(f"new EventSource('{web}/events')"),
        "worker": _script(
            f"new Worker(URL.createObjectURL({worker})); new SharedWorker(URL.createObjectURL({worker}))"
        ),
        "service worker": _script(f"navigator.serviceWorker?.register('{web}/sw.js')"),
        "picture": _body(f"<img src='{web}/i'><picture><source srcset='{web}/s 2x'><img src='//{place}/p'></picture>"),
        "style": f"<html><head><link rel=stylesheet href='{web}/css'><style>@import url({web}/import);"
        f"body{{background:url({web}/bg)}}@font-face{{font-family:f;src:url({web}/font)}}p{{font-family:f}}</style></head>"
        "<body><p>text</p></body></html>",
        "frames": _body(
            f"<iframe src='{web}/f'></iframe><object data='{web}/o'></object><embed src='{web}/e'>"
            f"<iframe srcdoc=\"<img src='{web}/sd'><script>fetch('{web}/in')</script>\"></iframe>"
        ),
        "media": _body(
            f"<video autoplay src='{web}/v' poster='{web}/po'></video><audio autoplay src='{web}/a'></audio>"
            f"<svg><image href='{web}/svg'/><use href='{web}/use#a'/></svg>"
        ),
        "form": _body(f"<form id=f action='{web}/form' method=post><input name=a></form><script>f.submit()</script>"),
        "hints": f"<html><head><link rel=prefetch href='{web}/1'><link rel=preload as=image href='{web}/2'>"
        f"<link rel=preconnect href='{web}'><link rel=dns-prefetch href='{web}'><link rel=modulepreload href='{web}/3'>"
        f"<link rel=icon href='{web}/4'><link rel=manifest href='{web}/5'></head><body>"
        f"<a ping='{web}/ping' href='#x' id=a>x</a><script>a.click()</script></body></html>",
        "peer connection": _script(
            f"const p = new RTCPeerConnection({{iceServers: [{{urls: 'stun:{place}'}},"
            f" {{urls: 'turn:{place}', username: 'a', credential: 'b'}}]}}); p.createDataChannel('x');"
            " p.createOffer().then((o) => p.setLocalDescription(o))"
        ),
        "transport": _script(f"new WebTransport('https://{place}/')"),
        "module": _body(
            f"<script type=module>import '{web}/m.js'</script><script src='{web}/s.js'></script>"
            f"<script>import('{web}/d.js').catch(() => 0)</script>"
        ),
        "going there": _script(f"location.href = '{web}/go'"),
        "refresh there": f"<html><head><meta http-equiv=refresh content='0;url={web}/r'></head><p>x",
        "window there": _script(f"window.open('{web}/window'); open('https://{place}/')"),
        "base": f"<html><head><base href='{web}/'></head><body><img src=base><script src=a></script></body></html>",
    }
