/*
 * Scrolling tables, tabs, long names, copy buttons, and printing of folded blocks.
 *
 * The page is complete without this script. The texts of the buttons come from the JSON of a page with runs; see
 * page_data.py.
 */
(() => {
  'use strict';

  /** Names up to this length do not break. */
  const SHORT = 10;
  /** The elements that can contain long names. */
  const NAMES = '.verl-scroll tbody, :is(.verl-answer, .verl-notes, .verl-facts, .verl-details, .verl-what-if) :is(code, pre)';
  /** Break points in names: after a sign between words, but not before a file extension. */
  const DIVISIONS = /(?<=\w_|[/=])(?=\w)|(?<=\.)(?=[^\W\d])(?!(?:py|sh|ya?ml|rst|md)\b)/;
  /** How long a button shows that it has copied, in milliseconds. */
  const SAID = 2000;

  // ---------------------------------------------------------------- names, regions, paper

  /** Add break points to long names and keys, so that they do not break within a word. */
  function breakNames() {
    for (const place of document.querySelectorAll(NAMES)) {
      const walker = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
      const texts = [];
      while (walker.nextNode()) texts.push(walker.currentNode);
      texts.forEach(breakName);
    }
  }

  /** Do the same with the answers that a form shows later. */
  function watchAnswers() {
    for (const form of document.querySelectorAll('.verl-what-if')) {
      new MutationObserver(breakNames).observe(form, { childList: true, subtree: true });
    }
  }

  function breakName(text) {
    const pieces = text.data.split(DIVISIONS);
    if (pieces.length < 2 || text.data.length <= SHORT) return;
    text.replaceWith(...pieces.flatMap((piece, index) => (index ? [document.createElement('wbr'), piece] : [piece])));
  }

  /** Let the keyboard reach only tables that scroll, and mark the edges beyond which there is more. */
  function watchScrolling() {
    const boxes = [...document.querySelectorAll('.verl-scroll[tabindex]')];
    const observer = new ResizeObserver((entries) => {
      new Set(entries.map((entry) => entry.target.closest('.verl-scroll'))).forEach(setScrolling);
    });
    for (const box of boxes) {
      [box, ...box.children].forEach((element) => observer.observe(element));
      box.addEventListener('scroll', () => setScrolling(box), { passive: true });
    }
  }

  function setScrolling(box) {
    const room = box.scrollWidth - box.clientWidth;
    const gone = Math.abs(box.scrollLeft); // Negative if text runs from right to left.
    box.classList.toggle('verl-more-before', gone > 1);
    box.classList.toggle('verl-more-after', room - gone > 1);
    if (room > 1) box.tabIndex = 0;
    else box.removeAttribute('tabindex');
  }

  let unfolded = [];

  /** Open all folded blocks for printing. */
  function unfold() {
    unfolded = [...document.querySelectorAll('details.verl-details:not([open], [hidden], [hidden] *, .verl-more)')];
    for (const details of unfolded) details.open = true;
  }

  function foldAgain() {
    for (const details of unfolded) details.open = false;
    unfolded = [];
  }

  // ---------------------------------------------------------------- tabs, which are links to panels

  function panelOf(tab) {
    return document.getElementById(tab.hash.slice(1));
  }

  function isShown(tab) {
    return panelOf(tab).getClientRects().length > 0;
  }

  function tabsOf(group) {
    return [...group.querySelectorAll('a')];
  }

  /** Mark the tab whose panel is shown; none if the browser shows all panels. */
  function markTabs() {
    for (const group of document.querySelectorAll('.verl-tabs')) {
      const shown = tabsOf(group).filter(isShown);
      for (const tab of tabsOf(group)) {
        if (shown.length === 1 && tab === shown[0]) tab.setAttribute('aria-current', 'true');
        else tab.removeAttribute('aria-current');
      }
    }
  }

  /** Let the browser scroll to the new panel at the position of the current one, so that nothing moves. */
  function keepPlace(event) {
    const tab = event.target.closest('.verl-tabs a');
    const shown = tab && tabsOf(tab.parentElement).find(isShown);
    if (!shown) return;
    const padding = parseFloat(getComputedStyle(document.documentElement).scrollPaddingTop) || 0;
    panelOf(tab).style.scrollMarginTop = `${panelOf(shown).getBoundingClientRect().top - padding}px`;
  }

  /** Return the focus to the tab; browsers remove it, and the keyboard would start at the top of the page. */
  function showChosen() {
    markTabs();
    const tab = [...document.querySelectorAll('.verl-tabs a')].find(({ hash }) => hash === location.hash);
    tab?.focus({ preventScroll: true });
  }

  // ---------------------------------------------------------------- copy

  /** Add to each folded block a button that copies its settings and, for a run, one for the link to its row. */
  function addCopyButtons(words) {
    // Another extension may add buttons to all code blocks.
    const hasOthers = document.querySelector('button.copybtn');
    for (const block of document.querySelectorAll('.verl-details')) {
      const texts = [...block.querySelectorAll('pre')];
      const run = [...block.classList].find((name) => name.startsWith('verl-run-'));
      for (const text of hasOthers ? [] : texts) {
        addCopies(codeBox(text), copyButton(words, words.copy, () => text.textContent));
      }
      if (run) addCopies(codeBox(texts[0]) ?? block.lastElementChild, copyButton(words, words.copyLink, () => linkTo(run)));
    }
  }

  function codeBox(text) {
    return text?.closest('div[class*="highlight-"]') ?? text;
  }

  /** Put a button before an element, next to an existing one. */
  function addCopies(element, button) {
    let place = element.previousElementSibling;
    if (!place?.matches('.verl-copies')) {
      place = make('p', 'verl-copies');
      element.before(place);
    }
    place.append(button);
  }

  function copyButton(words, title, getText) {
    const button = make('button', 'verl-copy', title);
    button.type = 'button';
    button.addEventListener('click', async () => {
      const isCopied = await copyText(getText());
      say(isCopied ? words.copied : words.notCopied);
      if (!isCopied) return;
      button.dataset.verlCopied = '';
      setTimeout(() => delete button.dataset.verlCopied, SAID);
    });
    return button;
  }

  function linkTo(run) {
    const url = new URL(location.href);
    url.search = '';
    url.hash = run.replace('verl-', '');
    return url.href;
  }

  /** The script of the form uses this too; a page with it always has this script. */
  globalThis.verlCopy = copyText;

  async function copyText(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return copySelected(text); // No clipboard without a secure connection or permission.
    }
  }

  function copySelected(text) {
    const focused = document.activeElement;
    const area = make('textarea', 'verl-unseen', text);
    area.readOnly = true;
    document.body.append(area);
    area.select();
    const isCopied = document.execCommand('copy');
    area.remove();
    focused?.focus();
    return isCopied;
  }

  /** Announce a text to screen readers. */
  function say(text) {
    voice.textContent = '';
    // Screen readers announce only changes.
    setTimeout(() => (voice.textContent = text), 50);
  }

  function make(name, classes, text = '') {
    const element = document.createElement(name);
    element.className = classes;
    element.textContent = text;
    return element;
  }

  // ---------------------------------------------------------------- start

  const page = document.getElementById('verl-resources--page');
  const voice = make('p', 'verl-unseen');
  voice.setAttribute('role', 'status');
  page?.before(voice);
  breakNames();
  watchAnswers();
  watchScrolling();
  markTabs();
  addEventListener('load', markTabs); // Only then has the browser applied the fragment.
  addEventListener('hashchange', showChosen);
  document.addEventListener('click', keepPlace);
  addEventListener('beforeprint', unfold);
  addEventListener('afterprint', foldAgain);
  // Only then have other extensions added their buttons.
  if (page) document.addEventListener('DOMContentLoaded', () => addCopyButtons(JSON.parse(page.textContent).words));
})();
