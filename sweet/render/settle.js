// Runs in every page before the page's own scripts, so that the same page always renders to the same image: the clock is
// stopped, random numbers are seeded, timers wait. `settle`, called once the page has loaded, runs the timers due within
// the first virtual second in order, ends animations, and returns the page's size and its visible blocks. It keeps
// references to the functions that it needs from before the page could change them.
((NAME, LIMITS) => {
  "use strict";
  const START = Date.UTC(2024, 0, 1, 12);
  const { min, max, round, floor, imul } = Math;
  const { stringify } = JSON;
  const RealDate = Date;
  const realTimeout = window.setTimeout.bind(window);
  const stop = window.stop.bind(window);
  const blur = Function.prototype.call.bind(HTMLElement.prototype.blur);
  const styleOf = window.getComputedStyle.bind(window);
  const define = (object, name, value) =>
    Object.defineProperty(object, name, { value, writable: true, configurable: true });

  // The clock.
  let elapsed = 0;
  window.Date = new Proxy(RealDate, {
    construct: (target, words, self) => Reflect.construct(target, words.length ? words : [START + floor(elapsed)], self),
    apply: () => new RealDate(START + floor(elapsed)).toString(),
    get: (target, name) => (name === "now" ? () => START + floor(elapsed) : Reflect.get(target, name)),
  });
  define(RealDate.prototype, "constructor", window.Date);
  define(performance, "now", () => elapsed);
  define(performance, "timeOrigin", START);
  const format = Object.getOwnPropertyDescriptor(Intl.DateTimeFormat.prototype, "format").get;
  Object.defineProperty(Intl.DateTimeFormat.prototype, "format", {
    configurable: true,
    get() {
      const form = format.call(this);
      return (date) => form(date === undefined ? START + elapsed : date);
    },
  });

  // Random numbers (mulberry32).
  let state = 0x5eed;
  const bits = () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return (mixed ^ (mixed >>> 14)) >>> 0;
  };
  define(Math, "random", () => bits() / 2 ** 32);
  define(Crypto.prototype, "getRandomValues", (array) => {
    const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    for (let i = 0; i < bytes.length; i++) bytes[i] = bits() & 255;
    return array;
  });

  // Timers: kept in a list until `settle` runs them.
  let lastId = 0;
  const timers = new Map();
  const later = (call, delay, words, every) => {
    const wait = max(every === null ? 0 : 4, +delay || 0);
    timers.set(++lastId, { due: elapsed + wait, call, words, every: every === null ? null : wait });
    return lastId;
  };
  const forget = (id) => void timers.delete(Number(id));
  const FRAME = 1000 / 60;
  const nextFrame = () => (floor(elapsed / FRAME + 1e-6) + 1) * FRAME - elapsed;
  define(window, "setTimeout", (call, delay, ...words) => later(call, delay, words, null));
  define(window, "setInterval", (call, delay, ...words) => later(call, delay, words, true));
  define(window, "requestAnimationFrame", (call) => later(() => call(elapsed), nextFrame(), [], null));
  define(window, "requestIdleCallback", (call) =>
    later(() => call({ didTimeout: false, timeRemaining: () => 10 }), 1, [], null));
  for (const name of ["clearTimeout", "clearInterval", "cancelAnimationFrame", "cancelIdleCallback"])
    define(window, name, forget);

  // A page's storage lasts until it ends, so that the next page cannot read it.
  window.name = "";
  Object.defineProperty(History.prototype, "length", { configurable: true, get: () => 1 });
  for (const name of ["localStorage", "sessionStorage"]) {
    const held = new Map();
    const storage = {
      getItem: (key) => (held.has(String(key)) ? held.get(String(key)) : null),
      setItem: (key, value) => void held.set(String(key), String(value)),
      removeItem: (key) => void held.delete(String(key)),
      clear: () => held.clear(),
      key: (index) => [...held.keys()][index] ?? null,
      get length() {
        return held.size;
      },
    };
    Object.defineProperty(window, name, { configurable: true, value: storage });
  }

  // A page cannot navigate away; older versions of Firefox do not report an attempt.
  window.navigation?.addEventListener("navigate", (event) => {
    if (!event.destination.sameDocument) event.preventDefault();
  });

  const pause = (milliseconds) => new Promise((done) => realTimeout(done, milliseconds));
  const atMost = (promise, milliseconds) => Promise.race([promise, pause(milliseconds)]).catch(() => {});

  const runTimers = async () => {
    for (let count = 0; count < LIMITS.callbacks; count++) {
      let first = null;
      for (const [id, timer] of timers)
        if (timer.due <= LIMITS.virtual && (first === null || timer.due < timers.get(first).due)) first = id;
      if (first === null) break;
      const timer = timers.get(first);
      elapsed = max(elapsed, timer.due);
      if (timer.every === null) timers.delete(first);
      else timer.due = elapsed + timer.every;
      try {
        typeof timer.call === "function" ? timer.call.apply(window, timer.words) : (0, eval)(String(timer.call));
      } catch {
        // an error in a timer does not stop the others
      }
      if (count % 16 === 0) await pause(0);
      else await null;
    }
    timers.clear();
  };

  const endAnimations = () => {
    for (const animation of document.getAnimations()) {
      try {
        const { endTime } = animation.effect.getComputedTiming();
        endTime === Infinity ? animation.cancel() : animation.finish();
      } catch {
        animation.cancel();
      }
    }
    for (const drawing of document.querySelectorAll("svg")) {
      if (!drawing.ownerSVGElement && drawing.pauseAnimations) {
        drawing.pauseAnimations();
        drawing.setCurrentTime(0);
      }
    }
  };

  const known = new Map();
  const brush = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const paint = (color) => {
    if (!known.has(color)) {
      brush.clearRect(0, 0, 1, 1);
      brush.fillStyle = color;
      brush.fillRect(0, 0, 1, 1);
      const [red, green, blue, alpha] = brush.getImageData(0, 0, 1, 1).data;
      known.set(color, alpha ? `#${[red, green, blue].map((part) => part.toString(16).padStart(2, "0")).join("")}` : "");
    }
    return known.get(color);
  };

  const TYPED = new Set(["INPUT", "TEXTAREA", "SELECT"]);
  const DRAWN = new Set(["IMG", "SVG", "CANVAS", "VIDEO", "PICTURE"]);
  const ownText = (element, name) => {
    let text = "";
    if (name === "SELECT") text = element.selectedOptions[0]?.text ?? "";
    else if (TYPED.has(name)) {
      const bare = ["checkbox", "radio", "color", "range", "file", "image", "hidden"].includes(element.type);
      text = bare ? "" : element.type === "password" ? element.placeholder : element.value || element.placeholder || "";
    } else for (const node of element.childNodes) if (node.nodeType === 3) text += ` ${node.data}`;
    return text.slice(0, 4 * LIMITS.text).replace(/\s+/g, " ").trim().slice(0, LIMITS.text);
  };

  const range = document.createRange();
  const ownExtent = (element) => {
    let [left, right] = [Infinity, -Infinity];
    for (const node of element.childNodes) {
      if (node.nodeType !== 3 || !node.data.trim()) continue;
      range.selectNodeContents(node);
      const box = range.getBoundingClientRect();
      [left, right] = [min(left, box.left), max(right, box.right)];
    }
    return right > left ? [left + window.scrollX, right - left] : [0, 0];
  };

  const blocks = (height) => {
    const found = [];
    const walker = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_ELEMENT);
    let element = document.documentElement;
    const next = (inside) => {
      if (inside && walker.firstChild()) return walker.currentNode;
      while (!walker.nextSibling()) if (!walker.parentNode()) return null;
      return walker.currentNode;
    };
    for (let seen = 0; element && seen < LIMITS.elements && found.length < LIMITS.blocks; seen++) {
      const style = styleOf(element);
      if (style.display === "none" || +style.opacity === 0) {
        element = next(false);
        continue;
      }
      const name = element.tagName.toUpperCase();
      const box = element.getBoundingClientRect();
      const [x, y] = [box.left + window.scrollX, box.top + window.scrollY];
      const inside = box.width > 0 && box.height > 0 && x < LIMITS.width && y < height && x + box.width > 0 && y + box.height > 0;
      if (inside && style.visibility === "visible") {
        const image = DRAWN.has(name) || style.backgroundImage.includes("url(");
        const text = DRAWN.has(name) ? "" : ownText(element, name);
        const background = paint(style.backgroundColor);
        if (text || image || background || TYPED.has(name) || name === "BUTTON") {
          const [textX, textWidth] = text && !TYPED.has(name) ? ownExtent(element) : [0, 0];
          found.push({
            tag: element.tagName.toLowerCase().slice(0, 40), text,
            x: round(x * 100) / 100, y: round(y * 100) / 100,
            width: round(box.width * 100) / 100, height: round(box.height * 100) / 100,
            color: paint(style.color) || "#000000", background,
            font_size: round(parseFloat(style.fontSize) * 100) / 100, bold: +style.fontWeight >= 600, image,
            text_x: round(textX * 100) / 100, text_width: round(textWidth * 100) / 100,
          });
        }
      }
      element = next(name !== "SVG" && name !== "SELECT");
    }
    return found;
  };

  const settle = async () => {
    await runTimers();
    await atMost(document.fonts.ready, 2000);
    await atMost(Promise.all([...document.images].slice(0, 500).map((image) => image.decode().catch(() => {}))), 2000);
    const still = new CSSStyleSheet();
    still.replaceSync("*, ::before, ::after { caret-color: transparent !important; scroll-behavior: auto !important }");
    document.adoptedStyleSheets = [...document.adoptedStyleSheets, still];
    stop(); // any navigation in progress
    // Whether a focused field has a focus ring depends on the driver.
    if (document.activeElement instanceof HTMLElement) blur(document.activeElement);
    window.scrollTo(0, 0);
    endAnimations();
    // The page's size as in Firefox's own full-page screenshot: in quirks mode it may be less than the window's.
    // A page of height 0 may still show elements that are fixed to the window.
    const height = min(LIMITS.height, document.documentElement.scrollHeight);
    return stringify({ height, blocks: blocks(height || LIMITS.window) });
  };
  Object.defineProperty(window, NAME, { value: settle });
})
