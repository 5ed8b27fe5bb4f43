// images.js -- the view of positions on a grid: windows, patches, a class token; absolute and relative positions.
// SPDX-License-Identifier: Apache-2.0
import {cArrays, nested, printedBiases, program, pythonTerm, randomArrays, shell} from '../code.js';
import {ofElement} from '../export.js';
import {frame} from '../frame.js';
import {HeatMap} from '../heat.js';
import {calculation, controls, fixed, h, minus, table} from '../ui.js';

import {furthest, movedObject} from './moved.js';

/** Tables with structures that training can also find, as functions of the offset in rows and columns. The heads of a
 * trained table are added below. */
const tables = {
  entries: {title: 'none: entry c is the number c'},
  near: {title: 'prefers near patches', bias: (dy, dx) => -0.5 * Math.hypot(dy, dx)},
  row: {title: 'prefers the same row', bias: (dy, dx) => -0.8 * Math.abs(dy) - 0.1 * Math.abs(dx)},
  below:
    {title: 'prefers patches below and to the right', bias: (dy, dx) => 0.3 * (dy + dx) - 0.1 * (dy * dy + dx * dx)},
};

/** Draw a picture of discs that cover each other, like those of examples/data/train_window.py, as an image for the
 * style. */
function discs(rows, columns) {
  const each = 32, canvas = h('canvas', {width: columns * each, height: rows * each}), brush = canvas.getContext('2d');
  brush.fillStyle = '#eee';  // where no disc is, in both themes
  brush.fillRect(0, 0, canvas.width, canvas.height);
  let seed = 8;
  const random = () => (seed = (seed * 1103515245 + 12345) % 2 ** 31) / 2 ** 31;
  for (let n = 0; n < 60; n++) {
    const radius = Math.min(rows, columns) * each * 0.07 / (0.1 + 0.9 * random());
    const [x, y] = [columns, rows].map(side => (1.4 * random() - 0.2) * side * each);
    brush.fillStyle = `hsl(${Math.round(360 * random())} 45% ${Math.round(45 + 45 * random())}%)`;
    brush.beginPath();
    brush.arc(x, y, radius, 0, 7);
    brush.fill();
  }
  return `url(${canvas.toDataURL()})`;
}

/** Return the heads of a trained table, (2 W - 1)² x heads, in the form of `tables`. The table is for offsets query
 * minus key. */
function trainedTables({shape: [, heads], data, side}) {
  const wide = 2 * side - 1;
  return Object.fromEntries([...Array(heads).keys()].map(head => [`trained${head}`, {
    title: `trained: head ${head} of ${heads}`,
    trained: true,
    bias: (dy, dx) => data[((side - 1 - dy) * wide + side - 1 - dx) * heads + head]
  }]));
}

/** Return the size of the grid: {extra: 1 with a class token, rows, columns, n: all tokens}. A grid for a trained table
 * has at most `side` rows and columns. */
function sizeOf(core, {kind, extra: wanted, table, rows: tall, columns: wide}, side) {
  const extra = wanted && 'extra' in core.kindOf[kind].defaults ? 1 : 0, most = tables[table] ? 24 : side,
        rows = Math.min(tall, most), columns = Math.min(wide, most);
  return {extra, rows, columns, n: rows * columns + extra};
}

/** Create the controls of the view. */
function settingsOf({core, facts, change}, everyTable) {
  const kinds = core.kinds.filter(kind => kind.bias && 'grid' in kind.defaults).map(kind => kind.name),
        {side} = facts.window, whole = {kind: 'swin', rows: side, columns: side, extra: false};
  return controls(
    [
      {
        key: 'kind',
        label: 'Term',
        type: 'select',
        options: kinds.map(name => [name, `${name}: ${facts.terms[name].title}`])
      },
      {
        key: 'table',
        label: 'Table',
        type: 'select',
        options: Object.entries(everyTable).map(([key, {title}]) => [key, title]),
        change: (_, name) =>
          change({table: name, ...(everyTable[name].trained ? {...whole, patch: (side * side - 1) / 2} : {})})
      },
      {key: 'down', lower: -23, upper: 23},
      {key: 'right', lower: -23, upper: 23},
      {key: 'rows', label: 'Rows of the grid', type: 'range', min: 1, max: 14, lower: 1, upper: 24},
      {key: 'columns', label: 'Columns of the grid', type: 'range', min: 1, max: 14, lower: 1, upper: 24},
      {key: 'extra', label: 'a class token before the patches', type: 'check'},
      {
        key: 'patch',
        label: 'Query: token',
        type: 'range',
        min: 0,
        max: 15,
        lower: 0,
        limit: state => sizeOf(core, state, side).n - 1
      },
      {key: 'moved', label: 'Object moved by', type: 'range', min: 0, max: furthest, lower: 0, upper: furthest},
    ],
    change);
}

