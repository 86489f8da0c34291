/*
 * Filters, folds and sorts the tables of runs.
 *
 * The page is complete without this script: the style sheet hides the controls where no scripts run. The script
 * hides and moves rows, but never changes them. The runs and all texts come from the JSON next to the bar; see
 * filter_bar.py and page_data.py.
 */
(() => {
  'use strict';

  /** The facets, for each run its index among the values of each facet, and the texts. */
  const { facets, runs, words } = JSON.parse(document.getElementById('verl-resources--page').textContent);

  const all = (selector, place = document) => [...place.querySelectorAll(selector)];
  const make = (name, properties) => Object.assign(document.createElement(name), properties);
  const fill = (text, values) => text.replace(/\{(\w+)\}/g, (braces, name) => values[name] ?? braces);
  const named = (element, prefix) =>
    [...element.classList].find((name) => name.startsWith(prefix))?.slice(prefix.length) ?? '';
  const runOf = (element) => named(element, 'verl-run-');
  const columnOf = (element) => named(element, 'verl-col-');
  const runsIn = (element) => all('tr[class*="verl-run-"]', element).map(runOf);

  // ---------------------------------------------------------------- elements of the page

  const tables = all('table.verl-runs').map((table) => {
    const region = table.closest('.verl-scroll');
    const button = region.matches(':has(+ .verl-unfold)') ? region.nextElementSibling : null;
    const note = make('p', { className: 'verl-none', textContent: words.noneHere });
    (button ?? region).after(note);
    const heads = all('[class*="verl-col-"]', table.tHead).map((cell) => ({ cell, name: columnOf(cell) }));
    // The rows are in the order of the server.
    return { table, rows: [...table.tBodies[0].rows], ids: runsIn(table), heads, button, note };
  });
  const rowsAndDetails = all('[class*="verl-run-"]').filter((element) => runs[runOf(element)]);
  // Not other sections whose title begins with "Size".
  const sections = all('section[id^="size-"]').filter(({ id }) => /^size-\d+(-\d+)?b(-\d+)*$/.test(id));
  const bar = document.querySelector('.verl-filter');
  const [status, foldAll, clear] = all('.verl-status, .verl-unfold-all, .verl-clear');
  const selects = facets.map(({ name }) => document.getElementById(`verl-filter--${name}`));

  // ---------------------------------------------------------------- the state, stored in the address

  /** What an address may contain: a value of each facet, and a column, with a minus for descending. */
  const orders = tables.flatMap(({ heads }) => heads.flatMap(({ name }) => [[name], [`-${name}`]]));
  const offers = [...facets, { name: 'sort', values: orders }];
  const nothing = Object.fromEntries(facets.map(({ name }) => [name, '']));
  const state = {};
  let unknown = [];
  /** The control of the last change; its further changes share one step for "Back". */
  let last = '';
  /** The runs that are folded until a reader asks for them, and those that are folded now. */
  const more = new Set(all('tr.verl-more').map(runOf));
  let folded = new Set(more);

  const isFiltered = () => facets.some(({ name }) => state[name]);
  const isFolded = (id) => folded.has(id) && !isFiltered();
  /** Return whether a run matches the choices, except that of one facet. */
  const matches = (id, except) => facets.every((facet, number) =>
    facet === except || !state[facet.name] || facet.values[runs[id][number]][0] === state[facet.name]);
  const isHidden = (ids) => isFiltered() && !ids.some((id) => matches(id));

  function read() {
    const query = new URLSearchParams(location.search);
    last = '';
    unknown = [];
    for (const { name, values } of offers) {
      const [text = '', ...others] = query.getAll(name);
      // People type addresses too, and use other names.
      const found = values.find((names) => names.some((each) => each.toLowerCase() === text.toLowerCase()));
      state[name] = found?.[0] ?? '';
      const refused = found || !text ? others : [text, ...others];
      unknown.push(...refused.map((each) => `${name}=${each.slice(0, 80)}`));
    }
    show();
  }

  /** Change the state, the address and the page. */
  function change(changes, control = last) {
    unknown = [];
    Object.assign(state, changes);
    const url = new URL(location.href);
    for (const { name } of offers) {
      url.searchParams.delete(name);
      if (state[name]) url.searchParams.append(name, state[name]);
    }
    try {
      history[control === last ? 'replaceState' : 'pushState'](null, '', url);
    } catch {
      // Some browsers refuse this for pages from a disk. The tables still change.
    }
    last = control;
    show();
  }

  // ---------------------------------------------------------------- filter and fold

  function show() {
    sortTables();
    for (const element of rowsAndDetails) {
      element.hidden = isHidden([runOf(element)]);
      element.classList.toggle('verl-folded', isFolded(runOf(element)));
    }
    for (const section of sections) section.hidden = isHidden(runsIn(section));
    for (const { ids, button, note } of tables) {
      note.hidden = !isHidden(ids);
      if (button) button.hidden = !ids.some(isFolded);
    }
    if (bar) showBar();
  }

  function showBar() {
    const shown = Object.keys(runs).filter((id) => matches(id) && !isFolded(id)).length;
    const count = { shown, total: Object.keys(runs).length };
    selects.forEach((select, number) => select && showChoices(select, facets[number], number));
    clear.hidden = !isFiltered();
    foldAll.hidden = isFiltered() || !more.size;
    foldAll.textContent = fill(folded.size ? words.unfold : words.fold, count);
    bar.classList.toggle('verl-filtered', isFiltered());
    const isPart = isFiltered() || (folded.size && folded.size < more.size);
    const sentences = [fill(isPart ? words.some : folded.size ? words.folded : words.all, count)];
    if (!count.shown) sentences.push(words.none);
    if (unknown.length) sentences.push(fill(words.unknown, { asked: unknown.join(words.between) }));
    // Screen readers announce every change, even to the same text.
    if (status.textContent === sentences.join('')) return;
    status.replaceChildren(...sentences.map((textContent) => make('span', { textContent })));
  }

  /** Show with each value how many runs it would leave. */
  function showChoices(select, facet, number) {
    const left = Object.keys(runs).filter((id) => matches(id, facet)).map((id) => runs[id][number]);
    facet.values.forEach(([name, value], index) => {
      const option = select.options[index + 1] ?? select.appendChild(make('option', { value: index }));
      option.text = fill(words.option, { value, count: left.filter((each) => each === index).length });
      option.selected = name === state[facet.name];
    });
  }

  function foldOnly(ids) {
    folded = new Set(ids);
    show();
  }

  const unfold = (ids) => foldOnly([...folded].filter((id) => !ids.includes(id)));

  // ---------------------------------------------------------------- sort

  function sortTables() {
    for (const { table, rows, heads } of tables) {
      if ((table.dataset.verlSort ?? '') === state.sort) continue; // Moved rows lose the focus.
      table.dataset.verlSort = state.sort;
      for (const { cell, name } of heads) {
        cell.ariaSort = { [name]: 'ascending', [`-${name}`]: 'descending' }[state.sort] ?? null;
      }
      const head = heads.find(({ cell }) => cell.ariaSort);
      table.tBodies[0].append(...(head ? inOrder(rows, head.cell) : rows));
    }
  }

  /** Return rows by a column: empty cells last, then numbers, then texts with the numbers in them. */
  function inOrder(rows, { cellIndex, ariaSort }) {
    const { compare } = new Intl.Collator(undefined, { numeric: true });
    const sign = ariaSort === 'ascending' ? 1 : -1;
    const by = ([one, first], [two, second]) => !one - !two || sign * (first - second || compare(one, two));
    return rows.map((row) => [...sortKey(row.cells[cellIndex]), row]).sort(by).map(([, , row]) => row);
  }

  /** Return the text of a cell without marks, and its number; infinity for none and for versions. */
  function sortKey(cell) {
    const copy = cell.cloneNode(true);
    all('.verl-mark', copy).forEach((mark) => mark.remove());
    const text = copy.textContent.trim().replace(/(\d)[,\u00a0\u202f](?=\d{3})/g, '$1').replace('−', '-');
    return [text, Number(/^[<>≤≥≈~±+\s]*(-?\d+(\.\d+)?)(?![.\d])/.exec(text)?.[1] ?? Infinity)];
  }

  /** Turn a heading into a button: ascending, descending, the order of the server. */
  function addSortButton({ cell, name }) {
    const place = cell.querySelector('p') ?? cell;
    const button = make('button', { type: 'button', className: 'verl-sort' });
    button.append(...place.childNodes);
    place.append(button);
    const next = { [name]: `-${name}`, [`-${name}`]: '' };
    button.addEventListener('click', () => change({ sort: next[state.sort] ?? name }, 'sort'));
  }

  // ---------------------------------------------------------------- links to hidden elements

  /** Show the target of a fragment if it is filtered out, folded or closed; return it if so. */
  function reveal(hash) {
    const target = document.getElementById(hash.slice(1));
    if (!target?.closest('[hidden], .verl-folded, details:not([open])')) return null;
    target.closest('details')?.setAttribute('open', '');
    if (target.closest('[hidden]')) change(nothing);
    const hider = target.closest('.verl-folded');
    tables.filter(({ ids }) => hider && ids.includes(runOf(hider))).forEach(({ ids }) => unfold(ids));
    return target;
  }

  // ---------------------------------------------------------------- start

  for (const { table, rows, ids, button, heads } of tables) {
    if (rows.length > 1) heads.forEach(addSortButton);
    button?.addEventListener('click', () => {
      unfold(ids);
      const row = table.querySelector('tr.verl-more');
      row.tabIndex = -1;
      row.focus(); // The button, which had the focus, disappears.
    });
  }
  facets.forEach(({ name, values }, number) => selects[number]?.addEventListener('change', ({ target }) => {
    change({ [name]: values[target.value]?.[0] ?? '' }, name);
  }));
  foldAll?.addEventListener('click', () => foldOnly(folded.size ? [] : more));
  clear?.addEventListener('click', () => {
    change(nothing, 'clear');
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
  const result = isFiltered() || unknown.length ? bar : null;
  reveal(location.hash);
  // Rows have moved. On a later visit the browser returns to the old place by itself.
  if (performance.getEntriesByType('navigation')[0]?.type === 'navigate') {
    (document.getElementById(location.hash.slice(1)) ?? result)?.scrollIntoView({ behavior: 'instant' });
  }
})();
