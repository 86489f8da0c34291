/* Filters, folds and sorts the tables of runs. The page is complete without this script: the style sheet hides the
   controls where no scripts run. The runs and all texts come from the JSON next to the bar, see rows.py. */
(() => {
  'use strict';

  /** The values of each facet, as in the address and as text; the values of each run by facet; and the texts. */
  const { facets, runs, words } = JSON.parse(document.getElementById('verl-resources--page').textContent);
  const names = Object.keys(facets);
  const ids = Object.keys(runs);

  const all = (selector, place = document) => [...place.querySelectorAll(selector)];
  const make = (name, properties) => Object.assign(document.createElement(name), properties);
  const fill = (text, values) => text.replace(/\{(\w+)\}/g, (braces, name) => values[name] ?? braces);
  const named = (prefix) => (element) => RegExp(`(?:^| )verl-${prefix}-(\\S+)`).exec(element.className)[1];
  const [runOf, columnOf] = [named('run'), named('col')];
  const runsIn = (element) => all('tr[class*="verl-run-"]', element).map(runOf);

  const tables = all('table.verl-runs').map((table) => {
    const [body] = table.tBodies;
    return { body, rows: [...body.rows], heads: body.rows.length > 1 ? all('th[class*="verl-col-"]', table) : [] };
  });
  const rowsAndDetails = all('[class*="verl-run-"]').filter((element) => runs[runOf(element)]);
  // Not other sections whose title begins with "Size".
  const sections = all('section[id^="size-"]').filter(({ id }) => /^size-\d+(-\d+)?b(-\d+)*$/.test(id));
  const bar = document.querySelector('.verl-filter');
  const [status, foldAll, clear] = all('.verl-status, .verl-unfold-all, .verl-clear');
  const selects = all('.verl-filter select');
  const facetOf = (select) => select.id.replace('verl-filter--', '');
  const unfolders = all('.verl-unfold'); // Each follows a table.

  /** What the address may contain: a value of each facet, and a column, after a minus for the descending order. */
  const offers = Object.fromEntries(names.map((name) => [name, facets[name].map(([value]) => value)]));
  offers.sort = tables.flatMap(({ heads }) => heads.map(columnOf)).flatMap((name) => [name, `-${name}`]);
  const nothing = Object.fromEntries(names.map((name) => [name, '']));
  const state = {};
  let unknown = [];
  let sorted = '';
  /** The runs that are folded until a reader asks for them, and those that are folded now. */
  const more = new Set(bar?.matches('.verl-folding') ? all('tr.verl-more').map(runOf) : []);
  let folded = new Set(more);

  const isFiltered = () => names.some((name) => state[name]);
  const isFolded = (id) => folded.has(id) && !isFiltered();
  /** Return whether a run matches the choices, except that of one facet. */
  const matches = (id, except) =>
    names.every((name) => name === except || !state[name] || runs[id][name] === state[name]);
  const isHidden = (some) => isFiltered() && !some.some((id) => matches(id));

  function read() {
    const query = new URLSearchParams(location.search);
    unknown = [];
    for (const [name, values] of Object.entries(offers)) {
      const text = query.get(name) ?? '';
      state[name] = values.find((value) => value.toLowerCase() === text.toLowerCase()) ?? '';
      if (text && !state[name]) unknown.push(`${name}=${text.slice(0, 80)}`);
    }
    show();
  }

  /** Change the state, the address and the page. */
  function change(changes) {
    unknown = [];
    Object.assign(state, changes);
    const url = new URL(location.href);
    for (const name of Object.keys(offers)) {
      url.searchParams.delete(name);
      if (state[name]) url.searchParams.append(name, state[name]);
    }
    try { history.pushState(null, '', url); } catch { /* Some browsers refuse this for pages from a disk. */ }
    show();
  }

  function foldOnly(some) {
    folded = new Set(some);
    show();
  }

  const unfold = (some) => foldOnly([...folded].filter((id) => !some.includes(id)));

  function show() {
    for (const element of rowsAndDetails) {
      element.hidden = isHidden([runOf(element)]);
      element.classList.toggle('verl-folded', isFolded(runOf(element)));
    }
    for (const section of sections) section.hidden = isHidden(runsIn(section));
    for (const place of unfolders) place.hidden = !runsIn(place.previousElementSibling).some(isFolded);
    if (sorted !== state.sort) tables.forEach(sort); // Only then, because a row that moves loses the focus.
    sorted = state.sort;
    if (bar) showBar();
  }

  function showBar() {
    const count = { shown: ids.filter((id) => matches(id) && !isFolded(id)).length, total: ids.length };
    selects.forEach(showChoices);
    clear.hidden = !isFiltered();
    foldAll.hidden = isFiltered() || !more.size;
    foldAll.textContent = fill(folded.size ? words.unfold : words.fold, count);
    bar.classList.toggle('verl-filtered', isFiltered());
    const isPart = isFiltered() || (folded.size && folded.size < more.size);
    const sentences = [fill(isPart ? words.some : folded.size ? words.folded : words.all, count)];
    if (!count.shown) sentences.push(words.none);
    if (unknown.length) sentences.push(fill(words.unknown, { filters: unknown.join(', ') }));
    // Screen readers announce every change, even to the same text.
    if (status.textContent === sentences.join('')) return;
    status.replaceChildren(...sentences.map((text) => make('span', { textContent: text })));
  }

  /** Show with each value how many runs it would leave. */
  function showChoices(select) {
    const name = facetOf(select);
    const left = ids.filter((id) => matches(id, name)).map((id) => runs[id][name]);
    facets[name].forEach(([value, text], index) => {
      const count = left.filter((each) => each === value).length;
      select.options[index + 1].text = fill(words.option, { value: text, count });
    });
    select.selectedIndex = offers[name].indexOf(state[name]) + 1;
  }

  /** Sort a table by the column in the state; without this column, return it to the order of the page. */
  function sort({ body, rows, heads }) {
    const [, minus, name] = /^(-?)(.*)/.exec(state.sort);
    const index = heads.findIndex((head) => columnOf(head) === name);
    heads.forEach((head) => (head.ariaSort = null));
    if (index >= 0) heads[index].ariaSort = minus ? 'descending' : 'ascending';
    const inOrder = (one, two) => compare(one.cells[index], two.cells[index], minus ? -1 : 1);
    body.append(...(index < 0 ? rows : [...rows].sort(inOrder)));
  }

  const textOf = (cell) => cell.textContent.replace(/\u00a0\[\d+\]/g, '').trim(); // Without marks of remarks.
  const numberOf = (cell) => (cell.matches('.num') ? parseFloat(textOf(cell).replaceAll(',', '')) : Infinity);
  const collator = new Intl.Collator(undefined, { numeric: true }); // It sorts 0.8.3 before 0.10.0.

  /** Compare cells: first numbers, then texts; the empty ones are last in both directions. */
  function compare(one, two, sign) {
    const [text, other] = [one, two].map(textOf);
    return !text - !other || sign * (numberOf(one) - numberOf(two) || collator.compare(text, other));
  }

  /** Show the target of a fragment if it is filtered out, folded or closed; return it if so. */
  function reveal(hash) {
    const target = document.getElementById(hash.slice(1));
    if (!target?.closest('[hidden], .verl-folded, details:not([open])')) return null;
    target.closest('details')?.setAttribute('open', '');
    if (target.closest('[hidden]')) change(nothing);
    const hider = target.closest('.verl-folded');
    if (hider) unfold(tables.map(({ body }) => runsIn(body)).filter((own) => own.includes(runOf(hider))).flat());
    return target;
  }

  for (const place of unfolders) {
    place.firstElementChild.addEventListener('click', () => {
      const table = place.previousElementSibling;
      unfold(runsIn(table));
      const row = table.querySelector('tr.verl-more');
      row.tabIndex = -1;
      row.focus(); // The button, which had the focus, disappears.
    });
  }
  for (const select of selects) {
    const values = offers[facetOf(select)];
    select.append(...values.map((value, index) => new Option('', index)));
    select.addEventListener('change', () => change({ [facetOf(select)]: values[select.selectedIndex - 1] ?? '' }));
  }
  // Headings become buttons: ascending, descending, the order of the page.
  for (const head of tables.flatMap(({ heads }) => heads)) {
    const name = columnOf(head);
    const next = { [name]: `-${name}`, [`-${name}`]: '' };
    const button = make('button', { type: 'button', className: 'verl-sort' });
    button.append(...head.firstElementChild.childNodes);
    head.firstElementChild.append(button);
    button.addEventListener('click', () => change({ sort: next[state.sort] ?? name }));
  }
  foldAll?.addEventListener('click', () => foldOnly(folded.size ? [] : more));
  clear?.addEventListener('click', () => {
    change(nothing);
    bar.querySelector('select').focus();
  });
  // For a link to the current address the browser sends no event.
  document.addEventListener('click', ({ target }) => {
    if (target.closest('a')?.href === location.href) reveal(location.hash);
  });
  addEventListener('hashchange', () => reveal(location.hash)?.scrollIntoView());
  addEventListener('popstate', read);
  read();
  bar?.classList.remove('verl-folding');
  reveal(location.hash);
  // Rows have moved. On a later visit the browser returns to the old place by itself.
  if (performance.getEntriesByType('navigation')[0]?.type === 'navigate') {
    const result = isFiltered() || unknown.length ? bar : null;
    (document.getElementById(location.hash.slice(1)) ?? result)?.scrollIntoView({ behavior: 'instant' });
  }
})();