/** Create the maps of the view. links: see linksOf. */
function mapsOf(links, change) {
  return {
    matrix: new HeatMap({
      title: 'Every pair of tokens',
      onpick: (r, c) => change({patch: r, ...links.pair(r, c)}),
      onlook: (r, c) => links.show(r, c)
    }),
    offsets: new HeatMap({
      title: 'Every offset',
      rows: 'row offset',
      columns: 'column offset',
      onpick: (r, c) => change(links.offset(r, c)),
      onlook: (r, c) => links.point(r, c)
    })
  };
}

/** Arrange the picture with its patches, the maps and the numbers on the page. shape: the grid for which the picture
 * has buttons; scene: the image behind them. */
function pageOf({matrix, offsets}, moved, example) {
  const patches =
          h('div', {class: 'grid', role: 'group', 'aria-label': 'Patches: the bias of each for the chosen patch'}),
        classes = h('div', {class: 'row'}), said = h('p', {class: 'readout', role: 'status'}),
        note = h('p', {class: 'note'}), heading = h('h3'), numbers = h('div'), picture = h('div', {}, classes, patches);
  const output =
    h('div', {}, h('div', {class: 'panels'}, h('div', {}, heading, picture, said), offsets.element, matrix.element),
      note, h('details', {}, h('summary', {}, 'The numbers of the chosen patch'), numbers), moved.element,
      h('h3', {}, 'Four patches: absolute against relative'), example);
  return {output, heading, picture, classes, patches, said, note, numbers, shape: '', scene: ''};
}

/** Compute the example of four patches: {content, absolute, relative}, each with the rows of all queries. */
function fourPatches(core, {VIT4_X: X, VIT4_PLACED: P, VIT4_BIAS: B}) {
  const tokens = 4;
  const of = (data, terms) => {
    core.problem({lenQ: tokens, lenK: tokens, dimK: 2, terms, q: data, k: data, v: X.data});
    return [...Array(tokens).keys()].map(i => core.row(0, i));
  };
  return {
    content: of(X.data, []),
    absolute: of(P.data, []),
    relative: of(X.data, [{text: 'dense', arrays: {bias: {shape: [tokens, tokens], data: B.data}}}])
  };
}

/** Return the tables of the example of four patches. */
function fourTables(four) {
  // cells whose numbers in the vision notes are wrong: docs/texts/s2.md
  const errata = {
    content: ['2,3', '3,2'],
    absolute: ['1,1', '1,2', '1,3', '2,1', '2,2', '3,1', '3,3'],
    relative: ['0,3', '1,0', '1,2', '1,3', '2,3', '3,1', '3,2']
  };
  const names = ['(0,0)', '(0,1)', '(1,0)', '(1,1)'], said = {
    content: 'Content only: x xᵀ / √2',
    absolute: 'Absolute, as in ViT: (x + p)(x + p)ᵀ / √2',
    relative: 'Relative, as in Swin: content + bias of (row, column) of the query minus those of the key'
  };
  return h('div', {},
    h('p', {class: 'note'},
      'The example of the notes on vision transformers: a 2 × 2 grid with the patches [1, 0], [0, 1], [1, 1], [0, ' +
        '0]. In the shaded cells the notes have wrong numbers, which are corrected here (docs/texts/s2.md).'),
    h('div', {class: 'panels pairs'},
      Object.entries(four).map(
        ([key, rows]) => h('div', {},
          table(['scores', ...names], rows.map((row, i) => [names[i], ...row.score]),
            {digits: 3, caption: said[key], mark: (r, c) => errata[key].includes(`${r},${c - 1}`) ? 'mark' : ''}),
          table(['weights', ...names], rows.map((row, i) => [names[i], ...row.weights]), {digits: 3})))));
}

