/*
 * Filters and folds the tables of runs. The page is complete without this script: the style sheet hides the controls
 * where no scripts run. The runs and all texts come from the JSON next to the bar, see filter_bar.py.
 */
(() => {
  'use strict';

  /** The values of each facet, as in the address and as text; the values of each run by facet; and the texts. */
  const { facets, runs, words } = JSON.parse(document.getElementById('verl-resources--page').textContent);
  const names = Object.keys(facets);
  const ids = Object.keys(runs);

  const all = (selector, place = document) => [...place.querySelectorAll(selector)];
  const make = (name, properties) => Object.assign(document.createElement(name), properties);
  const fill = (text, values) => text.replace(/\{(\w+)\}/g, (braces, name) => values[name] ?? braces);
  const runOf = (element) => /(?:^| )verl-run-(\S+)/.exec(element.className)[1];
  const runsIn = (element) => all('tr[class*="verl-run-"]', element).map(runOf);

  const tables = all('table.verl-runs').map((table) => {
    const region = table.closest('.verl-scroll');
    const button = region.matches(':has(+ .verl-unfold)') ? region.nextElementSibling : null;
    return { table, ids: runsIn(table), button };
  });
  const rowsAndDetails = all('[class*="verl-run-"]').filter((element) => runs[runOf(element)]);
  // Not other sections whose title begins with "Size".
  const sections = all('section[id^="size-"]').filter(({ id }) => /^size-\d+(-\d+)?b(-\d+)*$/.test(id));
  const bar = document.querySelector('.verl-filter');
  const [status, foldAll, clear] = all('.verl-status, .verl-unfold-all, .verl-clear');

  const nothing = Object.fromEntries(names.map((name) => [name, '']));
  const state = {};
  let unknown = [];
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
    for (const name of names) {
      const text = query.get(name) ?? '';
      const found = facets[name].find(([value]) => value.toLowerCase() === text.toLowerCase());
      state[name] = found?.[0] ?? '';
      if (text && !found) unknown.push(`${name}=${text.slice(0, 80)}`);
    }
    show();
  }

  /** Change the state, the address and the page. */
  function change(changes) {
    unknown = [];
    Object.assign(state, changes);
    const url = new URL(location.href);
    for (const name of names) {
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
    for (const { ids: own, button } of tables) if (button) button.hidden = !own.some(isFolded);
    if (bar) showBar();
  }

  function showBar() {
    const count = { shown: ids.filter((id) => matches(id) && !isFolded(id)).length, total: ids.length };
    names.forEach(showChoices);
    clear.hidden = !isFiltered();
    foldAll.hidden = isFiltered() || !more.size;
    foldAll.textContent = fill(folded.size ? words.unfold : words.fold, count);
    bar.classList.toggle('verl-filtered', isFiltered());
    const isPart = isFiltered() || (folded.size && folded.size < more.size);
    const sentences = [fill(isPart ? words.some : folded.size ? words.folded : words.all, count)];
    if (!count.shown) sentences.push(words.none);
    if (unknown.length) sentences.push(fill(words.unknown, { asked: unknown.join(', ') }));
    // Screen readers announce every change, even to the same text.
    if (status.textContent === sentences.join('')) return;
    status.replaceChildren(...sentences.map((textContent) => make('span', { textContent })));
  }

  const selectOf = (name) => document.getElementById(`verl-filter--${name}`);

  /** Show with each value how many runs it would leave. */
  function showChoices(name) {
    const left = ids.filter((id) => matches(id, name)).map((id) => runs[id][name]);
    const select = selectOf(name);
    facets[name].forEach(([value, text], index) => {
      const option = select?.options[index + 1] ?? select?.appendChild(make('option', { value: index }));
      const count = left.filter((each) => each === value).length;
      if (option) option.text = fill(words.option, { value: text, count });
      if (option) option.selected = value === state[name];
    });
  }

  /** Show the target of a fragment if it is filtered out, folded or closed; return it if so. */
  function reveal(hash) {
    const target = document.getElementById(hash.slice(1));
    if (!target?.closest('[hidden], .verl-folded, details:not([open])')) return null;
    target.closest('details')?.setAttribute('open', '');
    if (target.closest('[hidden]')) change(nothing);
    const hider = target.closest('.verl-folded');
    if (hider) tables.filter((table) => table.ids.includes(runOf(hider))).forEach((table) => unfold(table.ids));
    return target;
  }

  for (const { table, ids: own, button } of tables) {
    button?.addEventListener('click', () => {
      unfold(own);
      const row = table.querySelector('tr.verl-more');
      row.tabIndex = -1;
      row.focus(); // The button, which had the focus, disappears.
    });
  }
  for (const name of names) {
    selectOf(name)?.addEventListener('change', ({ target }) => {
      change({ [name]: facets[name][target.value]?.[0] ?? '' });
    });
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
