// Runs in every page before the page's own scripts, so that the same page always renders to the same image: the clock is
// stopped, random numbers are seeded, timers wait. The function under NAME, first called once the page has loaded, runs
// the timers due within the first virtual second in order, and returns whether it has finished; the call after that runs
// those that have come since. With "observes" it returns whether the page observes what is in view. This world belongs to
// the page, which can change everything in it: nothing that is reported comes from here (see `measure.js`).
((NAME, LIMITS) => {
  "use strict";
  const START = Date.UTC(2024, 0, 1, 12);
  const { max, floor, imul } = Math;
  const RealDate = Date;
  const realTimeout = window.setTimeout.bind(window);
  const microtask = window.queueMicrotask.bind(window);
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
  const reads = (type, name, value) => {
    if (window[type]) Object.defineProperty(window[type].prototype, name, { configurable: true, get: value });
  };
  define(Performance.prototype, "now", () => elapsed);
  reads("Performance", "timeOrigin", () => START);
  reads("Event", "timeStamp", () => elapsed);
  reads("AnimationTimeline", "currentTime", () => elapsed);
  reads("Document", "lastModified", () => "01/01/2024 12:00:00");
  for (const [name, { get }] of Object.entries(Object.getOwnPropertyDescriptors(PerformanceTiming.prototype)))
    if (get) reads("PerformanceTiming", name, () => START);
  define(Performance.prototype, "toJSON", () => ({ timeOrigin: START }));
  define(PerformanceTiming.prototype, "toJSON", () => ({ navigationStart: START }));
  // Sizes are known only some time after a page has loaded.
  for (const name of ["transferSize", "encodedBodySize", "decodedBodySize"]) reads("PerformanceResourceTiming", name, () => 0);
  for (const type of [PerformanceResourceTiming, PerformanceNavigationTiming])
    define(type.prototype, "toJSON", function () {
      return { name: this.name, entryType: this.entryType, startTime: 0, duration: 0 };
    });
  const formats = Intl.DateTimeFormat.prototype;
  const { format } = Object.getOwnPropertyDescriptors(formats);
  Object.defineProperty(formats, "format", {
    configurable: true,
    get() {
      const form = format.get.call(this);
      return (date) => form(date === undefined ? START + elapsed : date);
    },
  });
  const { formatToParts } = formats;
  define(formats, "formatToParts", function (date) {
    return formatToParts.call(this, date === undefined ? START + elapsed : date);
  });
  window.File = new Proxy(File, {
    construct: (target, [parts, name, options], self) =>
      Reflect.construct(target, [parts, name, { lastModified: START + floor(elapsed), ...options }], self),
  });
  if (window.Temporal) {
    const { Instant } = Temporal;
    const now = () => Instant.fromEpochMilliseconds(START + floor(elapsed));
    const here = (zone) => now().toZonedDateTimeISO(zone ?? "UTC");
    define(Temporal.Now, "instant", now);
    define(Temporal.Now, "zonedDateTimeISO", here);
    define(Temporal.Now, "plainDateTimeISO", (zone) => here(zone).toPlainDateTime());
    define(Temporal.Now, "plainDateISO", (zone) => here(zone).toPlainDate());
    define(Temporal.Now, "plainTimeISO", (zone) => here(zone).toPlainTime());
  }

  // Names that the browser makes up.
  const UUID = "00000000-0000-4000-8000-000000000000";
  for (const type of ["NavigationHistoryEntry", "MediaStream", "MediaStreamTrack"]) reads(type, "id", () => UUID);
  reads("NavigationHistoryEntry", "key", () => UUID);
  if (window.crypto.randomUUID) define(Crypto.prototype, "randomUUID", () => UUID);

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
  const Controller = AbortController;
  define(AbortSignal, "timeout", (delay) => {
    const controller = new Controller();
    later(() => controller.abort(new DOMException("The operation timed out.", "TimeoutError")), delay, [], null);
    return controller.signal;
  });
  if (window.scheduler) {
    const task = (call, { delay, signal } = {}) =>
      new Promise((done, failed) => {
        const run = () => {
          if (signal?.aborted) return failed(signal.reason);
          try {
            done(call());
          } catch (error) {
            failed(error);
          }
        };
        later(run, delay, [], null);
      });
    define(Scheduler.prototype, "postTask", task);
    define(Scheduler.prototype, "yield", () => task(() => {}));
  }

  // Observers of what is in view, which may reveal it.
  let observes = false;
  const { observe } = IntersectionObserver.prototype;
  define(IntersectionObserver.prototype, "observe", function (...words) {
    observes = true;
    return observe.apply(this, words);
  });

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

  // Timers run in callbacks, not in promises, whose prototype a page may have changed.
  let finished = false;
  const runTimer = () => {
    let first = null;
    for (const [id, timer] of timers)
      if (timer.due <= LIMITS.virtual && (first === null || timer.due < timers.get(first).due)) first = id;
    if (first === null) return false;
    const timer = timers.get(first);
    elapsed = max(elapsed, timer.due);
    if (timer.every === null) timers.delete(first);
    else timer.due = elapsed + timer.every;
    try {
      typeof timer.call === "function" ? timer.call.apply(window, timer.words) : (0, eval)(String(timer.call));
    } catch {
      // an error in a timer does not stop the others
    }
    return true;
  };
  const runTimers = (count) => {
    let more = false;
    try {
      more = count < LIMITS.callbacks && runTimer();
    } catch {
      // the page has changed what the list of timers is made of
    }
    if (!more) {
      try {
        hideCarets();
      } catch {
        // the page has changed what a list is made of
      }
      finished = true;
    } else if (count % 16 === 0) realTimeout(() => runTimers(count + 1), 0);
    else microtask(() => runTimers(count + 1));
  };
  // Here, because not every version of Firefox lets another world adopt style sheets.
  const { apply } = Reflect;
  const Sheet = CSSStyleSheet;
  const { replaceSync } = Sheet.prototype;
  const adopted = Object.getOwnPropertyDescriptor(Document.prototype, "adoptedStyleSheets");
  let still = null;
  const hideCarets = () => {
    if (still) return;
    still = new Sheet();
    apply(replaceSync, still, ["*, ::before, ::after { caret-color: transparent !important; scroll-behavior: auto !important }"]);
    apply(adopted.set, document, [[...apply(adopted.get, document, []), still]]);
  };
  let running = false;
  const settle = (asked) => {
    if (asked === "observes") return observes;
    if (!running) {
      [running, finished] = [true, false];
      runTimers(0);
    }
    running = !finished;
    return finished;
  };
  Object.defineProperty(window, NAME, { value: settle });
})
