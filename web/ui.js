// ui.js -- page elements, numbers as text, controls and tables. Independent of terms and of the library.
// SPDX-License-Identifier: Apache-2.0

/** Create an element: h('a', {href: '#x', onclick: f}, 'text', child). */
export function h(tag, attributes = {}, ...children) {
  const svg = ['svg', 'g', 'path', 'line', 'rect', 'text', 'circle', 'polyline', 'image', 'title'].includes(tag);
  const element = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else if (key.startsWith('aria-') && value !== undefined) element.setAttribute(key, String(value));
    else if (value !== undefined && value !== null && value !== false)
      element.setAttribute(key, value === true ? '' : value);
  }
  for (const child of children.flat(9))
    if (child !== null && child !== undefined) element.append(child);
  return element;
}

/** Return a whole number with commas between thousands. */
export const count = n => n.toLocaleString('en');

/** Format x like %.<digits>f in C, which rounds ties to the even digit; but never return "-0". */
export function fixed(x, digits = 4) {
  if (x === -Infinity) return '-inf';
  if (!Number.isFinite(x)) return Number.isNaN(x) ? 'nan' : 'inf';
  if (Math.abs(x) >= 1e6) return x.toExponential(2).replace(/e([+-])(\d)$/, 'e$10$2');
  const scaled = Math.abs(x) * 10 ** digits, floor = Math.floor(scaled);
  // x is halfway between two results: (2 floor + 1) / (2 * 10^digits) is a double only if 5^digits divides the
  // numerator
  const tie = scaled - floor === 0.5 && (2 * floor + 1) % 5 ** digits === 0;
  let text = tie && floor % 2 === 0 ? (Math.sign(x) * floor / 10 ** digits).toFixed(digits) : x.toFixed(digits);
  if (/^-0\.?0*$/.test(text)) text = text.slice(1);
  return text;
}

/** Return a value of a map or a row as text: a number, 'masked', or 'not a number'. */
export const valueText = (x, digits) => x === -Infinity ? 'masked' :
  Number.isNaN(x)                                       ? 'not a number' :
                                                          fixed(x, digits);

/** Replace hyphens by minus signs. */
export const minus = text => String(text).replaceAll('-', '−');

/** Format x, in parentheses if it is negative. */
export const inner = (x, digits) => x < 0 ? `(${fixed(x, digits)})` : fixed(x, digits);

/** Format a sum of expressions, which the library wrote, and its value: "−0.3 · log(1 + 4) = −0.4828". */
export const calculation = (terms, value) =>
  minus(terms.length ? `${terms.join(' + ').replaceAll('+ -', '- ').replaceAll(' * ', ' · ')} = ${value}` : value);

/** Format a number for a calculation: up to four decimals, in parentheses if it is negative. */
export const short = x => {
  const text = String(+x.toFixed(4));
  return x < 0 && +text ? `(${text})` : text.replace('-', '');
};

/** Return a sum of products as expressions for `calculation`. If more than `max` products are nonzero, show only the
 * largest in magnitude. */
export function sumOfProducts(pairs, max = 8) {
  const size = ([x, y]) => Math.abs(x * y), whole = pairs.length <= max ? pairs : pairs.filter(pair => size(pair)),
        shown = whole.length <= max ? whole : [...whole].sort((a, b) => size(b) - size(a)).slice(0, max),
        rest = whole.length - shown.length;
  return [...shown.map(pair => pair.map(short).join(' * ')), ...(rest ? [`${rest} smaller products`] : [])];
}

/** Format how a weight in a row of Core.row is computed: exp of the score, divided by the sum of all exponentials in
 * the row. */
export function weightOf(row, j, score = fixed(row.score[j])) {
  if (row.score[j] === -Infinity) return 'masked';
  if (Number.isNaN(row.weights[j])) return 'not a number';
  const sum = row.lse < 700 && row.lse > -Infinity ? fixed(Math.exp(row.lse)) : `exp(${fixed(row.lse)})`;
  return calculation([`exp(${score}) / ${sum}`], fixed(row.weights[j]));
}

/** Format the calculation of x - y. */
export const differenceOf = (x, y) =>
  x === -Infinity ? 'masked' : calculation([`${fixed(x)} - ${inner(y)}`], fixed(x - y));