/** Return the size of a grid, the query, and functions between tokens and places. The map of offsets has all offsets in
 * both directions, key minus query: tall rows and wide columns. */
function placesOf(size, query) {
  const {extra, rows, columns} = size, rowOf = j => Math.floor((j - extra) / columns),
                      columnOf = j => (j - extra) % columns;
  return {
    ...size,
    query,
    tall: 2 * rows - 1,
    wide: 2 * columns - 1,
    rowOf,
    columnOf,
    place: j => j < extra ? 'class token' : `row ${rowOf(j)}, column ${columnOf(j)}`,
    pairOf: (r, c) => {  // return the first pair with an offset
      const dy = r - rows + 1, dx = c - columns + 1;
      return [
        Math.max(0, -dy) * columns + Math.max(0, -dx) + extra, Math.max(0, dy) * columns + Math.max(0, dx) + extra
      ];
    },
    offsetOf: (i, j) =>
      i < extra || j < extra ? null : [rowOf(j) - rowOf(i) + rows - 1, columnOf(j) - columnOf(i) + columns - 1],
    keyAt: (r, c) => {  // return the key at an offset from the query, or -1
      const row = rowOf(query) + r - rows + 1, column = columnOf(query) + c - columns + 1;
      return query >= extra && row >= 0 && column >= 0 && row < rows && column < columns ?
        row * columns + column + extra :
        -1;
    }
  };
}

/** Compute the biases of a term on a grid. bias(dy, dx): the chosen table, if any. given: its numbers in the order of
 * the library, or null if the term does not read them; entries: true if the term reads a table that the library can
 * show. */
function biasesOf(core, kind, {extra, rows, columns, n, rowOf, columnOf}, bias) {
  const text = `${kind},grid=${rows}x${columns}${extra ? ',extra=1' : ''}`;
  core.problem({lenQ: n, lenK: n, terms: [text]});
  const entries = core.meaning === 'entry' ? core.bias() : null;  // the table entry that each pair reads
  const given =
    entries && bias ? {shape: core.shape(text, 'table'), data: new Float64Array(core.shape(text, 'table')[0])} : null;
  for (let i = extra; given && i < n; i++)
    for (let j = extra; j < n; j++)
      given.data[entries[i * n + j]] = +bias(rowOf(j) - rowOf(i), columnOf(j) - columnOf(i)).toFixed(4);
  const problem = {lenQ: n, lenK: n, terms: [given ? {text, arrays: {table: given}} : text]};
  core.problem(problem);
  return {
    text,
    problem,
    entries: !!entries,
    given,
    data: core.bias(),
    value: core.meaning === 'entry' ? 'entry' : 'bias',
    expression: (r, c, x) => calculation(core.problem(problem).expressions(0, r, c), fixed(x))
  };
}

/** Return functions that connect places in the maps to places on the grid. */
function linksOf({extra, rows, columns, rowOf, columnOf, offsetOf, keyAt}, offsets, patches) {
  const look = j => [...patches.children].forEach((button, at) => button.classList.toggle('look', at + extra === j));
  return {
    look,
    show: (i, j) => {
      const at = offsetOf(i, j);
      if (at) offsets.mark(...at);
    },
    point: (r, c) => look(keyAt(r, c)),
    offset: (r, c) => ({down: r - rows + 1, right: c - columns + 1}),
    pair: (i, j) => i < extra || j < extra ? {} : {down: rowOf(j) - rowOf(i), right: columnOf(j) - columnOf(i)}
  };
}

