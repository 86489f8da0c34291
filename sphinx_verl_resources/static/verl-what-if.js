/*
 * Shows the answers of the form of the directive verl-what-if.
 *
 * It computes nothing: the build writes a file of answers for each model, see fit/form.py, which is loaded on
 * first use. It shows them as templates/form.html.jinja shows the first one, and draws bars as charts.py does.
 * All texts in these files are HTML.
 */
(() => {
  'use strict';

  /** Prefix of field names in the address, where the tables of runs use similar names. */
  const PREFIX = 'if-';
  /** Milliseconds until the page shows that it is loading, and until a button stops showing "Copied". */
  const [PATIENCE, SAID] = [500, 2000];
  /** The height of a bar in pixels, and the share of a bar that a letter needs. */
  const [BAR, LETTER] = [16, 0.08];

  const source = document.currentScript.src;
  const loading = {};
  globalThis.verlWhatIf = {}; // the answers in each file that was loaded

  /** Return the answers in a file; undefined if it cannot be loaded. Pages opened from a folder can load only scripts. */
  function load(file) {
    loading[file] ??= new Promise((resolve) => {
      const script = document.createElement('script');
      script.src = new URL(`verl-what-if-${file}.js`, source);
      script.onload = () => resolve(globalThis.verlWhatIf[file]);
      script.onerror = () => resolve((loading[file] = undefined)); // so that the next choice tries again
      document.head.append(script);
    });
    return loading[file];
  }

  function fill(message, values) {
    return message.replace(/\{([\w-]+)\}/g, (whole, name) => values[name] ?? whole);
  }

  // ---------------------------------------------------------------- bars

  /** Return a label, a bar and a value for each phase. */
  function bars(phases, texts, low, high, capacity, { words, categories }) {
    const totals = phases.map(([, ...sizes]) => sizes.reduce((sum, size) => sum + size));
    const peak = totals.indexOf(Math.max(...totals));
    const most = Math.max(high, capacity, totals[peak]);
    const at = (size) => `${(100 * size) / most}%`;
    const rect = (start, end, paint) => `<rect x="${at(start)}" width="${at(end - start)}" height="${BAR}" ${paint}/>`;
    const row = ([phase, ...sizes], index) => {
      let end = 0;
      const pieces = sizes.map((size, category) => {
        const [start, [colour, letter]] = [end, categories[category]];
        end += size;
        const place = `x="${at(end - size / 2)}" y="${BAR - 4}" fill="${colour[3] < '8' ? '#fff' : '#000'}"`;
        return (size ? rect(start, end, `fill="${colour}"`) : '') + (size > LETTER * most ? `<text ${place}>${letter}</text>` : '');
      });
      pieces.push(index === peak ? rect(low, high, 'class="verl-range"') : '', rect(capacity, capacity, 'class="verl-limit"'));
      const [tag, label] = index === peak ? ['strong', words.peak] : ['span', '{phase}'];
      const word = (content) => `<${tag}>${content}</${tag}>`;
      const drawing = `<svg aria-hidden="true" height="${BAR}">${pieces.join('')}</svg>`;
      return word(fill(label, { phase: texts[phase] })) + drawing + word(`${totals[index]} GiB`);
    };
    return phases.map(row).join('');
  }

  // ---------------------------------------------------------------- one form

  function start(form, ownsAddress) {
    const shared = JSON.parse(form.querySelector('script').textContent);
    const { words } = shared;
    const selects = [...form.querySelectorAll('select')];
    const each = (what) => Object.fromEntries(selects.map((select) => [select.name, what(select)]));
    const options = each((select) => [...select.options]);
    const part = (name) => form.querySelector(name);
    const [box, badge, figure, button] = ['.verl-if-answer', '.verl-verdict', '[role=figure]', 'button'].map(part);
    let asked = 0;

    /** Return the index of the first number of GPUs, that of the fewest that fit, and the cells from the first on. */
    function windowOf(answers, { gpu, lora, response }) {
      return answers.windows[(gpu * options.lora.length + lora) * options.response.length + response];
    }

    /** Return the nearest choices that fit, in words. Where it fits, it fits on more GPUs too. */
    function waysFrom(answers, chosen) {
      const fewest = (changes) => windowOf(answers, { ...chosen, ...changes })[1];
      const fits = (changes) => fewest(changes) <= chosen.count;
      const shorter = options.response.findLast((_, response) => response < chosen.response && fits({ response }));
      const adapters = options.lora.find((_, lora) => lora > chosen.lora && fits({ lora }));
      const more = options.count[fewest({})];
      const ways = [shorter && fill(words.response, shorter), adapters?.label, more && fill(words.count, more)];
      return ways.filter(Boolean).join(words.or) || words.noWay;
    }

    function show(answers, chosen) {
      const [first, , ...cells] = windowOf(answers, chosen);
      const shown = Math.max(first, Math.min(chosen.count, first + cells.length - 1));
      const cell = cells[shown - first];
      const isKnown = typeof cell !== 'string';
      const [kind, bar, command, low, high, capacity, ...numbers] = isKnown ? cell : [];
      const [verdict, ...texts] = answers.kinds[kind] ?? ['unknown'];
      const withNumbers = (text, write = String) => text.replaceAll('{#}', () => write(numbers.shift()));
      const inText = (number) => number.toLocaleString('en');
      const links = { ...shared.links, GPU: options.gpu[chosen.gpu].value };
      const lines = texts.map((index) => fill(withNumbers(answers.texts[index], inText), links));
      const code = (answers.commands[command] ?? []).map((index) => withNumbers(answers.words[index])).join('\n');
      if (isKnown) {
        const phases = answers.bars[bar].map((index) => answers.pieces[index]);
        const note = shown < chosen.count ? words.above : words.below;
        if (shown !== chosen.count) lines[0] += ` ${fill(note, options.count[shown])}`;
        const keys = [words.range, words.capacity].map((text) => ` ${fill(text, { low, high, size: capacity })}`);
        [...figure.lastElementChild.children].slice(-2).forEach((key, index) => (key.lastChild.data = keys[index]));
        figure.innerHTML = bars(phases, answers.texts, low, high, capacity, shared) + figure.lastElementChild.outerHTML;
      }
      Object.assign(badge, { className: `verl-verdict verl-verdict-${verdict}`, textContent: shared.titles[verdict] });
      const [why, ...others] = isKnown ? lines : [fill(words.noEstimate, { reason: cell })];
      if (verdict !== 'fits') others.unshift(fill(words.change, { ways: waysFrom(answers, chosen) }));
      part('.verl-if-why').innerHTML = why;
      part('.verl-if-lines').innerHTML = others.map((text) => `<p>${text}</p>`).join('');
      part('pre').textContent = code;
      [figure.hidden, button.hidden, part('details').hidden] = [!isKnown, !code, !code];
    }

    /** Load the answers for the chosen model and show one of them, unless another choice was made meanwhile. */
    async function answer(problem = '', isFirst = false) {
      const [turn, chosen] = [(asked += 1), each(({ selectedIndex }) => selectedIndex)];
      const tell = (text) => (part('.verl-if-problem').textContent = text && `${text} `);
      const labels = each(({ selectedOptions }) => selectedOptions[0].label);
      // Keep the height until the next answer is there, so that the page below does not move.
      box.style.minBlockSize = `${box.offsetHeight}px`;
      box.setAttribute('aria-busy', 'true');
      const late = setTimeout(() => tell(words.loading), PATIENCE);
      // Wait for a frame, so that the answer does not jump.
      if (isFirst) await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
      const answers = await load(shared.files[chosen.model]);
      clearTimeout(late);
      if (turn !== asked) return;
      box.removeAttribute('aria-busy');
      if (!isFirst) box.style.minBlockSize = '';
      box.classList.toggle('verl-if-failed', !answers);
      tell(answers ? problem : fill(words.failed, labels));
      part('.verl-if-asked').textContent = fill(words.asked, labels);
      const plan = shared.plan[0] + (chosen.lora ? shared.plan[1] : '');
      part('.verl-if-plan code').textContent = fill(plan, each(({ value }) => value));
      if (answers) show(answers, chosen);
    }

    /** Set the choices in the address, and return those that the form does not offer. */
    function readAddress() {
      const given = new URLSearchParams(location.search);
      return selects.flatMap((select) => {
        const text = given.get(PREFIX + select.name);
        const index = options[select.name].findIndex(({ value }) => value.toLowerCase() === text?.trim().toLowerCase());
        if (index >= 0) select.selectedIndex = index;
        return text === null || index >= 0 ? [] : [`${PREFIX}${select.name}=${text.slice(0, 80)}`];
      });
    }

    const strange = ownsAddress ? readAddress() : [];
    const problem = strange.length ? fill(words.strange, { asked: strange.join(', ') }) : '';
    // The script for tables of runs may have scrolled because of the same address.
    if (problem && !location.hash) form.scrollIntoView({ behavior: 'instant', block: 'nearest' });
    // The reader may have made a choice before this script started.
    if (problem || !selects.every(({ selectedOptions: [option] }) => option.defaultSelected)) answer(problem, true);
    form.addEventListener('change', () => {
      answer();
      const address = new URL(location.href);
      for (const { name, value } of selects) address.searchParams.set(PREFIX + name, value);
      // A page opened from a folder may not change its address.
      if (ownsAddress && location.protocol !== 'file:') history.replaceState(history.state, '', address);
    });
    const label = button.textContent;
    button.addEventListener('click', async () => {
      const isCopied = await globalThis.verlCopy(part('pre').textContent);
      button.textContent = isCopied ? words.copied : words.notCopied;
      setTimeout(() => (button.textContent = label), SAID);
    });
  }

  document.querySelectorAll('form.verl-what-if').forEach((form, index) => start(form, index === 0));
})();