export function signed(x, digits = 4) {
  const text = fixed(x, digits);
  return x > 0 && !/^0\.?0*$/.test(text) ? '+' + text : text;
}

export function bytes(n) {
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  let unit = 0;
  while (n >= 1000 && unit < units.length - 1) n /= 1000, unit++;
  return `${n >= 100 || unit === 0 ? Math.round(n) : n.toFixed(1)} ${units[unit]}`;
}

/** Return the smallest and the largest finite number in some arrays, among the numbers above a bound; [0, 0] if there
 * is none. */
export function extent(arrays, above = -Infinity) {
  let min = Infinity, max = -Infinity;
  for (const data of arrays)
    for (let n = 0; n < data.length; n++) {
      const x = data[n];
      if (x > above && x < Infinity) {  // false for NaN
        if (x < min) min = x;
        if (x > max) max = x;
      }
    }
  return min > max ? [0, 0] : [min, max];
}

/** Return the number that has the index n after sorting. The array is partly sorted. */
export function nth(data, n) {
  let low = 0, high = data.length - 1;
  while (low < high) {
    const middle = data[(low + high) >> 1];
    let i = low, j = high;
    while (i <= j) {
      while (data[i] < middle) i++;
      while (data[j] > middle) j--;
      if (i <= j) {
        const x = data[i];
        data[i++] = data[j], data[j--] = x;
      }
    }
    if (n <= j) high = j;
    else if (n >= i) low = i;
    else break;
  }
  return data[n];
}

/** Return a value in the form that a setting accepts: one of its choices, a flag, a text, or a number that is limited
 * to lower … upper and rounded if the step is an integer. Return `other` if the value is invalid. */
export function fit({type, options, step = 1, lower = -Infinity, upper = Infinity}, value, other) {
  if (type === 'select')
    return options.map(option => [option].flat()[0]).find(choice => String(choice) === String(value)) ?? other;
  if (type === 'check') return value === true || value === '1';
  if (type === 'text') return String(value);
  const x = String(value).trim() === '' ? NaN : +value;
  return Number.isFinite(x) ? Math.min(Math.max(Number.isInteger(step) ? Math.round(x) : x, lower), upper) : other;
}

/** Return the smallest and the largest number that a setting can have in a state. */
export function limitsOf({lower = -Infinity, upper = Infinity, limit}, state) {
  const now = limit?.(state) ?? upper;
  return Array.isArray(now) ? now : [lower, Math.min(upper, now)];
}

/** Return the number of a setting, within its limits. */
export const limited = (spec, state) =>
  (([low, high]) => Math.min(Math.max(state[spec.key], low), high))(limitsOf(spec, state));

/** Return a sentence if a link, or a person (from), gives a setting a value that the view cannot show as it is,
 * otherwise ''. spec.limit: see `control`; want(text, state): what a text must be, or ''. */
export function misfit(spec, given, state, from = `The link has ${spec.key}=`) {
  const {key, label = key, type, options, step = 1, want} = spec;
  const say = (range, shown) =>
    minus(`${from}${given.slice(0, 40)}, but “${label}” must be ${range}: you see ${shown}.`);
  if (type === 'check') return '';
  if (type === 'text') {
    const range = want?.(given, state);
    return range ? say(range, 'the default') : '';
  }
  if (type === 'select') {
    const found = options.map(option => [option].flat()),
          name = value => `“${found.find(o => String(o[0]) === String(value))?.at(-1)}”`;
    return found.some(o => String(o[0]) === given) ?
      '' :
      say(`one of ${found.map(o => name(o[0])).join(', ')}`, name(state[key]));
  }
  const [low, high] = limitsOf(spec, state), shown = limited(spec, state);
  if (given.trim() && +given === shown) return '';
  return say(
    `a ${Number.isInteger(step) ? 'whole ' : ''}number${low > -Infinity ? ` from ${low} to ${count(high)}` : ''}`,
    shown);
}

let ids = 0;
const id = () => `e${ids++}`;