/** Show the biases of all pairs in the map. key: the key at the chosen offset, or -1. */
function showPairs(map, {extra, n, query, place}, {text, data, value, expression}, key) {
  const before = map.cursor[1], ofClass = map.data && before < extra;
  map.show({
    data,
    rows: n,
    columns: n,
    cursor: [query, key < 0 || ofClass ? before : key],  // both maps mark the same pair
    title: `${text}: every pair of tokens`,
    value,
    label: (r, c, x) => `${place(r)} → ${place(c)}: ${expression(r, c, x)}`
  });
}

/** Return the bias of each offset: that of the first pair with this offset. */
const byOffset = ({n, tall, wide, pairOf}, data) => Float64Array.from({length: tall * wide}, (_, at) => {
  const [i, j] = pairOf(Math.floor(at / wide), at % wide);
  return data[i * n + j];
});

/** Show the bias of each offset in the map. */
function showOffsets(map, {rows, columns, tall, wide, pairOf}, {value, expression}, data, cursor) {
  const way = (x, less, more) => x ? `${Math.abs(x)} ${x < 0 ? less : more}` : '';
  map.show({
    data,
    rows: tall,
    columns: wide,
    places: {
      rows: [...Array(tall).keys()].map(r => r - rows + 1),
      columns: [...Array(wide).keys()].map(c => c - columns + 1)
    },
    cursor,
    title: `Every offset: ${tall} × ${wide}`,
    value,
    label: (r, c, x) => {
      const dy = r - rows + 1, dx = c - columns + 1, pairs = (rows - Math.abs(dy)) * (columns - Math.abs(dx));
      return `${[way(dy, 'up', 'down'), way(dx, 'left', 'right')].filter(Boolean).join(', ') || 'the patch itself'}: ${
        expression(...pairOf(r, c), x)}; ${pairs} of ${rows * columns * rows * columns} pairs read it`;
    }
  });
}

/** Make the buttons of the patches and of the class token. While the grid is the same, keep them, which keeps the
 * focus. */
function makeButtons(page, {extra, rows, columns, n}, links, change) {
  const {patches, classes} = page, look = j => links.show(+patches.dataset.query, j + extra);
  if (page.shape === `${n},${columns}`) return;
  page.shape = `${n},${columns}`;
  page.scene = discs(rows, columns);
  patches.style.gridTemplateColumns = `repeat(${columns}, 1fr)`;
  patches.replaceChildren(...[...Array(rows * columns).keys()].map(j => h('button', {
    type: 'button',
    onclick: () => change({patch: j + extra}),
    onpointerenter: () => look(j),
    onfocus: () => look(j),
    onkeydown: event => {
      const step = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns}[event.key],
            to = patches.children[j + step];
      if (!step) return;
      event.preventDefault();
      to?.focus(), to?.click();
    }
  })));
  classes.replaceChildren(...(extra ? [h('button', {type: 'button', onclick: () => change({patch: 0})})] : []));
}

/** Return how the biases of the query are shown. seen: biases become weights, which lift a veil from the picture; the
 * number of a table's entry is shown as it is. */
function rowOfQuery({n, query}, {data, value}) {
  const at = j => data[query * n + j], digits = value === 'entry' ? 0 : 2;
  let low = Infinity, high = -Infinity;
  for (let j = 0; j < n; j++) low = Math.min(low, at(j)), high = Math.max(high, at(j));
  const weight = j => Math.exp(at(j) - high), sum = [...Array(n).keys()].reduce((sum, j) => sum + weight(j), 0);
  return {
    at,
    digits,
    low,
    high,
    seen: value === 'bias',
    number: j => minus(fixed(at(j), digits)),
    weight,
    sum,
    least: weight([...Array(n).keys()].find(j => at(j) === low))
  };
}

