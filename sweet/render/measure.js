// Measures a page that has loaded: waits until its timers have run (see `settle.js`) and what it loads lazily is there,
// scrolls through it if it observes what is in view, ends its animations, and returns, as JSON, its height and its visible
// blocks. It runs in a world of its own, which shares the document with the page, but no
// object: whatever the page has done to the prototypes, to `window` or to `document`, the functions here are Firefox's
// own. Of the page's world it calls one function, and takes a boolean from it.
((NAME, LIMITS) => {
  "use strict";
  const page = window.wrappedJSObject;
  const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
  // Observers are told of what is in view when a frame is drawn.
  const frames = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0))));
  const atMost = (promise, milliseconds) => Promise.race([promise, pause(milliseconds)]).catch(() => {});

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

  // The colours "#rrggbb" of computed values, "" for a transparent one. A canvas converts those of other notations.
  const known = new Map([["rgba(0, 0, 0, 0)", ""]]);
  const OPAQUE = /^rgb\((\d+), (\d+), (\d+)\)$/;
  const hexadecimal = (parts) => `#${parts.map((part) => (+part).toString(16).padStart(2, "0")).join("")}`;
  let brush = null;
  const drawn = (color) => {
    brush ??= new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    brush.clearRect(0, 0, 1, 1);
    brush.fillStyle = color;
    brush.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = brush.getImageData(0, 0, 1, 1).data;
    return alpha ? hexadecimal([red, green, blue]) : "";
  };
  const paint = (color) => {
    if (!known.has(color)) {
      const opaque = OPAQUE.exec(color);
      known.set(color, opaque ? hexadecimal(opaque.slice(1)) : drawn(color));
    }
    return known.get(color);
  };

  // Lengths are rounded to hundredths, and kept within what the parser accepts.
  const length = (value) => Math.min(LIMITS.length, Math.max(-LIMITS.length, Math.round(value * 100) / 100 || 0));
  const collapsed = (text) =>
    text.slice(0, 4 * LIMITS.text).replace(/\s+/g, " ").trim().slice(0, LIMITS.text).toWellFormed();

  const TYPED = new Set(["INPUT", "TEXTAREA", "SELECT"]);
  const BARE = new Set(["checkbox", "radio", "color", "range", "file", "image", "hidden"]);
  const DRAWN = new Set(["IMG", "SVG", "CANVAS", "VIDEO", "PICTURE"]);
  const typedText = (element, name) => {
    if (name === "SELECT") return collapsed(element.selectedOptions[0]?.text ?? "");
    if (BARE.has(element.type)) return "";
    return collapsed(element.type === "password" ? element.placeholder : element.value || element.placeholder || "");
  };

  // The text of an element's own text nodes, its left edge and its width. A node without a box is not shown: that of an
  // element whose shadow tree has no slot for it, or the fallback of a frame.
  const range = document.createRange();
  let nodes = 0;
  const ownText = (element) => {
    let [text, left, right] = ["", Infinity, -Infinity];
    for (let node = element.firstChild; node && text.length < 4 * LIMITS.text; node = node.nextSibling) {
      if (++nodes > LIMITS.nodes) break;
      if (node.nodeType !== 3) continue;
      const part = node.substringData(0, 4 * LIMITS.text);
      if (part.trim()) {
        range.selectNodeContents(node);
        const box = range.getBoundingClientRect();
        if (box.width <= 0 && box.height <= 0) continue;
        [left, right] = [Math.min(left, box.left), Math.max(right, box.right)];
      }
      text += ` ${part}`;
    }
    const extent = right > left ? [left + window.scrollX, right - left] : [0, 0];
    return [collapsed(text), ...extent];
  };

  const blocks = (height) => {
    const found = [];
    const walker = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_ELEMENT);
    let element = document.documentElement;
    let letters = 0;
    const next = (inside) => {
      if (inside && walker.firstChild()) return walker.currentNode;
      while (!walker.nextSibling()) if (!walker.parentNode()) return null;
      return walker.currentNode;
    };
    for (let seen = 0; element && seen < LIMITS.elements && found.length < LIMITS.blocks; seen++) {
      const style = getComputedStyle(element);
      if (style.display === "none" || +style.opacity === 0) {
        element = next(false);
        continue;
      }
      const name = element.tagName.slice(0, 40).toUpperCase();
      const box = element.getBoundingClientRect();
      const [x, y] = [box.left + window.scrollX, box.top + window.scrollY];
      const inside = box.width > 0 && box.height > 0 && x < LIMITS.width && y < height && x + box.width > 0 && y + box.height > 0;
      if (inside && style.visibility === "visible") {
        const image = DRAWN.has(name) || style.backgroundImage.includes("url(");
        const typed = TYPED.has(name);
        const [text, textX, textWidth] = DRAWN.has(name) ? ["", 0, 0] : typed ? [typedText(element, name), 0, 0] : ownText(element);
        const background = paint(style.backgroundColor);
        letters += text.length;
        if (letters > LIMITS.letters || nodes > LIMITS.nodes) break;
        if (text || image || background || typed || name === "BUTTON")
          found.push({
            tag: element.tagName.toLowerCase().slice(0, 40).toWellFormed(), text,
            x: length(x), y: length(y), width: length(box.width), height: length(box.height),
            // Letters have the fill colour, which is the colour unless it is set; in a gradient it is transparent.
            color: paint(style.webkitTextFillColor) || paint(style.color) || "#000000", background,
            font_size: length(parseFloat(style.fontSize)), bold: +style.fontWeight >= 600, image,
            text_x: text ? length(textX) : 0, text_width: text ? length(textWidth) : 0,
          });
      }
      element = next(name !== "SVG" && name !== "SELECT");
    }
    return found;
  };

  const settled = async () => {
    while (page[NAME]() !== true) await pause(1);
    for (const lazy of document.querySelectorAll("[loading=lazy i]")) lazy.loading = "eager";
    await atMost(document.fonts.ready, LIMITS.loading);
    const pictures = [...document.images].slice(0, 500);
    await atMost(Promise.all(pictures.map((image) => image.decode().catch(() => {}))), LIMITS.loading);
  };
  // Shows each part of the page that the screenshot has, and runs what the page does then; and goes back to its top.
  const show = async (top) => {
    window.scrollTo({ left: 0, top, behavior: "instant" });
    await atMost(frames(), LIMITS.loading);
    await settled();
  };
  const scrollThrough = async () => {
    const height = () => Math.min(LIMITS.height, document.documentElement?.scrollHeight ?? 0);
    for (let top = 0; top < height(); top += LIMITS.window) await show(top);
    await show(0);
  };

  return async () => {
    await settled();
    if (page[NAME]("observes") === true) await scrollThrough();
    window.stop(); // any navigation in progress
    // Whether a focused field has a focus ring depends on the driver.
    if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
    window.scrollTo({ left: 0, top: 0, behavior: "instant" });
    endAnimations();
    const root = document.documentElement;
    if (root === null) return JSON.stringify({ height: 0, blocks: [] }); // the page removed it: nothing is shown
    // The page's size as in Firefox's own full-page screenshot: in quirks mode it may be less than the window's.
    // A page of height 0 may still show elements that are fixed to the window.
    const height = Math.min(LIMITS.height, root.scrollHeight);
    return JSON.stringify({ height, blocks: blocks(height || LIMITS.window) });
  };
})
