/*
 * Shows the answers of the form of the directive verl-what-if.
 *
 * It computes nothing: the build makes all answers and writes a file for each model, which is loaded on first
 * use. The page contains the form, the answer to its first choice, and the texts; see views/what_if_answers.py,
 * which looks up answers in the same way. Sizes are tenths of a GiB.
 */
(() => {
  'use strict';

  /** Prefix of field names in the address, where the tables of runs use similar names. */
  const PREFIX = 'if-';
  /** The lines that show recorded runs. */
  const LINES = ['ran', 'reported', 'smallest-ran', 'smallest-reported'];
  /** The fields to search for a choice that fits, with the direction of the search. */
  const WAYS = { response: -1, lora: 1, count: 1 };
  /** Milliseconds until the page shows that it is loading, and until a button stops showing "Copied". */
  const PATIENCE = 500;
  const SAID = 2000;

  const source = document.currentScript.src;
  const loading = new Map();

  // ---------------------------------------------------------------- files

  /** Return the answers in a file; rejects if it cannot be loaded. Pages opened from a folder can load only scripts. */
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

  /** Quote a word for a shell. */
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

    /** Return the index of a choice among the choices for its model and GPU. */
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

    /** Return the nearest choice of each field that fits, in words. */
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

    /** Fill in a line of the answer, or hide it if it has no content. */
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

    /** Show the figures of an estimate; nothing without one. */
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

    /** Show the command and the host memory; nothing if the run does not fit. */
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

    /** Return the titles of runs, linked if a page shows the row, with commas between. */
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

    /** Return the words of a command in Sphinx's markup, so that they do not break. */
    function wordsOf(command) {
      return command.split(' ').flatMap((text, index) => {
        const word = document.createElement('span');
        word.className = 'pre';
        word.textContent = text;
        return index ? [' ', word] : [word];
      });
    }

    /** Show a problem before the verdict. */
    function tell(text) {
      form.querySelector('.verl-if-problem').textContent = text && `${text} `;
    }

    /** Load the answers for the chosen model and show one of them, unless another choice was made meanwhile. */
    async function answer(problem = '', isFirst = false) {
      const turn = (asked += 1);
      const chosen = each(({ selectedIndex }) => selectedIndex);
      const labels = each(({ selectedOptions }) => selectedOptions[0].label);
      const command = planFor(each(({ value }) => value));
      // Keep the height until the next answer is there, so that the page below does not move.
      box.style.minBlockSize = `${box.offsetHeight}px`;
      box.setAttribute('aria-busy', 'true');
      const late = setTimeout(() => tell(words.loading), PATIENCE);
      // Wait for a frame, so that the answer does not jump.
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

    /** Set the choices in the address, and return those that the form does not offer. */
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
        // A page opened from a folder may not change its address.
      }
    }

    // -------------------------------------------------------------- beginning

    const strange = ownsAddress ? readAddress() : [];
    const problem = strange.length ? fill(words.strange, { asked: strange.join(words.between) }) : '';
    // The script for tables of runs may have scrolled because of the same address.
    if (problem && !location.hash) form.scrollIntoView({ behavior: 'instant', block: 'nearest' });
    // The reader may have made a choice before this script started.
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