/** Show the biases of the query on the buttons. */
function paintButtons({heading, classes, patches, scene}, {extra, query, place}, value, row) {
  const {at, low, high, seen, number, weight, sum, least} = row,
                                                   lit = j => high > low ? (weight(j) - least) / (1 - least) : 1;
  heading.textContent = seen ? 'Choose a patch: weights by bias' : 'Choose a patch: entries of the others';
  patches.classList.toggle('seen', seen);
  patches.style.backgroundImage = seen ? scene : 'none';
  [...classes.children, ...patches.children].forEach((button, j) => {
    const fraction = high > low ? (at(j) - low) / (high - low) : 0.5;
    button.replaceChildren(j < extra ? 'class token: ' : '', h('span', {}, number(j)));
    button.style.background = seen && j >= extra ?
      `rgb(0 0 0 / ${(0.8 * (1 - lit(j))).toFixed(3)})` :
      `color-mix(in srgb, var(--s0) ${Math.round(fraction * 45)}%, var(--bg))`;
    button.setAttribute('aria-pressed', j === query);
    button.tabIndex = j === Math.max(query, extra) || j < extra ?
      0 :
      -1;  // Tab reaches the chosen patch, and the arrow keys the others
    button.setAttribute(
      'aria-label', `${place(j)}: ${value} ${number(j)}${seen ? `, weight ${fixed(weight(j) / sum, 3)}` : ''}`);
    button.title = seen ? `${value} ${number(j)}, weight ${fixed(weight(j) / sum, 3)}` : '';
  });
}

/** Show the biases of the query as a table of the patches. */
function showNumbers(box, {extra, rows, columns}, value, {at, digits}) {
  const patches = [...Array(rows).keys()].map(
    row => [`row ${row}`, ...[...Array(columns).keys()].map(column => at(row * columns + column + extra))]);
  box.replaceChildren(
    table([value, ...[...Array(columns).keys()].map(column => `column ${column}`)], patches, {digits}));
}

/** Return a sentence about the numbers of the query. */
const rangeText = (place, value, {low, high, digits, seen, least, sum}) =>
  `Query: ${place}: ${value} from ${minus(fixed(low, digits))} to ${minus(fixed(high, digits))}${
    seen ? `, weights from ${fixed(least / sum, 3)} (dark) to ${fixed(1 / sum, 3)} (bright)` : ''}.`;

/** Return a sentence about the origin of the numbers. */
const originText = ({random, given, trained}, {side, errors}) => random ?
  'Without arrays, the numbers are random, and the same as on the command line.' :
  given && trained ?
  `Trained by examples/data/train_window.py: relpos.torch.WindowAttention fills in hidden patches of pictures ` +
    `of discs, in a window of ${side} × ${side} patches. The mean squared error on other pictures is ${
      errors['with the table']} with this table, ${errors['without a table']} for a layer without a table, and ${
      errors['mean grey']} for the mean grey.` :
  given ? 'This table is not trained, but has a structure that training can also find.' :
          'Without a table, entry c is the number c. Pairs with the same number read the same learned entry.';

/** Return the figures that can be saved. */
function savesOf({maps, picture, grid, biases, offsets, row, moved}) {
  const {rows, columns, n, wide, query, place} = grid, {text, data, value} = biases, {at, seen, weight, sum} = row;
  return {
    pairs: {
      figure: maps.matrix,
      csv: () => [['head', 'query', 'key', 'bias'], ...[...data].map((x, m) => [0, Math.floor(m / n), m % n, x])]
    },
    patches: {
      figure: ofElement(picture, `${text}, query ${query}`),
      csv: () => [['token', value, ...(seen ? ['weight'] : [])],
        ...[...Array(n).keys()].map(j => [place(j), at(j), ...(seen ? [weight(j) / sum] : [])])]
    },
    offsets: {
      figure: maps.offsets,
      csv: () => [['rows', 'columns', 'bias'],
        ...[...offsets].map((x, m) => [Math.floor(m / wide) - rows + 1, m % wide - columns + 1, x])]
    },
    moved: {
      figure: moved.maps[0],
      csv: () => [['moved by', 'absolute', 'relative', 'windows', 'shifted windows'], ...moved.rows]
    }
  };
}