/** Create the slider and the field of a number; see `control`. ends(low, high, step): set those of the slider. */
function numberControl(spec, name, label, change) {
  let {lower, upper} = spec, shown;
  const read = input => () => {
    const given = input.value, of = {...spec, lower, upper, limit: undefined}, value = fit(of, given, shown),
          why = misfit(of, given, {[spec.key]: value}, given.trim() ? 'You wrote ' : 'You wrote nothing');
    if (value !== undefined) change(spec.key, value);
    if (why) number.value = value, number.dispatchEvent(new CustomEvent('refused', {bubbles: true, detail: why}));
  };
  const number = h(
    'input', {type: 'number', id: name, step: spec.step ?? 1, min: spec.lower, max: spec.upper, 'data-key': spec.key});
  const range =
    h('input', {type: 'range', 'aria-label': spec.label, min: spec.min, max: spec.max, step: spec.step ?? 1});
  number.addEventListener('change', read(number));
  range.addEventListener('input', read(range));
  return {
    element: h('div', {class: 'field'}, label, range, number),
    set: value => {
      if (+range.max < value) range.max = value;
      if (+range.min > value) range.min = value;
      range.value = shown = value;
      if (document.activeElement !== number || number.value === '' || +number.value !== value) number.value = value;
    },
    ends(low, high, step) {
      [range.min, range.max] = [low, high];
      if (spec.step !== 'any') range.step = step;
    },
    limit: now => {
      if (!Array.isArray(now ?? [])) range.max = number.max = upper = now;
      else {
        [lower, upper] = [number.min, number.max] = now ?? [spec.lower, spec.upper];
        range.min = Math.max(spec.min, lower);
        range.max = Math.max(range.min, Math.min(spec.max, upper));
      }
    }
  };
}

/** Create a control for state[key]. spec: {key, label, type: range|select|check|text, min, max (limits of the slider),
 * lower, upper (limits of the number), limit(state) (a limit below upper, both limits, or undefined), step, options}.
 * Return {element, set}. If a number cannot be used, its field sends the event `refused` with a sentence. */
export function control(spec, change) {
  const name = id(), label = h('label', {for: name
  }, spec.label);
  if (spec.type === 'check') {
    const input =
      h('input', {type: 'checkbox', id: name, 'data-key': spec.key, onchange: () => change(spec.key, input.checked)});
    return {
      element: h('div', {class: 'check'}, input, label),
      set: value => {
        input.checked = value;
      }
    };
  }
  if (spec.type === 'select') {
    const input =
      h('select', {id: name, class: 'wide', 'data-key': spec.key, onchange: () => change(spec.key, input.value)},
        spec.options.map(option => {
          const [value, text] = Array.isArray(option) ? option : [option, option];
          return h('option', {value}, text);
        }));
    return {
      element: h('div', {class: 'field'}, label, input),
      set: value => {
        input.value = value;
      }
    };
  }
  if (spec.type === 'text') {
    const input = h('input', {
      type: 'text',
      id: name,
      class: 'wide',
      spellcheck: 'false',
      autocomplete: 'off',
      placeholder: spec.placeholder,
      'data-key': spec.key,
      oninput: () => change(spec.key, input.value)
    });
    return {
      element: h('div', {class: 'field'}, label, input),
      set: value => {
        if (input.value !== value) input.value = value;
      }
    };
  }
  return numberControl(spec, name, label, change);
}

/** Create a form with a control for every spec that has a label; other settings are changed elsewhere in the view.
 * set(state) shows a state. */
export function controls(specs, change, ...more) {
  const made = specs.filter(spec => spec.label).map(spec => [spec, control(spec, spec.change ?? change)]);
  return {
    specs,
    element: h('form', {class: 'controls', onsubmit: event => event.preventDefault(), 'aria-label': 'Settings'},
      made.map(([, c]) => c.element), more),
    set: state => made.forEach(([spec, c]) => {
      if (spec.limit) c.limit(spec.limit(state));
      c.set(state[spec.key]);
    }),
    of: key => made.find(([spec]) => spec.key === key)[1],
  };
}

/** Create a part of a view that the reader opens. */
export const folded = (title, ...parts) => h('details', {}, h('summary', {}, title), parts);

/** Add a line below a table. It shows the calculation of the cell under the mouse or with the focus; calculation(row,
 * column) returns its text. Tab reaches one cell, and the arrow keys move to the others. */
