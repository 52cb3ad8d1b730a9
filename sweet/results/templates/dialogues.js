"use strict";
// The table and the reader of the page of dialogues. The data is in script elements as zlib in base64: `rows` for the
// table, `chunkN` for every so many dialogues. Only the rows in view are elements; a chunk is opened when one of its
// dialogues is read or searched. Values of rows are drawn as text; dialogues are HTML that was escaped when written.
(() => {
  const BEYOND = 20; // rows that are drawn above and below those in view
  const KEPT = 4; // chunks that stay open
  const PAUSE = 200; // milliseconds between two drawings during a search
  const NUMBERS = new Set(["reward", "tests", "turns", "tokens", "seconds"]);
  const field = (id) => document.getElementById(id);
  const list = field("list"), head = document.querySelector("#table tr"), body = document.querySelector("#table tbody");
  const loaded = new Promise((done) => addEventListener("DOMContentLoaded", done));
  const say = (text) => { field("problem").textContent = text; field("problem").hidden = !text; };

  const open = async (name) => {
    if (!field(name)) await loaded;
    const packed = Uint8Array.from(atob(field(name).textContent), (character) => character.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  };

  let rows = [], columns = [], together = 1; // a row: its values by column, and its number
  let shown = [], current = null; // the rows that pass the filters, in their order; the row that is read
  let sorted = null, down = false;
  let words = [], found = null, search = 0; // `found`: numbers of the rows with all words; `search` counts searches
  const chunks = new Map();

  const dialogues = async (number) => {
    let chunk = chunks.get(number);
    if (!chunk) {
      chunk = await open(`chunk${number}`);
      if (chunks.size >= KEPT) chunks.delete(chunks.keys().next().value);
      chunks.set(number, chunk);
    }
    return chunk;
  };

  // The table

  const value = (row, key) => {
    const known = row[key];
    if (key === "tests") return known ? Number(known.split("/")[0]) / Number(known.split("/")[1]) : null;
    return known === "" ? null : known;
  };
  const worded = (key, known) => {
    if (known === null || known === "") return NUMBERS.has(key) ? "–" : "";
    if (key === "reward") return known.toFixed(2);
    if (key === "seconds") return known.toFixed(1);
    return typeof known === "number" ? known.toLocaleString("en") : known;
  };
  const element = (tag, text, classes) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (classes) made.className = classes;
    return made;
  };

  const drawHead = () => {
    head.replaceChildren(...columns.map(([key, title]) => {
      const cell = element("th", undefined, key + (NUMBERS.has(key) ? " numeric" : ""));
      cell.scope = "col";
      cell.ariaSort = key !== sorted ? "none" : down ? "descending" : "ascending";
      const button = element("button", title + (key !== sorted ? "" : down ? " ▼" : " ▲"));
      button.type = "button";
      button.addEventListener("click", () => {
        if (sorted === key && down) [sorted, down] = [null, false];
        else [sorted, down] = [key, sorted === key];
        drawHead();
        arrange();
      });
      cell.append(button);
      return cell;
    }));
  };

  const drawnRow = (row, position) => {
    const line = element("tr", undefined, row === current ? "current" : "");
    line.dataset.number = row.number;
    line.ariaRowIndex = position + 2;
    for (const [key] of columns) {
      const text = worded(key, row[key]);
      const cell = element("td", key === "id" ? undefined : text, key + (NUMBERS.has(key) ? " numeric" : ""));
      if (key === "outcome") cell.classList.add(text === "passed" || text === "failed" ? text : "other");
      if (key === "id") {
        const link = element("a", text);
        link.href = "#" + encodeURIComponent(text);
        cell.append(link);
      } else if (key === "request") cell.title = text;
      line.append(cell);
    }
    return line;
  };

  let height = 30; // of a row, until the first is drawn
  const blank = (rows) => {
    const line = element("tr", undefined, "blank");
    line.style.height = `${rows * height}px`;
    line.ariaHidden = true;
    return line;
  };
  const draw = () => {
    const first = Math.max(Math.floor(list.scrollTop / height) - BEYOND, 0);
    const last = Math.min(Math.ceil((list.scrollTop + list.clientHeight) / height) + BEYOND, shown.length);
    const drawn = shown.slice(first, last).map((row, index) => drawnRow(row, first + index));
    body.replaceChildren(blank(Math.min(first, shown.length)), ...drawn, blank(Math.max(shown.length - last, 0)));
    field("table").ariaRowCount = shown.length + 1;
    const real = drawn.length ? drawn[0].getBoundingClientRect().height : 0;
    if (real > 0 && Math.abs(real - height) > 0.01) { height = real; draw(); }
  };
  let waiting = false;
  const drawSoon = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(); });
  };

  // Filters and order

  const number = (id, missing) => (field(id).value === "" ? missing : Number(field(id).value));
  const arrange = () => {
    const outcome = field("outcome").value, task = field("task").value.toLowerCase(), fault = field("fault").checked;
    const least = number("least", -Infinity), most = number("most", Infinity), turns = number("turns", -Infinity);
    const bounded = least !== -Infinity || most !== Infinity;
    shown = rows.filter((row) =>
      (!outcome || row.outcome === outcome) &&
      (!bounded || (row.reward !== null && row.reward >= least && row.reward <= most)) &&
      row.turns >= turns && (!task || row.task.toLowerCase().includes(task)) && (!fault || row.fault) &&
      (found === null || found.has(row.number)));
    if (sorted !== null) {
      const order = (a, b) => {
        const [left, right] = [value(a, sorted), value(b, sorted)];
        if (left === null || right === null) return (left === null) - (right === null) || a.number - b.number;
        const way = typeof left === "string" ? left.localeCompare(right, "en", {numeric: true}) : left - right;
        return (down ? -way : way) || a.number - b.number;
      };
      shown.sort(order);
    }
    tell();
    draw();
  };
  const tell = (searched) => {
    const parts = [`${shown.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")}`];
    const scored = shown.filter((row) => row.reward !== null);
    if (scored.length) {
      const passed = shown.filter((row) => row.outcome === "passed").length;
      parts.push(`${passed.toLocaleString("en")} passed`);
      parts.push(`mean reward ${(scored.reduce((sum, row) => sum + row.reward, 0) / scored.length).toFixed(3)}`);
    }
    if (searched !== undefined) parts.push(`${Math.floor(100 * searched)} % searched`);
    field("count").textContent = parts.join(" · ");
  };

  // What the text between the tags of escaped HTML says: < and > are tags, for those of a text are entities.
  const escaped = (text) => text.replace(/[&<>"']/g, (found) => ({
    "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;",
  })[found]);
  const text = (html) => html.replace(/<\/?span[^>]*>/g, "").replace(/<[^>]*>/g, " ").toLowerCase();

  const seek = async () => {
    const mine = ++search;
    words = [...field("search").value.toLowerCase().matchAll(/"([^"]+)"|[^\s"]+/g)].map((hit) => hit[1] ?? hit[0]);
    found = words.length ? new Set() : null;
    if (found === null) { arrange(); return; }
    const wanted = words.map(escaped), number = Math.ceil(rows.length / together);
    let drawn = Date.now();
    arrange();
    for (let chunk = 0; chunk < number; chunk++) {
      const some = chunks.get(chunk) || await open(`chunk${chunk}`);
      if (mine !== search) return;
      some.forEach((html, index) => {
        const row = rows[chunk * together + index];
        const whole = text(html) + " " + escaped(row.request).toLowerCase();
        if (wanted.every((word) => whole.includes(word))) found.add(row.number);
      });
      if (Date.now() - drawn > PAUSE) {
        drawn = Date.now();
        arrange();
        tell((chunk + 1) / number);
      }
    }
    arrange();
    if (current) mark();
  };

  // The reader

  const mark = () => {
    const reader = field("dialogue");
    for (const old of reader.querySelectorAll("mark")) old.replaceWith(old.textContent);
    reader.normalize();
    if (!words.length) return;
    const literal = words.map((word) => word.replace(/[.*+?^${}()|[\]\\\/-]/g, "\\$&"));
    const hit = new RegExp(literal.join("|"), "gi");
    const walk = document.createTreeWalker(reader, NodeFilter.SHOW_TEXT), nodes = [];
    while (walk.nextNode()) nodes.push(walk.currentNode);
    for (const node of nodes) {
      const pieces = [];
      let end = 0;
      for (const {0: part, index} of node.data.matchAll(hit)) {
        pieces.push(node.data.slice(end, index), element("mark", part));
        end = index + part.length;
      }
      if (pieces.length) node.replaceWith(...pieces, node.data.slice(end));
    }
    const first = reader.querySelector("mark");
    for (const hit of reader.querySelectorAll("mark")) {
      for (let part = hit.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
    }
    if (first) first.scrollIntoView({block: "center"});
  };

  const read = async (row) => {
    current = row;
    document.body.classList.add("reading");
    field("reader").hidden = false;
    const top = shown.indexOf(row) * height;
    if (top >= 0 && (top < list.scrollTop || top + 2 * height > list.scrollTop + list.clientHeight))
      list.scrollTop = top - list.clientHeight / 2;
    draw();
    try {
      const chunk = await dialogues(Math.floor(row.number / together));
      if (current !== row) return;
      field("dialogue").innerHTML = chunk[row.number % together];
      field("dialogue").firstElementChild.open = true;
      field("reader").scrollTop = 0;
      mark();
    } catch (error) {
      say(`This dialogue cannot be opened: ${error.message}`);
    }
    const position = shown.indexOf(row);
    field("before").disabled = position <= 0;
    field("after").disabled = position < 0 || position + 1 >= shown.length;
  };
  const close = () => {
    current = null;
    field("reader").hidden = true;
    field("dialogue").replaceChildren();
    document.body.classList.remove("reading");
    history.replaceState(null, "", location.pathname + location.search);
    draw();
    list.focus();
  };
  const name = (row) => `#${encodeURIComponent(row.id)}`;
  const go = (row) => {
    if (location.hash === name(row)) read(row);
    else location.hash = name(row);
  };
  const step = (by) => {
    const position = current ? shown.indexOf(current) + by : 0;
    if (position >= 0 && position < shown.length) go(shown[position]);
  };
  const follow = () => {
    const row = location.hash.length > 1 ? rows.find((one) => name(one) === location.hash) : null;
    if (row) read(row);
    else if (current) close();
  };

  const start = async () => {
    if (typeof DecompressionStream === "undefined") {
      say("This browser is too old for this page: it has no DecompressionStream.");
      return;
    }
    const data = await open("rows");
    together = data.together;
    rows = data.rows.map((values, number) => ({
      ...Object.fromEntries(data.columns.map(([key], index) => [key, values[index]])), number,
    }));
    columns = data.columns.filter(([key]) => rows.some((row) => row[key] !== null && row[key] !== ""));
    if (rows.every((row) => row.id.startsWith(row.task))) columns = columns.filter(([key]) => key !== "task");
    for (const outcome of [...new Set(rows.map((row) => row.outcome))].sort()) {
      const option = element("option", outcome);
      option.value = outcome;
      field("outcome").append(option);
    }
    drawHead();
    arrange();
    follow();
    let later = 0;
    const sought = () => { clearTimeout(later); later = setTimeout(() => seek().catch((error) => say(error.message)), 150); };
    field("search").addEventListener("input", sought);
    field("filters").addEventListener("input", (event) => { if (event.target !== field("search")) arrange(); });
    field("filters").addEventListener("submit", (event) => event.preventDefault());
    field("filters").addEventListener("reset", () => setTimeout(() => { sorted = null; drawHead(); sought(); }));
    list.addEventListener("scroll", drawSoon, {passive: true});
    addEventListener("resize", drawSoon);
    addEventListener("hashchange", follow);
    body.addEventListener("click", (event) => {
      const line = event.target.closest("tr[data-number]");
      if (line) { event.preventDefault(); go(rows[Number(line.dataset.number)]); }
    });
    field("before").addEventListener("click", () => step(-1));
    field("after").addEventListener("click", () => step(1));
    field("close").addEventListener("click", close);
    field("unfold").addEventListener("click", () => {
      const parts = [...field("dialogue").querySelectorAll("details")];
      const all = parts.every((part) => part.open);
      parts.forEach((part, index) => { part.open = !all || index === 0; });
    });
    addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select")) return;
      if (event.key === "n" || event.key === "j") step(1);
      else if (event.key === "p" || event.key === "k") step(-1);
      else if (event.key === "Escape" && current) close();
      else if (event.key === "/") { event.preventDefault(); field("search").focus(); }
    });
  };
  start().catch((error) => say(`This page is damaged: ${error.message}`));
})();
