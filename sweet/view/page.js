"use strict";
(() => {
  const field = (id) => document.getElementById(id);
  const rows = [...document.querySelectorAll(".trajectory")];
  const outcomes = field("outcome");
  for (const name of [...new Set(rows.map((row) => row.dataset.outcome))].sort()) {
    const option = document.createElement("option");
    option.value = option.textContent = name;
    outcomes.append(option);
  }
  const texts = new Map();
  const text = (row) => {
    if (!texts.has(row)) texts.set(row, row.textContent.toLowerCase());
    return texts.get(row);
  };
  const update = () => {
    const words = field("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const below = field("below").value === "" ? Infinity : Number(field("below").value);
    const above = field("above").value === "" ? -Infinity : Number(field("above").value);
    const bounded = below !== Infinity || above !== -Infinity;
    let shown = 0;
    for (const row of rows) {
      const reward = row.dataset.reward === "" ? NaN : Number(row.dataset.reward);
      const fits =
        (!outcomes.value || row.dataset.outcome === outcomes.value) &&
        (!bounded || (reward < below && reward > above)) &&
        words.every((word) => text(row).includes(word));
      row.hidden = !fits;
      shown += fits;
    }
    field("count").textContent = `${shown} of ${rows.length}`;
  };
  field("filters").addEventListener("input", update);
  field("filters").addEventListener("submit", (event) => event.preventDefault());
  update();
})();