function explainCells(element, calculation) {
  const said = h('p', {class: 'readout hint', 'aria-live': 'polite'},
    'Point at a cell to see its calculation, or use Tab and the arrow keys.');
  const rows = [...element.querySelectorAll('tbody tr')].map(row => [...row.cells].slice(1));
  const at = cell => {
    const r = rows.findIndex(row => row.includes(cell));
    return r < 0 ? null : [r, rows[r].indexOf(cell)];
  };
  const show = cell => {
    const place = at(cell);
    if (place) said.textContent = calculation(...place);
  };
  const enter = cell => {
    for (const other of rows.flat()) other.tabIndex = other === cell ? 0 : -1;
  };
  if (rows[0]?.[0]) enter(rows[0][0]);
  element.addEventListener('pointerover', event => show(event.target.closest('td')));
  element.addEventListener(
    'pointerleave', () => show(element.contains(document.activeElement) ? document.activeElement : null));
  element.addEventListener('focusin', event => {
    if (at(event.target)) enter(event.target), show(event.target);
  });
  element.addEventListener('keydown', event => {
    const place = at(event.target),
          step = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}[event.key];
    if (!place || !step) return;
    event.preventDefault();
    const next = rows[place[0] + step[0]]?.[place[1] + step[1]];
    next?.focus();
  });
  return h('div', {}, element, said);
}

/** Create a table of numbers. rows: [[label, x...]]; calculation: see explainCells. */
export function table(head, rows, {digits = 4, sign = false, caption = '', mark, calculation} = {}) {
  const text = cell => typeof cell === 'number' ? minus((sign ? signed : fixed)(cell, digits)) :
    typeof cell === 'string'                    ? cell.replace(/^-(?=\d|inf)/, '−') :
                                                  cell;
  const element = h('div', {class: 'scroll', tabindex: 0, role: 'group', 'aria-label': caption || 'table'},
    h('table', {}, caption ? h('caption', {class: 'note'}, h('span', {}, caption)) : null,
      h('thead', {class: 'num'}, h('tr', {}, head.map(cell => cell === '' ? h('td') : h('th', {scope: 'col'}, cell)))),
      h('tbody', {},
        rows.map((row, r) => h('tr', {},
                   row.map((cell, c) => c === 0 ?
                       h('th', {scope: 'row', ...(mark?.(r, c) ? {class: mark(r, c)} : {})}, text(cell)) :
                       h('td', mark?.(r, c) ? {class: mark(r, c)} : {}, text(cell))))))));
  return calculation ? explainCells(element, calculation) : element;
}

/** Return the rows of a matrix for `table`; each row has n numbers. */
export function rowsOf(names, data, n) { return names.map((name, r) => [name, ...data.slice(r * n, (r + 1) * n)]); }

/** Return the index among n in a row to which an arrow key, Home or End moves from the index `at`, or null for another
 * key. */
export function arrows(event, at, n) {
  const by = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1, Home: -n, End: n}[event.key];
  if (!by) return null;
  event.preventDefault();
  return Math.min(Math.max(at + by, 0), n - 1);
}

/** Show a button for each word; the chosen word, if it is one of them, is pressed. If the words have not changed, keep
 * the buttons, which keeps the focus. Tab reaches one word, and the arrow keys move to the others. */
export function wordButtons(box, words, chosen, pick) {
  const key = words.join('\n');
  if (box.of !== key) {
    box.of = key;
    box.replaceChildren(...words.map(
      (word, n) => h('button', {type: 'button', 'aria-pressed': false, tabindex: -1, onclick: () => pick(n)}, word)));
    box.onkeydown = event => {
      const at = [...box.children].indexOf(event.target), to = at < 0 ? null : arrows(event, at, box.children.length);
      if (to === null) return;
      event.target.tabIndex = -1, box.children[to].tabIndex = 0;
      box.children[to].focus();
    };
  }
  for (const n of new Set([box.chosen, chosen])) {
    const button = box.children[n];
    button?.setAttribute('aria-pressed', n === chosen);
    if (button) button.tabIndex = n === chosen ? 0 : -1;
  }
  if (!box.querySelector('[tabindex="0"]')) box.lastChild.tabIndex = 0;
  box.chosen = chosen;
}

