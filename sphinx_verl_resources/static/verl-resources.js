/*
 * Filters, folds, sorts and shares the tables of runs.
 *
 * The page is complete without this script: the style sheet folds rows and shows the bar only if scripts run. The
 * script hides and moves rows, but never changes them. The data of the runs and all texts come from the JSON next
 * to the bar; see filter_bar.py.
 */
(() => {
  'use strict';

  const block = document.getElementById('verl-resources--page');
  // Browsers without this media query do not show the controls, and must show every row.
  if (!block || !matchMedia('(scripting: enabled)').matches) return;

  /** The facets, the values of each run by facet, and all texts; see page_data.py. */
  const { facets, runs: known, words } = JSON.parse(block.textContent);
  const RUN = 'verl-run-';
  const COLUMN = 'verl-col-';
  const SORT = 'sort';
  /** The number that means all values. */
  const ANY = -1;
  /** With more runs than this, only sections near the window are laid out. */
  const MANY = 100;
  /** The classes of elements that are folded at first, and of those that are folded now. */
  const MORE = 'verl-more';
  const FOLDED = 'verl-folded';

  const tables = [...document.querySelectorAll('table.verl-runs')].filter((table) => table.tHead);
  if (!tables.length) return;

  const runs = collectRuns();
  const sections = [...document.querySelectorAll('section[id^="size-"]')].filter(isSizeSection);
  const groups = sections.map((section) => ({ element: section, ids: idsIn(section) }));
  const notes = tables.filter((table) => !sizeSection(table)).map(noneHere);
  const remarks = collectRemarks();
  const columns = collectColumns();
  const collator = makeCollator();
  /** The rows of each table in the order of the server, and the current order. */
  const orders = new Map(tables.map((table) => [table, { rows: [...table.tBodies[0].rows], now: '' }]));

  /** The tables with all rows shown, and the buttons that show all rows. */
  const unfolded = new Set();
  const unfolders = tables.map(makeUnfolder).filter(Boolean);

  let bar = null;
  let state = readState();
  /** The control of the last change; further changes of the same control share its step for "Back". */
  let last = '';

  // ---------------------------------------------------------------- elements of the page

  /** Return by id the values of each run, its rows, and other elements about it. */
  function collectRuns() {
    const found = new Map();
    for (const element of document.querySelectorAll(`[class*="${RUN}"]`)) {
      const id = runOf(element);
      if (!id) continue;
      if (!found.has(id)) found.set(id, { values: known[id], rows: [], blocks: [] });
      if (element.matches('tr')) found.get(id).rows.push({ element, table: element.closest('table') });
      else found.get(id).blocks.push(element);
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

  /** Return whether a section is for a size class, rather than for example "Size matters". */
  function isSizeSection(section) {
    return /^size-\d+(-\d+)?b(-\d+)*$/.test(section.id);
  }

  function sizeSection(element) {
    return sections.find((section) => section.contains(element));
  }

  /** Add a sentence after a table outside of sections, which is shown if the table shows no row. */
  function noneHere(table) {
    const note = make('p', { class: 'verl-none', hidden: '' }, words.noneHere);
    outermost(table).after(note);
    return { element: note, ids: idsIn(table) };
  }

  /** Return the remarks below the tables, each with its runs. Fix their numbers, which marks refer to. */
  function collectRemarks() {
    return [...document.querySelectorAll('ol.verl-notes > li')].flatMap((element) => {
      const links = [...element.querySelectorAll('a[href^="#run-"]')];
      const rows = links.map((link) => targetOf(link.hash)?.closest('tr')).filter(Boolean);
      const ids = rows.map(runOf).filter((id) => runs.has(id));
      if (ids.length) element.value = [...element.parentElement.children].indexOf(element) + element.parentElement.start;
      return ids.length ? [{ element, ids }] : [];
    });
  }

  /** Return the outermost of the boxes that directives and themes put around a table for scrolling. */
  function outermost(table) {
    let found = table;
    while (found.parentElement.children.length === 1 && found.parentElement.matches('div')) {
      found = found.parentElement;
    }
    return found;
  }

  /** Return by name the header cells of each column. */
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

  // ---------------------------------------------------------------- the state, stored in the address

  /** Return the state in the address; unknown parts are left out and listed. */
  function readState() {
    const query = new URLSearchParams(location.search);
    const unknown = [];
    const chosen = facets.map((facet) => {
      const [text, ...others] = query.getAll(facet.name).filter(Boolean);
      const value = text ? valueNumber(facet, text) : ANY;
      if (text && value === ANY) others.unshift(text);
      unknown.push(...others.map((other) => asked(facet.name, other)));
      return value;
    });
    const sort = query.get(SORT) ?? '';
    const column = sort.replace(/^-/, '');
    const isColumn = columns.has(column);
    if (sort && !isColumn) unknown.push(asked(SORT, sort));
    return { chosen, column: isColumn ? column : '', descending: isColumn && sort.startsWith('-'), unknown };
  }

  /** Return a part of the address for readers, shortened if it is long. */
  function asked(name, text) {
    return `${name}=${text.slice(0, 80)}`;
  }

  /**
   * Return the index of a value. Ignore case and separators and accept other names, as in addresses typed by hand.
   *
   * A value of a facet is a list: the value in addresses, its text for readers, and its other names.
   */
  function valueNumber(facet, text) {
    const exact = facet.values.findIndex(([value]) => value === text);
    if (exact >= 0) return exact;
    return facet.values.findIndex(([value, , ...names]) => [value, ...names].map(fold).includes(fold(text)));
  }

  function fold(text) {
    return text.toLowerCase().replace(/[\s_-]/g, '');
  }

  /** Write the state to the address, as a new step for "Back" or replacing the last; keep other parameters. */
  function writeState(isStep) {
    const url = withoutState();
    facets.forEach((facet, number) => {
      const value = facet.values[state.chosen[number]];
      if (value) url.searchParams.set(facet.name, value[0]);
    });
    if (state.column) url.searchParams.set(SORT, (state.descending ? '-' : '') + state.column);
    try {
      if (isStep && url.href !== location.href) history.pushState(null, '', url);
      else history.replaceState(history.state, '', url);
    } catch {
      // Some browsers refuse this for pages from a disk, or if it happens too often. The tables still change.
    }
  }

  function withoutState() {
    const url = new URL(location.href);
    for (const name of [...facets.map((facet) => facet.name), SORT]) url.searchParams.delete(name);
    return url;
  }

  function change(about, changes) {
    state = { ...state, ...changes, unknown: [] };
    writeState(about !== last);
    last = about;
    show();
  }

  function isFiltered() {
    return state.chosen.some((value) => value !== ANY);
  }

  const nothing = () => ({ chosen: facets.map(() => ANY) });

  // ---------------------------------------------------------------- filter

  /** Update the page to the state. */
  function show() {
    sortTables();
    const { matching, shown } = showRuns();
    const isEmpty = ({ ids }) => isFiltered() && !ids.some((id) => matching.has(id));
    for (const group of groups) setHidden(group.element, isEmpty(group));
    for (const note of notes) setHidden(note.element, !isEmpty(note));
    for (const remark of remarks) {
      setHidden(remark.element, isEmpty(remark));
      setFolded(remark.element, !remark.ids.some((id) => shown.has(id)));
    }
    for (const unfolder of unfolders) showUnfolder(unfolder);
    if (bar) showBar(shown.size);
  }

  /** Hide runs that do not match, and fold others; return the ids of the matching and of the shown runs. */
  function showRuns() {
    const matching = new Set();
    const shown = new Set();
    for (const [id, run] of runs) {
      const isMatch = matches(run, ANY);
      if (isMatch) matching.add(id);
      for (const { element, table } of run.rows) {
        const isFolded = folds(table) && element.classList.contains(MORE);
        setHidden(element, !isMatch);
        setFolded(element, isFolded);
        if (isMatch && !isFolded) shown.add(id);
      }
      for (const element of run.blocks) {
        setHidden(element, !isMatch);
        setFolded(element, isMatch && !shown.has(id));
      }
    }
    return { matching, shown };
  }

  /** Return whether a run matches the choices, ignoring the facet with the number `except`. */
  function matches(run, except) {
    return state.chosen.every(
      (value, number) => value === ANY || number === except || run.values[number] === value,
    );
  }

  function setHidden(element, isHidden) {
    if (element.hidden !== isHidden) element.hidden = isHidden;
  }

  function setFolded(element, isFolded) {
    if (element.classList.contains(FOLDED) !== isFolded) element.classList.toggle(FOLDED, isFolded);
  }

  // ---------------------------------------------------------------- fold

  /** Return whether a table is folded; a filter unfolds all tables. */
  function folds(table) {
    return !isFiltered() && !unfolded.has(table);
  }

  /** Return the button that unfolds a table, with the table's region if all its rows are folded. */
  function makeUnfolder(table) {
    const box = outermost(table);
    const element = box.nextElementSibling;
    if (!element?.matches('.verl-unfold')) return null;
    element.firstElementChild.addEventListener('click', () => {
      const first = table.querySelector(`.${FOLDED}`);
      unfolded.add(table);
      show();
      first.tabIndex = -1;
      first.focus(); // The button disappears, and would lose the focus.
    });
    return { element, table, box: box.matches(`.${MORE}`) ? box : null };
  }

  function showUnfolder({ element, table, box }) {
    setHidden(element, !folds(table));
    if (box) setFolded(box, folds(table));
  }

  function foldAll() {
    const isUnfolded = unfolders.every(({ table }) => unfolded.has(table));
    for (const { table } of unfolders) {
      if (isUnfolded) unfolded.delete(table);
      else unfolded.add(table);
    }
    show();
  }

  // ---------------------------------------------------------------- the bar with the controls

  function findBar() {
    const element = document.querySelector('.verl-filter');
    if (!element) return;
    const fields = facets.map(findField).filter(Boolean);
    const find = (name) => element.querySelector(`.verl-${name}`);
    bar = { element, fields, status: find('status'), clear: find('clear'), all: find('unfold-all') };
    bar.all.addEventListener('click', foldAll);
    bar.clear.addEventListener('click', () => {
      change('clear', nothing());
      fields[0].select.focus(); // The button disappears, and would lose the focus.
    });
  }

  function findField(facet, number) {
    const select = document.getElementById(`verl-filter--${facet.name}`);
    if (!select) return null;
    facet.values.forEach((_, value) => select.append(make('option', { value })));
    select.addEventListener('change', () => {
      const chosen = state.chosen.map((value, each) => (each === number ? Number(select.value) : value));
      change(facet.name, { chosen });
    });
    return { facet, number, select };
  }

  function showBar(shown) {
    bar.fields.forEach(showField);
    setHidden(bar.clear, !isFiltered());
    setHidden(bar.all, isFiltered() || !unfolders.length);
    setText(bar.all, fill(unfolders.some(({ table }) => folds(table)) ? words.unfold : words.fold, { total: runs.size }));
    bar.element.classList.toggle('verl-filtered', isFiltered());
    const sentences = [fill(statusWord(shown), { shown, total: runs.size })];
    if (!shown) sentences.push(words.none);
    if (state.unknown.length) sentences.push(fill(words.unknown, { asked: state.unknown.join(words.between) }));
    setSentences(bar.status, sentences);
  }

  function statusWord(shown) {
    if (isFiltered()) return words.some;
    if (shown === runs.size) return words.all;
    return unfolded.size ? words.some : words.folded;
  }

  /** Set the sentences, unless they are unchanged: screen readers announce every change. */
  function setSentences(element, sentences) {
    if (element.textContent === sentences.join('')) return;
    element.replaceChildren(...sentences.map((sentence) => make('span', {}, sentence)));
  }

  /** Show with each value the number of runs that match it and the choices of the other fields. */
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

  /** Turn the heading into a button. */
  function addSortButton(name, cell) {
    const place = cell.querySelector('p') ?? cell;
    const button = make('button', { type: 'button', class: 'verl-sort' }, ...place.childNodes);
    button.addEventListener('click', () => change(SORT, nextSort(name)));
    place.append(button);
  }

  /** Return the next order: ascending, descending, then the order of the server. */
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

  /** Return rows sorted by one of their cells; rows with an empty cell come last in both directions. */
  function sorted(rows, column) {
    const keyed = rows.map((row) => ({ row, key: sortKey(cellText(row.cells[column])) }));
    const present = keyed.filter(({ key }) => key);
    const absent = keyed.filter(({ key }) => !key);
    const sign = state.descending ? -1 : 1;
    present.sort((one, other) => sign * compare(one.key, other.key));
    return [...present, ...absent].map(({ row }) => row);
  }

  /** Return the text of a cell, without marks of remarks and our buttons. */
  function cellText(cell) {
    if (!cell) return '';
    const copy = cell.cloneNode(true);
    for (const extra of copy.querySelectorAll('.verl-mark, button')) extra.remove();
    return copy.textContent.trim();
  }

  /**
   * Return the numbers of a text and the text between them; null for an empty text.
   *
   * A number with two or more points is a version, compared part by part. A hyphen is a minus at the start of a
   * text; elsewhere it joins words. Signs such as ≥ before a number are ignored.
   */
  function sortKey(text) {
    if (!text) return null;
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
      return new Intl.Collator(); // The browser does not know the language of the page.
    }
  }

  // ---------------------------------------------------------------- links to hidden elements

  /** Show the target of a fragment if it is hidden by a filter or folded; return it if so. */
  function reveal(hash) {
    const target = targetOf(hash);
    const details = target?.closest('details.verl-details:not([open])');
    if (details) details.open = true;
    const hidden = isFiltered() && target?.closest('[hidden]');
    if (hidden) {
      state = { ...state, ...nothing() };
      writeState(false);
      show();
    }
    const folded = target?.closest(`.${FOLDED}`);
    if (folded) {
      for (const { table } of runs.get(runOf(folded))?.rows ?? unfolders) unfolded.add(table);
      show();
    }
    return details || hidden || folded ? target : null;
  }

  function targetOf(hash) {
    try {
      return document.getElementById(decodeURIComponent(hash.slice(1)));
    } catch {
      return null; // A stray per cent sign.
    }
  }

  /** Reveal the target of a link to the current address, for which the browser sends no event. */
  function revealAgain(event) {
    const link = event.target.closest('a[href*="#"]');
    if (link?.href === location.href) reveal(link.hash);
  }

  /** Scroll again, because sorting moved the target; for an address with a filter, scroll to the bar. */
  function scrollAtStart() {
    const isVisit = performance.getEntriesByType('navigation')[0]?.type === 'navigate';
    const result = isFiltered() || state.unknown.length ? bar?.element : null;
    const target = reveal(location.hash) ?? targetOf(location.hash) ?? result;
    if (target && isVisit) target.scrollIntoView({ behavior: 'instant' });
  }

  // ---------------------------------------------------------------- tools

  function make(name, attributes, ...content) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...content);
    return element;
  }

  function setText(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }

  function fill(text, values) {
    return text.replace(/\{(\w+)\}/g, (braces, name) => values[name] ?? braces);
  }

  // ---------------------------------------------------------------- start

  if (runs.size > MANY) sections.forEach((section) => section.classList.add('verl-many'));
  findBar();
  addSortButtons();
  show();
  bar?.element.classList.remove('verl-folding');
  scrollAtStart();
  document.addEventListener('click', revealAgain);
  addEventListener('hashchange', () => reveal(location.hash)?.scrollIntoView());
  addEventListener('popstate', readAgain);
  addEventListener('pageshow', (event) => event.persisted && readAgain());

  function readAgain() {
    last = '';
    state = readState();
    show();
  }
})();
