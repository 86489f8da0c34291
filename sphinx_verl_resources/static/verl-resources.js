/*
 * Filters, sorts and shares the tables of runs.
 *
 * The page is complete without this script, which makes every control that it needs and so leaves none dead
 * where it does not run. It hides rows and moves them; it never writes again what the server has written. What
 * it knows of the runs, and every word that it shows, comes from the JSON at the end of the page.
 */
(() => {
  'use strict';

  const block = document.getElementById('verl-resources-page');
  if (!block) return;

  /** The values of the runs by the numbers of the facets, and every word that is shown; see page_data.py. */
  const { facets, runs: known, words } = JSON.parse(block.textContent);
  const RUN = 'verl-run-';
  const COLUMN = 'verl-col-';
  const SORT = 'sort';
  /** The number of a value that stands for all of them. */
  const ANY = -1;
  /** How long a button says that it has copied, in milliseconds. */
  const SAID = 2000;
  /** With more runs than this, only sections near the window are laid out. */
  const MANY = 100;
  /** Names up to this long stay in one piece. */
  const SHORT = 10;

  const tables = [...document.querySelectorAll('table.verl-runs')].filter((table) => table.tHead);
  if (!tables.length) return;

  const runs = collectRuns();
  const sections = [...document.querySelectorAll('section[id^="size-"]')].filter(isSizeSection);
  const groups = sections.map((section) => ({ element: section, ids: idsIn(section) }));
  const notes = tables.filter((table) => !sizeSection(table)).map(noneHere);
  const remarks = collectRemarks();
  const columns = collectColumns();
  const collator = makeCollator();
  /** The rows of each table as the server has ordered them, and how they are ordered now. */
  const orders = new Map(tables.map((table) => [table, { rows: [...table.tBodies[0].rows], now: '' }]));

  let bar = null;
  let state = readState();

  // ---------------------------------------------------------------- what is on the page

  /** By id, the values of each run and everything on the page that is about it. */
  function collectRuns() {
    const found = new Map();
    for (const element of document.querySelectorAll(`[class*="${RUN}"]`)) {
      const id = runOf(element);
      if (!id) continue;
      if (!found.has(id)) found.set(id, { values: known[id].values, elements: [] });
      found.get(id).elements.push(element);
    }
    return found;
  }

  function runOf(element) {
    for (const name of element.classList) {
      const id = name.startsWith(RUN) && name.slice(RUN.length);
      if (id && Object.hasOwn(known, id)) return id;
    }
    return '';
  }

  function idsIn(element) {
    const rows = element.querySelectorAll(`tr[class*="${RUN}"]`);
    return [...new Set([...rows].map(runOf))].filter(Boolean);
  }

  /** A page may have a section of its own with the title "Size matters". */
  function isSizeSection(section) {
    return /^size-\d+(-\d+)?b(-\d+)?$/.test(section.id);
  }

  function sizeSection(element) {
    return sections.find((section) => section.contains(element));
  }

  /** Where no section can go away: the sentence behind a table none of whose rows is shown. */
  function noneHere(table) {
    const note = make('p', { class: 'verl-none', hidden: '' }, words.noneHere);
    outermost(table).after(note);
    return { element: note, ids: idsIn(table) };
  }

  /** The remarks under the tables, each with the runs that it is about. A number that is printed stays. */
  function collectRemarks() {
    return [...document.querySelectorAll('ol.verl-notes > li')].flatMap((element) => {
      const links = [...element.querySelectorAll('a[href^="#run-"]')];
      const ids = links.map((link) => link.hash.slice('#run-'.length)).filter((id) => runs.has(id));
      if (ids.length) element.value = [...element.parentElement.children].indexOf(element) + element.parentElement.start;
      return ids.length ? [{ element, ids }] : [];
    });
  }

  /** A table with the boxes that directives and themes put around it, so that it can scroll. */
  function outermost(table) {
    let found = table;
    while (found.parentElement.children.length === 1 && found.parentElement.matches('div')) {
      found = found.parentElement;
    }
    return found;
  }

  /** By name, the header cells of each column. */
  function collectColumns() {
    const found = new Map();
    for (const cell of tables.flatMap((table) => [...table.tHead.rows[0].cells])) {
      const name = columnOf(cell);
      if (name) found.set(name, [...(found.get(name) ?? []), cell]);
    }
    return found;
  }

  function columnOf(cell) {
    const name = [...cell.classList].find((each) => each.startsWith(COLUMN));
    return name ? name.slice(COLUMN.length) : '';
  }

  // ---------------------------------------------------------------- the state, and the address that keeps it

  /** What the address asks for; what it asks for in vain is left out, and said. */
  function readState() {
    const query = new URLSearchParams(location.search);
    const wanted = facets.map((facet) => query.getAll(facet.name).filter(Boolean));
    const chosen = wanted.map(([text], number) => (text ? valueNumber(facets[number], text) : ANY));
    const sort = query.get(SORT) ?? '';
    const column = sort.replace(/^-/, '');
    const isColumn = columns.has(column);
    return {
      chosen,
      column: isColumn ? column : '',
      descending: isColumn && sort.startsWith('-'),
      isPartial:
        wanted.some((texts, number) => texts.length > 1 || (texts.length && chosen[number] === ANY)) ||
        (sort !== '' && !isColumn),
    };
  }

  /**
   * People write addresses by hand, so case and separators do not count, and a value goes by other names too.
   *
   * A value is given as what addresses have, what readers see, and those names.
   */
  function valueNumber(facet, text) {
    const exact = facet.values.findIndex(([value]) => value === text);
    if (exact >= 0) return exact;
    return facet.values.findIndex(([value, , ...names]) => [value, ...names].map(fold).includes(fold(text)));
  }

  function fold(text) {
    return text.toLowerCase().replace(/[\s_-]/g, '');
  }

  /** Put the state into the address; what others keep there stays. */
  function writeState() {
    const url = withoutState();
    facets.forEach((facet, number) => {
      const value = facet.values[state.chosen[number]];
      if (value) url.searchParams.set(facet.name, value[0]);
    });
    if (state.column) url.searchParams.set(SORT, (state.descending ? '-' : '') + state.column);
    try {
      history.replaceState(history.state, '', url);
    } catch {
      // Some browsers refuse this to pages from a disk, or when it comes too often; the tables follow anyway.
    }
  }

  function withoutState() {
    const url = new URL(location.href);
    for (const name of [...facets.map((facet) => facet.name), SORT]) url.searchParams.delete(name);
    return url;
  }

  function change(changes) {
    state = { ...state, ...changes, isPartial: false };
    writeState();
    show();
  }

  function isFiltered() {
    return state.chosen.some((value) => value !== ANY);
  }

  function clearFilters() {
    change({ chosen: facets.map(() => ANY) });
  }

  // ---------------------------------------------------------------- filter

  /** Bring the page in line with the state. */
  function show() {
    sortTables();
    const shown = showRuns();
    const isEmpty = ({ ids }) => isFiltered() && !ids.some((id) => shown.has(id));
    for (const group of groups) setHidden(group.element, isEmpty(group));
    for (const note of notes) setHidden(note.element, !isEmpty(note));
    for (const remark of remarks) setHidden(remark.element, isEmpty(remark));
    if (bar) showBar(shown.size);
  }

  /** Hide the runs that do not match; returns the ids of the others. */
  function showRuns() {
    const shown = new Set();
    for (const [id, run] of runs) {
      const isShown = matches(run, ANY);
      if (isShown) shown.add(id);
      for (const element of run.elements) setHidden(element, !isShown);
    }
    return shown;
  }

  /** Whether a run has what is chosen, whatever is chosen of the facet with the number `except`. */
  function matches(run, except) {
    return state.chosen.every(
      (value, number) => value === ANY || number === except || run.values[number] === value,
    );
  }

  function setHidden(element, isHidden) {
    if (element.hidden !== isHidden) element.hidden = isHidden;
  }

  // ---------------------------------------------------------------- the bar with the controls

  function addBar() {
    const fields = facets.flatMap((facet, number) => (facet.values.length > 1 ? [makeField(facet, number)] : []));
    const table = tables.find((each) => idsIn(each).length);
    if (!fields.length || !table) return;
    const status = make('p', { class: 'verl-status', role: 'status' });
    const clear = makeButton('verl-clear', words.clear);
    const element = make(
      'fieldset',
      { class: 'verl-filter' },
      make('legend', {}, words.filter),
      make('div', { class: 'verl-fields' }, ...fields.map((field) => field.element)),
      make('div', { class: 'verl-filter-answer' }, status, clear),
    );
    clear.addEventListener('click', () => {
      clearFilters();
      fields[0].select.focus(); // The button goes away, and would take the focus with it.
    });
    barPlace(table).before(element);
    bar = { element, fields, status, clear };
  }

  /** Before the table, or before the first of the sections that stand side by side with its own. */
  function barPlace(table) {
    const section = sizeSection(table);
    return section ? sections.find((each) => each.parentElement === section.parentElement) : outermost(table);
  }

  function makeField(facet, number) {
    const id = `verl-filter-${facet.name}`;
    // Browsers that fill in what was chosen on the last visit would contradict the address.
    const select = make('select', { id, autocomplete: 'off' }, make('option', { value: ANY }, words.any));
    facet.values.forEach((_, value) => select.append(make('option', { value })));
    select.addEventListener('change', () => {
      change({ chosen: state.chosen.map((value, each) => (each === number ? Number(select.value) : value)) });
    });
    const element = make('div', { class: 'verl-field' }, make('label', { for: id }, facet.heading), select);
    return { element, facet, number, select };
  }

  function showBar(shown) {
    bar.fields.forEach(showField);
    setHidden(bar.clear, !isFiltered());
    bar.element.classList.toggle('verl-filtered', isFiltered());
    const sentences = [fill(isFiltered() ? words.some : words.all, { shown, total: runs.size })];
    if (!shown) sentences.push(words.none);
    if (state.isPartial) sentences.push(words.unknown);
    setSentences(bar.status, sentences);
  }

  /** What stays as it is is not announced again. */
  function setSentences(element, sentences) {
    if (element.textContent === sentences.join('')) return;
    element.replaceChildren(...sentences.map((sentence) => make('span', {}, sentence)));
  }

  /** Each value says how many runs it would leave, given what else is chosen. */
  function showField({ facet, number, select }) {
    const counts = facet.values.map(() => 0);
    for (const run of runs.values()) if (matches(run, number)) counts[run.values[number]] += 1;
    facet.values.forEach(([, value], index) => {
      setText(select.options[index + 1], fill(words.option, { value, count: counts[index] }));
    });
    select.value = state.chosen[number];
  }

  // ---------------------------------------------------------------- sort

  function addSortButtons() {
    for (const [name, cells] of columns) {
      for (const cell of cells) {
        if (orders.get(cell.closest('table')).rows.length > 1) addSortButton(name, cell);
      }
    }
  }

  /** The heading becomes the button. */
  function addSortButton(name, cell) {
    const place = cell.querySelector('p') ?? cell;
    const button = makeButton('verl-sort', ...place.childNodes);
    button.addEventListener('click', () => change(nextSort(name)));
    place.append(button);
  }

  /** Up, down, and then as the server has it. */
  function nextSort(name) {
    if (state.column !== name) return { column: name, descending: false };
    return state.descending ? { column: '', descending: false } : { descending: true };
  }

  function sortTables() {
    for (const [name, cells] of columns) {
      for (const cell of cells) markSorted(cell, name === state.column);
    }
    for (const [table, order] of orders) {
      const cell = columns.get(state.column)?.find((each) => each.closest('table') === table);
      const wanted = cell ? `${state.descending} ${state.column}` : '';
      if (wanted === order.now) continue;
      order.now = wanted;
      table.tBodies[0].append(...(cell ? sorted(order.rows, cell.cellIndex) : order.rows));
    }
  }

  function markSorted(cell, isSorted) {
    if (isSorted) cell.setAttribute('aria-sort', state.descending ? 'descending' : 'ascending');
    else cell.removeAttribute('aria-sort');
  }

  /** Rows by one of their cells; those in which nothing is recorded come last, whatever the direction. */
  function sorted(rows, column) {
    const keyed = rows.map((row) => ({ row, key: sortKey(cellText(row.cells[column])) }));
    const present = keyed.filter(({ key }) => key);
    const absent = keyed.filter(({ key }) => !key);
    const sign = state.descending ? -1 : 1;
    present.sort((one, other) => sign * compare(one.key, other.key));
    return [...present, ...absent].map(({ row }) => row);
  }

  /** What a cell says, without the marks of remarks and without our buttons. */
  function cellText(cell) {
    if (!cell) return '';
    const copy = cell.cloneNode(true);
    for (const extra of copy.querySelectorAll('.verl-mark, button')) extra.remove();
    return copy.textContent.trim();
  }

  /**
   * The numbers of a text and what stands between them; null where nothing is recorded.
   *
   * A number with two points or more is a version, each of whose parts counts alone. A hyphen is a minus where
   * a text begins with it; elsewhere it joins words. Signs before a number do not keep it from being one.
   */
  function sortKey(text) {
    if (!text || words.absent.includes(text)) return null;
    const plain = text.replace(/^[<>≤≥≈~±+]\s*/, '').replace(/^-(?=[\d.])/, '−');
    const pattern = /(\d+(?:\.\d+){2,})|(−?(?:\d{1,3}(?:[,\u00a0\u2009\u202f]\d{3})+(?!\d)|\d+)(?:\.\d+)?)/;
    const key = [];
    plain.split(pattern).forEach((part, index) => {
      if (!part) return;
      if (index % 3 === 0) key.push(part);
      else if (index % 3 === 1) key.push(...part.split('.').map(Number));
      else key.push(Number(part.replace('−', '-').replace(/[^\d.-]/g, '')));
    });
    return key;
  }

  function compare(one, other) {
    const length = Math.min(one.length, other.length);
    for (let index = 0; index < length; index += 1) {
      const difference = compareParts(one[index], other[index]);
      if (difference) return difference;
    }
    return one.length - other.length;
  }

  /** Numbers come before words. */
  function compareParts(one, other) {
    if (typeof one !== typeof other) return typeof one === 'number' ? -1 : 1;
    return typeof one === 'number' ? one - other : collator.compare(one, other);
  }

  function makeCollator() {
    try {
      return new Intl.Collator(document.documentElement.lang.replace('_', '-') || undefined);
    } catch {
      return new Intl.Collator(); // The theme names a language that the browser has never heard of.
    }
  }

  // ---------------------------------------------------------------- links to what is hidden

  /** Show what a fragment names, if that is hidden by a filter or folded; returns it if it was. */
  function reveal(hash) {
    const target = targetOf(hash);
    if (!target) return null;
    const details = target.closest('details.verl-details:not([open])');
    if (details) details.open = true;
    const isHidden = isFiltered() && target.closest('[hidden]');
    if (isHidden) clearFilters();
    return details || isHidden ? target : null;
  }

  function targetOf(hash) {
    try {
      return document.getElementById(decodeURIComponent(hash.slice(1)));
    } catch {
      return null; // A stray per cent sign.
    }
  }

  /** Before the browser follows a link, so that it finds something to scroll to. */
  function revealClicked(event) {
    const link = event.target.closest('a[href*="#"]');
    const opensElsewhere = event.ctrlKey || event.metaKey || event.shiftKey;
    if (link?.hash && !opensElsewhere && link.href.split('#')[0] === location.href.split('#')[0]) reveal(link.hash);
  }

  /** The bar and the order of rows have moved what the browser scrolled to. */
  function scrollAtStart() {
    const target = reveal(location.hash) ?? targetOf(location.hash);
    const isVisit = performance.getEntriesByType('navigation')[0]?.type === 'navigate';
    if (target && isVisit) target.scrollIntoView();
  }

  // ---------------------------------------------------------------- copy

  function addCopyLinks() {
    for (const [id, run] of runs) {
      for (const row of run.elements.filter((element) => element.matches('tr'))) {
        const title = fill(words.copyLink, known[id]);
        const button = make('button', { type: 'button', class: 'verl-copy-link', 'aria-label': title, title });
        button.addEventListener('click', () => copy(button, linkTo(id)));
        (row.cells[0].querySelector('p') ?? row.cells[0]).append(button);
      }
    }
  }

  function linkTo(id) {
    const url = withoutState();
    url.hash = `run-${id}`;
    return url.href;
  }

  /** For the flags of a run, unless the documentation has such buttons everywhere. */
  function addCopyButtons() {
    if (document.querySelector('button.copybtn')) return;
    for (const text of document.querySelectorAll('.verl-details pre')) {
      const button = makeButton('verl-copy', words.copy);
      button.addEventListener('click', () => copy(button, text.textContent));
      (text.closest('div[class*="highlight-"]') ?? text).before(button);
    }
  }

  async function copy(button, text) {
    const isCopied = await copyText(text);
    say(isCopied ? words.copied : words.notCopied);
    if (!isCopied) return;
    button.dataset.verlCopied = words.copied;
    setTimeout(() => delete button.dataset.verlCopied, SAID);
  }

  async function copyText(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return copySelected(text); // No clipboard without a secure connection, or without leave.
    }
  }

  function copySelected(text) {
    const focused = document.activeElement;
    const area = make('textarea', { class: 'verl-unseen', readonly: '' }, text);
    document.body.append(area);
    area.select();
    const isCopied = document.execCommand('copy');
    area.remove();
    focused?.focus();
    return isCopied;
  }

  /** Say something to those who do not see the page. */
  function say(text) {
    voice.textContent = '';
    // A text that does not change is not said again.
    setTimeout(() => (voice.textContent = text), 50);
  }

  // ---------------------------------------------------------------- long names

  /** Let the long names of tables go on in the next line where they are divided, and not within a word. */
  function breakNames() {
    for (const cell of document.querySelectorAll('.verl-scroll td.verl-path')) {
      const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
      const texts = [];
      while (walker.nextNode()) texts.push(walker.currentNode);
      texts.forEach(breakName);
    }
  }

  function breakName(text) {
    const pieces = text.data.split(/(?<=[_/=])(?=\w)|(?<=\.)(?=[^\W\d])/);
    if (pieces.length < 2 || text.data.length <= SHORT) return;
    text.replaceWith(...pieces.flatMap((piece, index) => (index ? [make('wbr', {}), piece] : [piece])));
  }

  // ---------------------------------------------------------------- boxes that scroll, and paper

  /** Only what scrolls is a stop on the way through the page. */
  function watchScrolling() {
    const boxes = [...document.querySelectorAll('.verl-scroll[tabindex]')];
    const observer = new ResizeObserver(() => boxes.forEach(setStop));
    for (const box of boxes) [box, ...box.children].forEach((element) => observer.observe(element));
  }

  function setStop(box) {
    const scrolls = box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight;
    if (scrolls) box.tabIndex = 0;
    else box.removeAttribute('tabindex');
  }

  let unfolded = [];

  function unfold() {
    unfolded = [...document.querySelectorAll('details.verl-details:not([open], [hidden], [hidden] *)')];
    for (const details of unfolded) details.open = true;
  }

  function foldAgain() {
    for (const details of unfolded) details.open = false;
    unfolded = [];
  }

  // ---------------------------------------------------------------- tools

  function make(name, attributes, ...content) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...content);
    return element;
  }

  function makeButton(name, ...content) {
    return make('button', { type: 'button', class: name }, ...content);
  }

  function setText(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }

  function fill(text, values) {
    return text.replace(/\{(\w+)\}/g, (braces, name) => values[name] ?? braces);
  }

  // ---------------------------------------------------------------- start

  const voice = make('p', { class: 'verl-unseen', role: 'status' });
  outermost(tables[0]).after(voice);
  if (runs.size > MANY) sections.forEach((section) => section.classList.add('verl-many'));
  breakNames();
  addBar();
  addSortButtons();
  addCopyLinks();
  show();
  scrollAtStart();
  watchScrolling();
  // Only then has an extension that adds such buttons itself done so.
  document.addEventListener('DOMContentLoaded', addCopyButtons);
  document.addEventListener('click', revealClicked);
  addEventListener('hashchange', () => reveal(location.hash)?.scrollIntoView());
  addEventListener('popstate', readAgain);
  addEventListener('pageshow', (event) => event.persisted && readAgain());
  addEventListener('beforeprint', unfold);
  addEventListener('afterprint', foldAgain);

  function readAgain() {
    state = readState();
    show();
  }
})();
