// The form of the directive verl-what-if. It computes nothing: every answer stands in a grid that Python has
// made when the page was built, see views/what_if.py. Sizes are tenths of a GiB.
"use strict";

(() => {
  const FORM_CLASS = "verl-what-if";
  const GRID_CLASS = "verl-grid-";
  const RUNS_CLASS = "verl-what-if-runs";
  // Before the names in the address, where the tables of runs keep some of the same name.
  const PREFIX = "if-";
  // The index of the verdict "fits".
  const FITS = 0;

  // -- making elements

  function add(parent, name, attributes = {}, text = "") {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      made.setAttribute(key, value);
    }
    made.textContent = text;
    parent.append(made);
    return made;
  }

  // A list item with a bold title, and texts and elements behind it.
  function addItem(list, words, title, content) {
    const item = add(list, "li");
    for (const piece of words.item.split(/(\{title\}|\{text\})/)) {
      if (piece === "{title}") {
        add(item, "strong", {}, title);
      } else {
        item.append(...(piece === "{text}" ? content : [piece]));
      }
    }
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
  function runOf(grid, chosen) {
    const runs = grid.choices.filter((choice) => choice.name !== "gpu");
    return runs.reduce((index, choice) => index * choice.values.length + chosen[choice.name], 0);
  }

  function lookUp(grid, chosen) {
    const run = runOf(grid, chosen);
    const cell = run * (Math.max(...grid.gpus) + 1) + grid.gpus[chosen.gpu];
    const found = Object.fromEntries(Object.entries(grid.cells).map(([name, column]) => [name, column[cell]]));
    return { ...found, runs: grid.nearest[grid.evidence[chosen.gpu][run]] };
  }

  function commandOf(grid, chosen, found) {
    const indices = grid.commands[found.command].map((index) => {
      const [axis, lines] = grid.shared.at(index) ?? [];
      return index < 0 ? lines[chosen[axis]] : index;
    });
    return indices.map((index) => grid.lines[index]).join(" \\\n    ");
  }

  // The nearest choice of a field with which it fits, in the direction of a step; undefined without one.
  function nearestFit(grid, chosen, name, step) {
    const { values } = grid.choices.find((choice) => choice.name === name);
    for (let index = chosen[name] + step; index >= 0 && index < values.length; index += step) {
      if (lookUp(grid, { ...chosen, [name]: index }).verdict === FITS) {
        return index;
      }
    }
    return undefined;
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

  function showAnswer(place, grid, chosen, runLinks) {
    const isOpen = place.querySelector("details")?.open;
    place.replaceChildren();
    const { words } = grid;
    const found = lookUp(grid, chosen);
    const first = add(place, "p", { class: "verl-answer" });
    const list = add(place, "ul", { class: "verl-answer" });
    const verdict = grid.verdicts[found.verdict];
    add(first, "strong", {}, verdict ? fill(words.verdict, { verdict }) : words.outside);
    showRuns(list, grid, found, runLinks);
    if (!verdict) {
      const reason = grid.reasons[found.verdict - grid.verdicts.length];
      first.append(` ${fill(words.noEstimate, { reason })}`);
      return;
    }
    const sizes = { low: number(found.low), high: number(found.high), capacity: gib(grid, grid.offered[chosen.gpu]) };
    const names = { layout: grid.layouts[found.layout], phase: grid.phases[found.phase] };
    const sentences = [fill(words.figures, { ...sizes, ...names })];
    if (found.used) {
      sentences.push(fill(words.used, { count: found.used }));
    }
    if (found.tokens) {
      sentences.push(fill(words.fitsUpTo, { tokens: twoDigits(found.tokens) }));
    }
    addItem(list, words, words.estimated, [sentences.join(" ")]);
    addItem(list, words, words.trust, [grid.trusts[found.trust]]);
    addItem(list, words, words.host, [fill(words.perNode, { size: fill(words.gib, { size: found.host.toLocaleString("en-US") }) })]);
    if (found.verdict !== FITS) {
      showChanges(list, grid, chosen);
    }
    const details = add(place, "details", isOpen ? { open: "" } : {});
    add(details, "summary", {}, words.command);
    add(details, "pre", { tabindex: "0" }, commandOf(grid, chosen, found));
  }

  function showRuns(list, grid, found, runLinks) {
    const { words } = grid;
    if (!found.runs.length) {
      add(list, "li", {}, words.noRun);
    }
    words.evidence.forEach((title, word) => {
      const links = found.runs.filter((run) => grid.runs[run] === word).map((run) => runLinks[run].cloneNode(true));
      if (links.length) {
        addItem(list, words, title, links.flatMap((link, index) => (index ? [words.between, link] : [link])));
      }
    });
  }

  function showChanges(list, grid, chosen) {
    const { words } = grid;
    const value = (name) => grid.choices.find((choice) => choice.name === name);
    const label = (name, index) => value(name).labels[index];
    const ways = [
      ["response", -1, (index) => fill(words.changeResponse, { count: label("response", index) })],
      ["lora", 1, (index) => label("lora", index)],
      ["count", 1, (index) => label("count", index)],
    ].flatMap(([name, step, text]) => {
      const index = nearestFit(grid, chosen, name, step);
      return index === undefined ? [] : [text(index)];
    });
    const of = (name) => value(name).values[chosen[name]];
    const lora = of("lora") === "0" ? "" : fill(words.planLora, { rank: of("lora") });
    const asked = { model: of("model"), count: of("count"), gpu: of("gpu"), response: of("response"), lora };
    const command = document.createElement("code");
    command.textContent = fill(words.plan, asked);
    const [before, after] = words.changeMore.split("{command}");
    addItem(list, words, words.change, [ways.length ? `${ways.join(words.or)}. ` : "", before, command, after]);
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
    add(form, "p", { class: "verl-legend" }, words.fixed);
    const runLinks = [...container.querySelectorAll(`.${RUNS_CLASS} > p > *`)];

    function show() {
      const now = Object.fromEntries(selects.map((select) => [select.name, select.selectedIndex]));
      showAnswer(answer, grid, now, runLinks);
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
