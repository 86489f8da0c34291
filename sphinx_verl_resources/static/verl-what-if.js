/*
 * Answers the form of the directive verl-what-if.
 *
 * It computes nothing: every answer was made when the page was built, and is in a file for each model, which is
 * loaded when it is first asked for. The page holds the form, the answer to its first choice, and the words; see
 * views/what_if_answers.py, which looks answers up in the same way. Sizes are tenths of a GiB.
 */
(() => {
  'use strict';

  /** Before the names of fields in the address, where the tables of runs have names like them. */
  const PREFIX = 'if-';
  /** The lines that name recorded runs. */
  const LINES = ['ran', 'reported', 'smallest-ran', 'smallest-reported'];
  /** The fields of which another choice may fit, and in which direction it is looked for. */
  const WAYS = { response: -1, lora: 1, count: 1 };
  /** After so many milliseconds the page says that it is loading, and a button no more that it has copied. */
  const PATIENCE = 500;
  const SAID = 2000;

  const source = document.currentScript.src;
  const loading = new Map();

  // ---------------------------------------------------------------- files

  /** The answers in a file; rejected if it cannot be loaded. Pages opened from a folder may load scripts only. */
  function load(file) {
    if (!loading.has(file)) {
      const answers = new Promise((resolve, reject) => {
        const script = document.createElement('script');
        script.src = new URL(`verl-what-if-${file}.js`, source);
        script.onload = () => resolve(globalThis.verlWhatIf[file]);
        script.onerror = reject;
        document.head.append(script);
      });
      loading.set(file, answers);
      answers.catch(() => loading.delete(file)); // so that the next choice tries again
    }
    return loading.get(file);
  }

  // ---------------------------------------------------------------- words

  function fill(message, values) {
    return message.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
  }

  /** A word as a shell takes it. */
  function quoted(word) {
    return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
  }

  function number(value, digits = 0) {
    return value.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits });
  }

  function size(tenths) {
    return number(tenths / 10, 1);
  }

  // ---------------------------------------------------------------- one form

  function start(form, ownsAddress) {
    const shared = JSON.parse(form.querySelector('script').textContent);
    const { words } = shared;
    const selects = [...form.querySelectorAll('select')];
    const box = form.querySelector('.verl-if-answer');
    const [button] = form.querySelectorAll('button');
    let asked = 0;

    // -------------------------------------------------------------- looking up

    function each(what) {
      return Object.fromEntries(selects.map((select) => [select.name, what(select)]));
    }

    /** The index of a choice among those for its model and GPU. */
    function placeOf(chosen) {
      const others = selects.filter(({ name }) => name !== 'model' && name !== 'gpu');
      return others.reduce((place, { name, options }) => place * options.length + chosen[name], 0);
    }

    function cellOf(answers, chosen) {
      const index = placeOf(chosen) * (Math.max(...shared.gpus) + 1) + shared.gpus[chosen.gpu];
      return Object.fromEntries(Object.entries(answers.cells).map(([name, column]) => [name, column[index]]));
    }

    function fits({ state }) {
      return words.states[state]?.[0] === 'fits';
    }

    /** The nearest choices of each field that fit, in words. */
    function waysFrom(answers, chosen) {
      return Object.entries(WAYS).flatMap(([name, step]) => {
        const { options } = selects.find((select) => select.name === name);
        for (let index = chosen[name] + step; options[index]; index += step) {
          if (fits(cellOf(answers, { ...chosen, [name]: index }))) {
            return [fill(words[name], { label: options[index].label })];
          }
        }
        return [];
      });
    }

    function planFor(values) {
      const plan = [...words.plan, ...(values.lora === '0' ? [] : words.planLora)];
      return plan.map((word) => quoted(fill(word, values))).join(' ');
    }

    // -------------------------------------------------------------- showing

    /** Fill in a line of the answer, or hide it where there is nothing to say. */
    function say(name, ...content) {
      const line = form.querySelector(`.verl-if-${name}`);
      line.hidden = !content.some(Boolean);
      line.querySelector('.verl-if-text').replaceChildren(...content);
    }

    function show(answers, chosen, plan) {
      const cell = cellOf(answers, chosen);
      const state = words.states[cell.state];
      const runs = answers.nearest[answers.evidence[chosen.gpu][placeOf(chosen)]].map((run) => answers.runs[run]);
      const reason = answers.reasons[cell.state - words.states.length];
      const [verdict, title, why] = state ?? words.noEstimate;
      const badge = form.querySelector('.verl-verdict');
      badge.className = `verl-verdict verl-verdict-${verdict}`;
      badge.textContent = title;
      const spare = size(shared.offered[chosen.gpu] - cell.high);
      const sentence = fill(why, { tokens: number(cell.tokens), spare, reason });
      say('verdict', state ? fill(words.why, { sentence }) : sentence);
      const [, undercuts] = state ? answers.trusts[cell.trust] : [];
      const smallest = (undercuts ? words.undercut : words.unlike).split('{run}');
      for (const line of LINES) {
        const [before, after] = line.startsWith('smallest') ? smallest : [];
        const links = linksTo(runs.filter((run) => run[2] === line));
        say(line, ...(links.length ? [before ?? '', ...links, after ?? ''] : []));
      }
      say('none', runs.length ? '' : words.noRun);
      const ways = fits(cell) ? [] : waysFrom(answers, chosen);
      say('change', ways.join(words.or) || (state && !fits(cell) ? words.noWay : ''));
      form.querySelector('.verl-if-plan code').replaceChildren(...wordsOf(plan));
      form.querySelector('.verl-if-plan').hidden = fits(cell);
      showFigures(answers, chosen, state && cell);
      showUse(answers, state && verdict !== 'does-not-fit' && cell);
      showScript(runs);
    }

    /** What an estimate says; nothing without one. */
    function showFigures(answers, chosen, cell) {
      if (!cell) {
        for (const name of ['estimated', 'phase', 'trust']) say(name);
        return;
      }
      const [low, high, capacity] = [cell.low, cell.high, shared.offered[chosen.gpu]].map(size);
      const estimated = fill(words.estimated, { low, high, capacity, layout: answers.layouts[cell.layout] });
      const used = fill(words.used, { count: cell.used });
      say('estimated', cell.used ? fill(words.next, { sentence: estimated, next: used }) : estimated);
      say('phase', answers.phases[cell.phase]);
      say('trust', answers.trusts[cell.trust][0]);
    }

    /** What those need who run it; nothing where it does not fit. */
    function showUse(answers, cell) {
      const lines = cell ? answers.commands[cell.command].map((line) => answers.lines[line]) : [];
      form.querySelector('pre').textContent = lines.join(' \\\n    ');
      form.querySelector('.verl-if-command').hidden = button.hidden = !cell;
      say('host', cell ? fill(words.host, { size: number(cell.host) }) : '');
    }

    function showScript(runs) {
      const [, run, , address] = runs.find(([, , line, script]) => line === 'ran' && script) ?? [];
      const link = form.querySelector('.verl-if-script');
      link.hidden = !address;
      link.href = address ?? '';
      link.title = address ? run : '';
    }

    /** The titles of runs, each a link where a page shows its row, with commas between. */
    function linksTo(runs) {
      return runs.flatMap(([id, title], index) => {
        const { start: first, others } = shared.rows;
        const address = others[id] ?? (first && first + id);
        const link = document.createElement(address ? 'a' : 'span');
        link.textContent = address ? title : `${title} (${id})`;
        if (address) link.href = address;
        return index ? [words.between, link] : [link];
      });
    }

    /** The words of a command in the markup that Sphinx gives them, so that each stays whole. */
    function wordsOf(command) {
      return command.split(' ').flatMap((text, index) => {
        const word = document.createElement('span');
        word.className = 'pre';
        word.textContent = text;
        return index ? [' ', word] : [word];
      });
    }

    /** Tell of a problem before the verdict. */
    function tell(text) {
      form.querySelector('.verl-if-problem').textContent = text && `${text} `;
    }

    /** Load the answers for the model that is chosen now, and show one; a later choice overtakes an earlier one. */
    async function answer(problem = '', isFirst = false) {
      const turn = (asked += 1);
      const chosen = each(({ selectedIndex }) => selectedIndex);
      const labels = each(({ selectedOptions }) => selectedOptions[0].label);
      const command = planFor(each(({ value }) => value));
      // Until another answer is there the page below stays where it is.
      box.style.minBlockSize = `${box.offsetHeight}px`;
      box.setAttribute('aria-busy', 'true');
      const late = setTimeout(() => tell(words.loading), PATIENCE);
      // What has been out of sight for a frame does not jump when it comes back.
      if (isFirst) await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
      const answers = await load(shared.files[chosen.model]).catch(() => undefined);
      clearTimeout(late);
      if (turn !== asked) return;
      box.removeAttribute('aria-busy');
      box.style.minBlockSize = '';
      box.classList.toggle('verl-if-failed', !answers);
      tell(answers ? problem : fill(words.failed, { ...labels, command }));
      say('asked', fill(words.asked, labels));
      if (answers) show(answers, chosen, command);
    }

    // -------------------------------------------------------------- the address

    /** Choose what the address asks for, and return what of it the form does not offer. */
    function readAddress() {
      const given = new URLSearchParams(location.search);
      return selects.flatMap((select) => {
        const text = given.get(PREFIX + select.name);
        if (text === null) return [];
        const wanted = text.trim().toLowerCase();
        const index = [...select.options].findIndex(({ value }) => value.toLowerCase() === wanted);
        if (index >= 0) select.selectedIndex = index;
        return index < 0 ? [`${PREFIX}${select.name}=${text.slice(0, 80)}`] : [];
      });
    }

    function writeAddress() {
      const address = new URL(location.href);
      for (const { name, value } of selects) address.searchParams.set(PREFIX + name, value);
      try {
        history.replaceState(history.state, '', address);
      } catch {
        // A page that was opened from a folder may not change its address; it works without.
      }
    }

    // -------------------------------------------------------------- beginning

    const strange = ownsAddress ? readAddress() : [];
    const problem = strange.length ? fill(words.strange, { asked: strange.join(words.between) }) : '';
    // The tables of runs may have scrolled to what the same address asks of them.
    if (problem && !location.hash) form.scrollIntoView({ behavior: 'instant', block: 'nearest' });
    // The choice may be another one without an address too: by a reader who was faster than this script.
    if (problem || !selects.every(({ selectedOptions: [option] }) => option.defaultSelected)) answer(problem, true);
    form.addEventListener('submit', (event) => event.preventDefault());
    form.addEventListener('change', () => {
      answer();
      if (ownsAddress) writeAddress();
    });
    const label = button.textContent;
    button.addEventListener('click', async () => {
      const isCopied = await globalThis.verlCopy(form.querySelector('pre').textContent);
      button.textContent = isCopied ? words.copied : words.notCopied;
      setTimeout(() => (button.textContent = label), SAID);
    });
  }

  document.querySelectorAll('form.verl-what-if').forEach((form, index) => start(form, index === 0));
})();