/** Return commands, Python code and a C program that print the biases. The problem in `core` must contain the term. */
function codeOf({core, facts}, {n, query}, {text, given}, random) {
  const cli = shell(['relpos', 'bias', given ? `${text},table=t` : text, ...(given ? ['--input', 'window.npz'] : [])]),
        listed = given ? nested(given.data, given.shape) : '';
  return {
    CLI: `${given ? `python3 -c 'import numpy as np; np.savez("window.npz", t=${listed})'\n` : ''}${cli}\n${
      cli} --json     # every number\n`,
    Python: `import numpy as np, relpos\n${random ? '# random numbers: replace them by your arrays\n' : ''}print(${
      pythonTerm(
        core, facts, text, given ? {table: `np.array(${listed})`} : {})}.matrix(${n}, ${n}, heads=1)[0][${query}])\n`,
    C: program({
      desc: [1, 1, n, n, 1],
      settings: ['dtype = RP_F64'],
      terms: [text],
      arrays: given ? [{term: 0, index: 0, name: 'table', ...given}] : cArrays(core, [text]),
      call: printedBiases({heads: 1, lenQ: n, lenK: n, head: 0, query})
    }),
  };
}

export const images = {
  id: 'images',
  title: 'Images: offsets by row and column',
  name: 'Images',
  terms: ['swin', 'axial'],  // for these terms, the view of biases has a link to this view
  defaults: {
    kind: 'swin',
    table: 'trained2',
    rows: 7,
    columns: 7,
    extra: false,
    patch: 24,
    down: 0,
    right: 0,
    moved: 1,
    save: 'pairs'
  },

  make({core, facts, change}) {
    const learned = facts.window, everyTable = {...tables, ...trainedTables(learned)},
          settings = settingsOf({core, facts, change}, everyTable), four = fourPatches(core, facts.golden),
          moved = movedObject(core, settings.of('moved').element);
    const links = {},  // what linksOf returned for the last picture
      maps = mapsOf(links, change), page = pageOf(maps, moved, fourTables(four));
    const compute = state => {
      const {kind} = state, size = sizeOf(core, state, learned.side), {rows, columns, n} = size,
            query = Math.min(state.patch, n - 1), grid = placesOf(size, query),
            {bias, trained} = everyTable[state.table];
      settings.set({...state, rows, columns, patch: query});
      settings.of('extra').element.hidden = !('extra' in core.kindOf[kind].defaults);
      const biases = biasesOf(core, kind, grid, bias), {text, given, data, value} = biases,
            offsets = byOffset(grid, data), row = rowOfQuery(grid, biases);
      settings.of('table').element.hidden = !biases.entries;
      Object.assign(links, linksOf(grid, maps.offsets, page.patches));
      const within = (x, n) => Math.min(Math.max(x, 1 - n), n - 1) + n - 1,
            chosen = [within(state.down, rows), within(state.right, columns)], key = grid.keyAt(...chosen);
      showPairs(maps.matrix, grid, biases, key);
      showOffsets(maps.offsets, grid, biases, offsets, chosen);
      links.look(key);
      makeButtons(page, grid, links, change);
      paintButtons(page, grid, value, row);
      showNumbers(page.numbers, grid, value, row);
      page.patches.dataset.query = query;
      moved.show(state.moved);
      core.problem(biases.problem);
      const random = randomArrays(core, text);
      page.said.textContent = rangeText(grid.place(query), value, row);
      page.note.textContent = originText({random, given, trained}, learned);
      return {
        name: `images-${kind}`,
        docs: [kind],
        numbers: {
          data: [...data],
          moved: moved.maps.map(map => map.data),
          four: Object.fromEntries(Object.entries(four).map(([key, rows]) => [key, rows.map(row => [...row.score])]))
        },
        saves: savesOf({maps, picture: page.picture, grid, biases, offsets, row, moved}),
        code: codeOf({core, facts}, grid, biases, random)
      };
    };
    return frame({
      title: this.title,
      facts,
      compute,
      output: page.output,
      settings,
      saves: {
        pairs: 'the map of pairs',
        offsets: 'the map of offsets',
        patches: 'the picture with its patches',
        moved: 'the object that moves'
      },
      change,
      about:
        'The patches of an image, or of a window of an image, are tokens on a grid. The bias of a pair depends on ' +
        'the number of rows and columns between them: all pairs with the same offset read the same entry.',
      formula: 'swin: table[index(rows, columns between query and key), h]      axial: bh[rows] + bw[columns]'
    });
  },
};
