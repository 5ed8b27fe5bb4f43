// images.js -- the view of positions on a grid: windows, patches, a class token; absolute and relative positions.
// SPDX-License-Identifier: Apache-2.0
import {cArrays, nested, program, pythonTerm, randomArrays, shell} from '../code.js';
import {ofElement} from '../export.js';
import {frame} from '../frame.js';
import {HeatMap} from '../heat.js';
import {calculation, controls, fixed, h, minus, table} from '../ui.js';

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

export const images = {
  id: 'images',
  title: 'Images: offsets by row and column',
  name: 'Images',
  terms: ['swin', 'axial'],  // for these terms, the view of biases has a link to this view
  defaults:
    {kind: 'swin', table: 'trained2', rows: 7, columns: 7, extra: false, patch: 24, down: 0, right: 0, save: 'pairs'},

  make({core, facts, change}) {
    // the trained table, (2 W - 1)² x heads, for offsets query minus key
    const {shape: [, heads], data: trained, side, errors} = facts.window, wide = 2 * side - 1;
    const learned = Object.fromEntries([...Array(heads).keys()].map(head => [`trained${head}`, {
      title: `trained: head ${head} of ${heads}`,
      trained: true,
      bias: (dy, dx) => trained[((side - 1 - dy) * wide + side - 1 - dx) * heads + head]
    }]));
    const everyTable = {...tables, ...learned};
    const kinds = core.kinds.filter(kind => kind.bias && 'grid' in kind.defaults).map(kind => kind.name);
    /** Return the size of the grid: {extra: 1 with a class token, rows, columns, n: all tokens}. */
    const sizeOf = state => {
      const extra = state.extra && 'extra' in core.kindOf[state.kind].defaults ? 1 : 0,
            most = learned[state.table] ? side : 24, rows = Math.min(state.rows, most),
            columns = Math.min(state.columns, most);
      return {extra, rows, columns, n: rows * columns + extra};
    };
    const settings =
      controls(
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
            change: (_, name) => change({
              table: name,
              ...(learned[name] ?
                  {kind: 'swin', rows: side, columns: side, extra: false, patch: (side * side - 1) / 2} :
                  {})
            })
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
            limit: state => sizeOf(state).n - 1
          },
        ],
        change);
    const grid =
            h('div', {class: 'grid', role: 'group', 'aria-label': 'Patches: the bias of each for the chosen patch'}),
          classes = h('div', {class: 'row'}), said = h('p', {class: 'readout', role: 'status'}),
          note = h('p', {class: 'note'}), heading = h('h3'), numbers = h('div');
    const matrix = new HeatMap({
      title: 'Every pair of tokens',
      onpick: (r, c) => change({patch: r, ...links.pair(r, c)}),
      onlook: (r, c) => links.show(r, c)
    }),
          offsets = new HeatMap({
            title: 'Every offset',
            rows: 'row offset',
            columns: 'column offset',
            onpick: (r, c) => change(links.offset(r, c)),
            onlook: (r, c) => links.point(r, c)
          }),
          example = h('div');
    const picture = h('div', {}, classes, grid);
    let links = null;  // functions that connect places in the maps to places in the grid, for the last picture
    const output =
      h('div', {}, h('div', {class: 'panels'}, h('div', {}, heading, picture, said), offsets.element, matrix.element),
        note, h('details', {}, h('summary', {}, 'The numbers of the chosen patch'), numbers),
        h('h3', {}, 'Four patches: absolute against relative'), example);
    let shape = '', scene = '';

    const {VIT4_X: X, VIT4_PLACED: P, VIT4_BIAS: B} = facts.golden, tokens = 4;
    const of = (data, terms) => {
      core.problem({lenQ: tokens, lenK: tokens, dimK: 2, terms, q: data, k: data, v: X.data});
      return [...Array(tokens).keys()].map(i => core.row(0, i));
    };
    const four = {
      content: of(X.data, []),
      absolute: of(P.data, []),
      relative: of(X.data, [{text: 'dense', arrays: {bias: {shape: [tokens, tokens], data: B.data}}}])
    };
    // cells whose numbers in the vision notes are wrong: docs/errata.md
    const errata = {
      content: ['2,3', '3,2'],
      absolute: ['1,1', '1,2', '1,3', '2,1', '2,2', '3,1', '3,3'],
      relative: ['0,3', '1,0', '1,2', '1,3', '2,3', '3,1', '3,2']
    };
    const names = ['(0,0)', '(0,1)', '(1,0)', '(1,1)'], said4 = {
      content: 'Content only: x xᵀ / √2',
      absolute: 'Absolute, as in ViT: (x + p)(x + p)ᵀ / √2',
      relative: 'Relative, as in Swin: content + bias of (row, column) of the query minus those of the key'
    };
    example.append(
      h('p', {class: 'note'},
        'The example of the notes on vision transformers: a 2 × 2 grid with the patches [1, 0], [0, 1], [1, 1], [0, ' +
          '0]. In the shaded cells the notes have wrong numbers, which are corrected here (docs/errata.md).'),
      h('div', {class: 'panels pairs'},
        Object.entries(four).map(
          ([key, rows]) => h('div', {},
            table(['scores', ...names], rows.map((row, i) => [names[i], ...row.score]),
              {digits: 3, caption: said4[key], mark: (r, c) => errata[key].includes(`${r},${c - 1}`) ? 'mark' : ''}),
            table(['weights', ...names], rows.map((row, i) => [names[i], ...row.weights]), {digits: 3})))));

    const compute = state => {
      const {extra, rows, columns, n} = sizeOf(state), {kind} = state, query = Math.min(state.patch, n - 1);
      settings.set({...state, rows, columns, patch: query});
      settings.of('extra').element.hidden = !('extra' in core.kindOf[kind].defaults);
      const text = `${kind},grid=${rows}x${columns}${extra ? ',extra=1' : ''}`,
            bare = {lenQ: n, lenK: n, terms: [text]};
      core.problem(bare);
      // the table entry that each pair reads, if the library can show it
      const entries = core.meaning === 'entry' ? core.bias() : null, {bias} = everyTable[state.table],
            rowOf = j => Math.floor((j - extra) / columns), columnOf = j => (j - extra) % columns;
      settings.of('table').element.hidden = !entries;
      const given = entries && bias ?
        {shape: core.shape(text, 'table'), data: new Float64Array(core.shape(text, 'table')[0])} :
        null;
      for (let i = extra; given && i < n; i++)
        for (let j = extra; j < n; j++)
          given.data[entries[i * n + j]] = +bias(rowOf(j) - rowOf(i), columnOf(j) - columnOf(i)).toFixed(4);
      const terms = [given ? {text, arrays: {table: given}} : text];
      core.problem({...bare, terms});
      const data = core.bias(), value = core.meaning === 'entry' ? 'entry' : 'bias', at = j => data[query * n + j],
            digits = value === 'entry' ? 0 : 2,
            expression = (r, c, x) => calculation(core.problem({...bare, terms}).expressions(0, r, c), fixed(x));
      const place = j =>
        j < extra ? 'class token' : `row ${Math.floor((j - extra) / columns)}, column ${(j - extra) % columns}`;
      // all offsets in both directions, key minus query; each has the first pair with this offset
      const tall = 2 * rows - 1, wide = 2 * columns - 1, pairOf = (r, c) => {
        const dy = r - rows + 1, dx = c - columns + 1;
        return [
          Math.max(0, -dy) * columns + Math.max(0, -dx) + extra, Math.max(0, dy) * columns + Math.max(0, dx) + extra
        ];
      };
      const offsetOf = (i, j) =>
        i < extra || j < extra ? null : [rowOf(j) - rowOf(i) + rows - 1, columnOf(j) - columnOf(i) + columns - 1];
      const byOffset = Float64Array.from({length: tall * wide}, (_, at) => {
        const [i, j] = pairOf(Math.floor(at / wide), at % wide);
        return data[i * n + j];
      });
      const keyAt = (r, c) => {  // return the key at an offset from the query, or -1
        const row = rowOf(query) + r - rows + 1, column = columnOf(query) + c - columns + 1;
        return query >= extra && row >= 0 && column >= 0 && row < rows && column < columns ?
          row * columns + column + extra :
          -1;
      };
      const look = j => [...grid.children].forEach((button, at) => button.classList.toggle('look', at + extra === j));
      links = {
        show: (i, j) => {
          const at = offsetOf(i, j);
          if (at) offsets.mark(...at);
        },
        point: (r, c) => look(keyAt(r, c)),
        offset: (r, c) => ({down: r - rows + 1, right: c - columns + 1}),
        pair: (i, j) => i < extra || j < extra ? {} : {down: rowOf(j) - rowOf(i), right: columnOf(j) - columnOf(i)}
      };
      const within = (x, n) => Math.min(Math.max(x, 1 - n), n - 1) + n - 1,
            chosen = [within(state.down, rows), within(state.right, columns)],
            way = (x, less, more) => x ? `${Math.abs(x)} ${x < 0 ? less : more}` : '';
      const key = keyAt(...chosen), before = matrix.cursor[1], ofClass = matrix.data && before < extra;
      matrix.show({
        data,
        rows: n,
        columns: n,
        cursor: [query, key < 0 || ofClass ? before : key],  // both maps mark the same pair
        title: `${text}: every pair of tokens`,
        value,
        label: (r, c, x) => `${place(r)} → ${place(c)}: ${expression(r, c, x)}`
      });
      offsets.show({
        data: byOffset,
        rows: tall,
        columns: wide,
        places: {
          rows: [...Array(tall).keys()].map(r => r - rows + 1),
          columns: [...Array(wide).keys()].map(c => c - columns + 1)
        },
        cursor: chosen,
        title: `Every offset: ${tall} × ${wide}`,
        value,
        label: (r, c, x) => {
          const dy = r - rows + 1, dx = c - columns + 1, pairs = (rows - Math.abs(dy)) * (columns - Math.abs(dx));
          return `${
              [way(dy, 'up', 'down'), way(dx, 'left', 'right')].filter(Boolean).join(', ') || 'the patch itself'}: ${
            expression(...pairOf(r, c), x)}; ${pairs} of ${rows * columns * rows * columns} pairs read it`;
        }
      });
      look(key);
      let low = Infinity, high = -Infinity;
      for (let j = 0; j < n; j++) low = Math.min(low, at(j)), high = Math.max(high, at(j));
      if (shape !== `${n},${columns}`) {  // while the grid is the same, keep the buttons, which keeps the focus
        shape = `${n},${columns}`;
        grid.style.gridTemplateColumns = `repeat(${columns}, 1fr)`;
        scene = discs(rows, columns);
        grid.replaceChildren(...[...Array(rows * columns).keys()].map(j => h('button', {
          type: 'button',
          onclick: () => change({patch: j + extra}),
          onpointerenter: () => links.show(+grid.dataset.query, j + extra),
          onfocus: () => links.show(+grid.dataset.query, j + extra),
          onkeydown: event => {
            const step = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns}[event.key],
                  to = grid.children[j + step];
            if (!step) return;
            event.preventDefault();
            to?.focus(), to?.click();
          }
        })));
        classes.replaceChildren(...(extra ? [h('button', {type: 'button', onclick: () => change({patch: 0})})] : []));
      }
      // biases become weights, which lift a veil from the picture; the number of a table's entry is shown as it is
      const seen = value === 'bias', number = j => minus(fixed(at(j), digits));
      const weight = j => Math.exp(at(j) - high), sum = [...Array(n).keys()].reduce((sum, j) => sum + weight(j), 0);
      const least = weight([...Array(n).keys()].find(j => at(j) === low)),
            lit = j => high > low ? (weight(j) - least) / (1 - least) : 1;
      heading.textContent = seen ? 'Choose a patch: weights by bias' : 'Choose a patch: entries of the others';
      grid.classList.toggle('seen', seen);
      grid.style.backgroundImage = seen ? scene : 'none';
      [...classes.children, ...grid.children].forEach((button, j) => {
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
      const patches = [...Array(rows).keys()].map(
        row => [`row ${row}`, ...[...Array(columns).keys()].map(column => at(row * columns + column + extra))]);
      numbers.replaceChildren(
        table([value, ...[...Array(columns).keys()].map(column => `column ${column}`)], patches, {digits}));
      grid.dataset.query = query;
      core.problem({...bare, terms});
      const random = randomArrays(core, text);
      said.textContent =
        `Query: ${place(query)}: ${value} from ${minus(fixed(low, digits))} to ${minus(fixed(high, digits))}${
          seen ? `, weights from ${fixed(least / sum, 3)} (dark) to ${fixed(1 / sum, 3)} (bright)` : ''}.`;
      note.textContent = random ?
        'Without arrays, the numbers are random, and the same as on the command line.' :
        given && learned[state.table] ?
        `Trained by examples/data/train_window.py: relpos.torch.WindowAttention fills in hidden patches of pictures ` +
          `of discs, in a window of ${side} × ${side} patches. The mean squared error on other pictures is ${
            errors['with the table']} with this table, ${errors['without a table']} for a layer without a table, and ${
            errors['mean grey']} for the mean grey.` :
        given ? 'This table is not trained, but has a structure that training can also find.' :
                'Without a table, entry c is the number c. Pairs with the same number read the same learned entry.';
      const cli =
              shell(['relpos', 'bias', given ? `${text},table=t` : text, ...(given ? ['--input', 'window.npz'] : [])]),
            listed = given ? nested(given.data, given.shape) : '';
      return {
        name: `images-${kind}`,
        docs: [kind],
        numbers: {
          data: [...data],
          four: Object.fromEntries(Object.entries(four).map(([key, rows]) => [key, rows.map(row => [...row.score])]))
        },
        saves: {
          pairs: {
            figure: matrix,
            csv: () => [['head', 'query', 'key', 'bias'], ...[...data].map((x, m) => [0, Math.floor(m / n), m % n, x])]
          },
          patches: {
            figure: ofElement(picture, `${text}, query ${query}`),
            csv: () => [['token', value, ...(seen ? ['weight'] : [])],
              ...[...Array(n).keys()].map(j => [place(j), at(j), ...(seen ? [weight(j) / sum] : [])])]
          },
          offsets: {
            figure: offsets,
            csv: () => [['rows', 'columns', 'bias'],
              ...[...byOffset].map((x, m) => [Math.floor(m / wide) - rows + 1, m % wide - columns + 1, x])]
          }
        },
        code: {
          CLI: `${given ? `python3 -c 'import numpy as np; np.savez("window.npz", t=${listed})'\n` : ''}${cli}\n${
            cli} --json     # every number\n`,
          Python:
            `import numpy as np, relpos\n${random ? '# random numbers: replace them by your arrays\n' : ''}print(${
              pythonTerm(core, facts, text,
                given ? {table: `np.array(${listed})`} : {})}.matrix(${n}, ${n}, heads=1)[0][${query}])\n`,
          C: program({
            desc: [1, 1, n, n, 1],
            settings: ['dtype = RP_F64'],
            terms: [text],
            arrays: given ? [{term: 0, index: 0, name: 'table', ...given}] : cArrays(core, [text]),
            call: [
              `static double bias[1][${n}][${n}];`,
              `rp_array to = rp_array_of(bias, RP_F64, 3, (int64_t[]){1, ${n}, ${n}});`,
              'if (rp_bias(plan, &t, 0, &to) != RP_OK)', '    return puts(rp_last_error()), 1;',
              `for (int j = 0; j < ${n}; j++)`, `    printf("%.4f ", bias[0][${query}][j]);`, 'puts("");'
            ]
          }),
        },
      };
    };
    return frame({
      title: this.title,
      facts,
      compute,
      output,
      settings,
      saves: {pairs: 'the map of pairs', offsets: 'the map of offsets', patches: 'the picture with its patches'},
      change,
      about:
        'The patches of an image, or of a window of an image, are tokens on a grid. The bias of a pair depends on ' +
        'the number of rows and columns between them: all pairs with the same offset read the same entry.',
      formula: 'swin: table[index(rows, columns between query and key), h]      axial: bh[rows] + bw[columns]'
    });
  },
};
