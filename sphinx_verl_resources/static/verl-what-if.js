// The form of the directive verl-what-if. It computes nothing: every figure stands in a grid that Python has
// computed with the estimator when the page was built, see views/what_if.py. Sizes are tenths of a GiB.
"use strict";

(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const FORM_CLASS = "verl-what-if";
  const GRID_CLASS = "verl-grid-";
  // Before the names in the address, where the tables of runs keep some of the same name.
  const PREFIX = "if-";
  // Of a line of the drawing, in units of its font.
  const LINE = 2.6;
  const BAR = 1;

  // -- making elements

  function add(parent, name, attributes = {}, text = "") {
    const inSvg = name === "svg" || parent.namespaceURI === SVG;
    const made = inSvg ? document.createElementNS(SVG, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      made.setAttribute(key, value);
    }
    made.textContent = text;
    parent.append(made);
    return made;
  }

  // -- words

  function fill(message, values) {
    return message.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
  }

  function number(tenths) {
    const digits = { minimumFractionDigits: 1, maximumFractionDigits: 1 };
    return (tenths / 10).toLocaleString("en-US", digits);
  }

  // Rounded down, so that what is shown fits.
  function twoDigits(count) {
    const step = 10 ** Math.max(0, String(count).length - 2);
    return (Math.floor(count / step) * step).toLocaleString("en-US");
  }

  function gib(grid, tenths) {
    return fill(grid.words.gib, { size: number(tenths) });
  }

  // -- looking up

  // By the name of a field, the index of what is chosen.
  function cellOf(grid, chosen) {
    const runs = grid.choices.filter((choice) => choice.name !== "gpu");
    const run = runs.reduce((index, choice) => index * choice.values.length + chosen[choice.name], 0);
    return run * (Math.max(...grid.gpus) + 1) + grid.gpus[chosen.gpu];
  }

  function lookUp(grid, chosen) {
    const cell = cellOf(grid, chosen);
    const found = Object.fromEntries(
      ["verdict", "peak", "low", "high", "tokens", "binding"].map((name) => [name, grid.cells[name][cell]]),
    );
    const phases = grid.phases
      .map((label, index) => ({ label, total: grid.cells.totals[index][cell], isPeak: index === found.binding }))
      .filter((phase) => phase.total > 0);
    return { ...found, phases, offered: grid.offered[chosen.gpu] };
  }

  // -- what the address says

  function fromAddress(grid) {
    const asked = new URLSearchParams(window.location.search);
    const chosen = {};
    const strange = [];
    for (const { name, values, first } of grid.choices) {
      const text = asked.get(PREFIX + name);
      const index = values.findIndex((value) => value.toLowerCase() === (text ?? "").trim().toLowerCase());
      chosen[name] = index < 0 ? first : index;
      if (text !== null && index < 0) {
        strange.push(`${PREFIX}${name}=${text.slice(0, 80)}`);
      }
    }
    return { chosen, strange };
  }

  function toAddress(grid, chosen) {
    const address = new URL(window.location.href);
    for (const { name, values } of grid.choices) {
      address.searchParams.set(PREFIX + name, values[chosen[name]]);
    }
    try {
      window.history.replaceState(window.history.state, "", address);
    } catch {
      // A page that was opened from a folder may not change its address; it works without.
    }
  }

  // -- showing what was found

  function showAnswer(place, grid, found) {
    place.replaceChildren();
    const { words } = grid;
    const first = add(place, "p", { class: "verl-answer" });
    const known = grid.verdicts[found.verdict];
    if (!known) {
      const reason = grid.reasons[found.verdict - grid.verdicts.length];
      add(first, "strong", {}, words.outside);
      first.append(` ${fill(words.noEstimate, { reason })}`);
      return;
    }
    const range = fill(words.range, { low: number(found.low), high: gib(grid, found.high) });
    const sizes = {
      peak: gib(grid, found.peak),
      low: gib(grid, found.low),
      high: gib(grid, found.high),
      range,
      capacity: gib(grid, found.offered),
    };
    const [before, between, after] = words.answer.split(/\{verdict\}|\{reason\}/);
    first.append(before);
    add(first, "strong", {}, known[0]);
    first.append(between, fill(known[1], sizes), after);
    if (found.tokens) {
      first.append(` ${fill(words.fitsUpTo, { tokens: twoDigits(found.tokens) })}`);
    }
    const peakPhase = found.phases.find((phase) => phase.isPeak);
    add(place, "p", {}, fill(words.peakPhase, { phase: peakPhase.label }));
  }

  function sizeText(grid, found, phase) {
    const size = gib(grid, phase.total);
    const over = phase.total - found.offered;
    return over > 0 ? fill(grid.words.over, { size, over: number(over) }) : size;
  }

  function showDrawing(place, grid, found, id) {
    place.replaceChildren();
    const { words, colours } = grid;
    if (!found.phases.length) {
      return;
    }
    const sizes = found.phases
      .map((phase) => fill(words.part, { part: phase.label, size: sizeText(grid, found, phase) }))
      .join(words.between);
    const offers = fill(words.offers, { capacity: gib(grid, found.offered) });
    const isOver = found.phases.some((phase) => phase.total > found.offered);
    const title = fill(words.part, { part: `${words.caption},`, size: offers });
    const svg = add(place, "svg", {
      role: "img",
      width: "100%",
      height: `${LINE * (found.phases.length + (isOver ? 1.2 : 0.7))}em`,
      fill: "currentColor",
      "aria-label": fill(words.drawing, { title, sizes }),
    });
    addHatching(svg, id, colours.over);
    const scale = 100 / Math.max(found.offered, ...found.phases.map((phase) => phase.total));
    const edge = found.offered * scale;
    found.phases.forEach((phase, index) => {
      const top = LINE * index;
      const weight = phase.isPeak ? "bold" : "normal";
      const text = { y: `${top + 1}em`, "font-weight": weight };
      add(svg, "text", { ...text, x: "0" }, phase.label);
      add(svg, "text", { ...text, x: "100%", "text-anchor": "end" }, sizeText(grid, found, phase));
      const bar = { y: `${top + 1.3}em`, height: `${BAR}em` };
      const inside = Math.min(phase.total * scale, edge);
      add(svg, "rect", { ...bar, x: "0", width: `${inside}%`, fill: colours.bar });
      if (phase.total > found.offered) {
        const width = `${phase.total * scale - edge}%`;
        add(svg, "rect", { ...bar, x: `${edge}%`, width, fill: `url(#${id})`, stroke: colours.over });
      }
      // Interrupted, so that it crosses no label.
      const line = { x1: `${edge}%`, x2: `${edge}%`, y1: `${top + 1.15}em`, y2: `${top + 1.45 + BAR}em` };
      add(svg, "line", { ...line, stroke: "currentColor", "stroke-width": "3" });
    });
    const bottom = LINE * found.phases.length;
    const anchor = edge > 50 ? "end" : "start";
    add(svg, "text", { x: `${edge}%`, y: `${bottom + 0.9}em`, "text-anchor": anchor }, offers);
    if (isOver) {
      add(svg, "text", { x: "0", y: `${bottom + 2.3}em` }, words.hatched);
    }
  }

  function addHatching(svg, id, colour) {
    const tile = { id, width: "6", height: "6", patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" };
    const pattern = add(add(svg, "defs"), "pattern", tile);
    add(pattern, "rect", { width: "3", height: "6", fill: colour });
  }

  function showTable(place, grid, found) {
    place.replaceChildren();
    if (!found.phases.length) {
      return;
    }
    const { words } = grid;
    const table = add(place, "table", { class: "docutils table verl-what-if-phases" });
    add(table, "caption", {}, words.caption);
    const head = add(add(table, "thead"), "tr");
    add(head, "th", { scope: "col", class: "head" }, words.phase);
    add(head, "th", { scope: "col", class: "head" }, words.total);
    const body = add(table, "tbody");
    for (const phase of found.phases) {
      const row = add(body, "tr");
      const label = phase.isPeak ? fill(words.peakRow, { phase: phase.label }) : phase.label;
      add(row, "th", { scope: "row" }, label);
      add(row, "td", { class: "num" }, number(phase.total));
    }
  }

  // -- the form

  function addField(fields, choice, chosen, id) {
    const field = add(fields, "div", { class: "verl-what-if-field" });
    add(field, "label", { for: id }, choice.label);
    const select = add(field, "select", { id, name: choice.name });
    choice.values.forEach((value, index) => add(select, "option", { value }, choice.labels[index]));
    select.selectedIndex = chosen;
    return select;
  }

  function addForm(container, grid, id, ownsAddress) {
    const { words } = grid;
    const { chosen, strange } = ownsAddress ? fromAddress(grid) : { chosen: {}, strange: [] };
    // What a server has written stays, for print.
    const form = add(container, "form", { class: "verl-what-if-form" });
    const fields = add(form, "fieldset");
    add(fields, "legend", {}, words.title);
    const selects = grid.choices.map((choice) =>
      addField(fields, choice, chosen[choice.name] ?? choice.first, `${id}-${choice.name}`),
    );
    const status = add(form, "div", { role: "status" });
    const problem = add(status, "p", { class: "verl-what-if-problem" });
    const answer = add(status, "div");
    const drawing = add(form, "div", { class: "verl-chart" });
    const table = add(form, "div");
    add(form, "p", { class: "verl-legend" }, words.fixed);
    add(form, "pre", {}, words.settings);

    function show() {
      const now = Object.fromEntries(selects.map((select) => [select.name, select.selectedIndex]));
      const found = lookUp(grid, now);
      showAnswer(answer, grid, found);
      showDrawing(drawing, grid, found, `${id}-over`);
      showTable(table, grid, found);
      return now;
    }

    problem.textContent = strange.length ? fill(words.strange, { asked: strange.join(", ") }) : "";
    problem.hidden = !strange.length;
    show();
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("change", () => {
      const now = show();
      problem.hidden = true;
      if (ownsAddress) {
        toAddress(grid, now);
      }
    });
    container.classList.add("verl-what-if-live");
  }

  function start() {
    document.querySelectorAll(`.${FORM_CLASS}`).forEach((container, index) => {
      const named = [...container.classList].find((name) => name.startsWith(GRID_CLASS));
      const grid = named && globalThis.verlWhatIf?.[named.slice(GRID_CLASS.length)];
      if (grid) {
        addForm(container, grid, `${FORM_CLASS}-${index + 1}`, index === 0);
      }
    });
  }

  if (document.readyState === "loading") {
    document.addEventListener("DOMContentLoaded", start);
  } else {
    start();
  }
})();