/** Keep the chosen word of wordButtons, or the element of the class query, in sight where a style limits the height of
 * the box: when the box appears or changes its size, and after another word has been chosen; the view then calls the
 * returned function. Only the box scrolls, never the page. The box has the class more-above or more-below while words
 * are hidden there. */
export function followChosen(box) {
  let last = null;
  const find = () => box.querySelector('[aria-pressed=true], .query'), follow = () => {
    last = find();
    if (!last || box.scrollHeight <= box.clientHeight) return;
    const {top, bottom} = box.getBoundingClientRect(), word = last.getBoundingClientRect();
    box.scrollTop += Math.min(word.top - top, 0) + Math.max(word.bottom - bottom, 0);
  };
  const show = () => {
    box.classList.toggle('more-above', box.scrollTop > 2);
    box.classList.toggle('more-below', box.scrollTop + box.clientHeight < box.scrollHeight - 2);
  };
  box.addEventListener('scroll', show);
  new ResizeObserver(() => (follow(), show())).observe(box);
  return () => find() !== last && follow();
}

/** Return a function that marks elements as belonging to earlier settings if it is called with true, and unmarks them
 * if with false. Marks appear only after a moment, so that a term that is still being typed does not dim the page. */
export function marker(elements) {
  let timer = 0;
  return stale => {
    const mark = () => elements.forEach(element => element.classList.toggle('stale', stale));
    clearTimeout(timer);
    if (stale) timer = setTimeout(mark, 1000);
    else mark();
  };
}

/** Run a generator in pieces of a few milliseconds, so that the page keeps responding: the first piece at once, the
 * others later while wanted() is true. Call last() if the last piece was a later one. Return {done, go(), finish()}: go
 * continues after a time when it was not wanted, and finish runs the rest at once. */
export function inPieces(steps, wanted, last) {
  let timer = 0;
  const job = {
    done: false,
    run(ms) {
      for (const end = performance.now() + ms; !job.done && performance.now() < end;) job.done = steps.next().done;
    },
    go() {
      if (!job.done) timer ||= setTimeout(piece);
    },
    finish: () => job.run(Infinity)
  };
  const piece = () => {
    timer = 0;
    if (job.done || !wanted()) return;
    job.run(12);
    if (job.done) last();
    else job.go();
  };
  job.run(12);
  job.go();
  return job;
}

/** Create a button that copies the text of(), and says in `status` that it did, or that the browser refuses and what to
 * do instead. */
export const copyButton = (label, of, status, instead) => h('button', {
  type: 'button',
  onclick: async () => {
    try {
      await navigator.clipboard.writeText(of());
      status.textContent = 'copied';
    } catch { status.textContent = `the browser does not let this page copy: ${instead}`; }
  }
},
  label);

/** Return the full address of this page with another fragment. A link with only "#bias" would mean an element of that
 * name: tools that check accessibility then search the page for it. */
export const addressOf = fragment => location.href.split('#')[0] + fragment;

/** Create a link to a view with its last state. */
export const viewLink = (view, text) => h('a', {href: addressOf(`#${view.id}`), 'data-view': view.id}, text);

/** Create a field that opens a file: open(file). */
export function fileField(attributes, open) {
  const input = h('input', {
    type: 'file',
    ...attributes,
    onchange: () => {
      if (input.files[0]) open(input.files[0]);
      input.value = '';
    }
  });
  return input;
}

export function download(name, blob) {
  const url = URL.createObjectURL(blob), link = h('a', {href: url, download: name});
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** Matches where the page has one column; in explorer.css, too. The settings of a view are then a sheet at the bottom,
 * closed at first. */
export const narrow = matchMedia('(max-width: 900px)');

const dark = matchMedia('(prefers-color-scheme: dark)'), seen = new Map();
/** Return the colour scheme of the page: light or dark. */
export const scheme = () => document.documentElement.dataset.theme || (dark.matches ? 'dark' : 'light');

/** Return a colour of the page's style, for canvases and saved pictures. Each colour is read only once, because reading
 * it makes the browser compute the layout. */
export function colour(name) {
  const key = `${scheme()} ${name}`;
  if (!seen.has(key)) seen.set(key, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  return seen.get(key);
}
