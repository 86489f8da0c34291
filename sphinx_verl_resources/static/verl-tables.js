/* Long names, scrolling tables, tabs, and copy buttons. The page is complete without this script. */
(() => {
  'use strict';

  const all = (selector, place = document) => [...place.querySelectorAll(selector)];

  /** Add break points to long names and keys: after a sign between words, but not before a file extension. */
  const divisions = /(?<=\w_|[/=])(?=\w)|(?<=\.)(?=[^\W\d])(?!(?:py|sh|ya?ml|rst|md)\b)/;
  for (const place of all('.verl-scroll td, :is(.verl-answer, .verl-notes, .verl-details) :is(code, pre)')) {
    const walker = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
    const texts = [];
    while (walker.nextNode()) texts.push(walker.currentNode);
    for (const text of texts.filter(({ length }) => length > 10)) {
      const [first, ...pieces] = text.data.split(divisions);
      text.replaceWith(first, ...pieces.flatMap((piece) => [document.createElement('wbr'), piece]));
    }
  }

  // Let the keyboard stop only at tables that scroll, and mark the edges beyond which there is more.
  for (const box of all('.verl-scroll[tabindex]')) {
    const mark = () => {
      const room = box.scrollWidth - box.clientWidth;
      const gone = Math.abs(box.scrollLeft); // Negative if text runs from right to left.
      box.classList.toggle('verl-more-before', gone > 1);
      box.classList.toggle('verl-more-after', room - gone > 1);
      if (room > 1) box.tabIndex = 0;
      else box.removeAttribute('tabindex');
    };
    const observer = new ResizeObserver(mark);
    [box, ...box.children].forEach((element) => observer.observe(element));
    box.addEventListener('scroll', mark, { passive: true });
  }

  // Tabs are links to panels.
  const panelOf = ({ hash }) => document.getElementById(hash.slice(1));
  const isShown = (tab) => panelOf(tab).getClientRects().length > 0;
  const tabs = all('.verl-tabs a');
  const markTabs = () => tabs.forEach((tab) => (tab.ariaCurrent = isShown(tab) ? 'true' : null));

  /** Let the browser scroll to the new panel at the position of the current one, so that nothing moves. */
  document.addEventListener('click', ({ target }) => {
    const tab = target.closest('.verl-tabs a');
    const shown = tab && all('a', tab.parentElement).find(isShown);
    if (!shown) return;
    const padding = parseFloat(getComputedStyle(document.documentElement).scrollPaddingTop) || 0;
    panelOf(tab).style.scrollMarginTop = `${panelOf(shown).getBoundingClientRect().top - padding}px`;
  });

  markTabs();
  addEventListener('load', markTabs); // Only then has the browser applied the fragment.
  addEventListener('hashchange', () => {
    markTabs();
    // Return the focus to the tab: the keyboard would start at the top of the page.
    tabs.find(({ hash }) => hash === location.hash)?.focus({ preventScroll: true });
  });

  /** The script of the form uses this too; a page with it always has this script. */
  globalThis.verlCopy = (text) => navigator.clipboard?.writeText(text).then(() => true, () => false) ?? false;

  /** Add to folded blocks buttons that copy their code and, for a run, the link to its row. */
  function addCopyButtons({ words }) {
    const add = (place, label, getText) => {
      const copy = document.createElement('button');
      Object.assign(copy, { type: 'button', className: 'verl-copy', ariaLive: 'polite', textContent: label });
      copy.addEventListener('click', async () => {
        copy.textContent = (await globalThis.verlCopy(getText())) ? words.copied : words.notCopied;
        setTimeout(() => (copy.textContent = label), 2000);
      });
      (place.closest('div[class*="highlight-"]') ?? place).before(copy);
    };
    // Another extension may have added buttons of its own.
    for (const code of all('.verl-details pre:not(:has(~ .copybtn))')) add(code, words.copy, () => code.textContent);
    for (const block of all('.verl-details[class*="verl-run-"]')) {
      const [, row] = /verl-(run-\S+)/.exec(block.className);
      const address = () => `${location.href.split(/[?#]/)[0]}#${row}`;
      add(block.querySelector('pre') ?? block.lastElementChild, words.copyLink, address);
    }
  }

  const page = document.getElementById('verl-resources--page');
  // Only then have other extensions added their buttons.
  if (page) document.addEventListener('DOMContentLoaded', () => addCopyButtons(JSON.parse(page.textContent)));
})();
