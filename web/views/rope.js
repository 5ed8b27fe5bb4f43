// rope.js -- the view of rotary positions: rotated pairs of channels, invariance under a shift, wavelengths for each
// kind of scaling. SPDX-License-Identifier: Apache-2.0
import {chart} from '../chart.js';
import {nested, program, real, shell} from '../code.js';
import {dial} from '../dial.js';
import {ofChart} from '../export.js';
import {frame} from '../frame.js';
import {rotatedRow} from '../term.js';
import {controls, fixed, h, minus, table} from '../ui.js';

const reach = 64;  // offsets of the curve on both sides of the query

/** Return the controls; layouts: the choices of how channels form pairs. */
const settingsOf = (layouts, change) => controls(
  [
    {key: 'm', label: 'Position of the query', type: 'range', min: 0, max: 100, lower: -1e6, upper: 1e6},
    {key: 'n', label: 'Position of the key', type: 'range', min: 0, max: 100, lower: -1e6, upper: 1e6},
    {key: 'shift', label: 'Shift both by', type: 'range', min: 0, max: 1000, lower: -1e6, upper: 1e6},
    {key: 'base', label: 'Base', type: 'range', min: 100, max: 1000000, step: 'any', lower: 1.001, upper: 1e12},
    {key: 'layout', label: 'Pairs of channels', type: 'select', options: layouts},
    {
      key: 'dim',
      label: 'Channels, for the wavelengths',
      type: 'range',
      min: 8,
      max: 256,
      step: 8,
      lower: 2,
      upper: 1024
    },
    {
      key: 'factor',
      label: 'Scaling: how many times longer',
      type: 'range',
      min: 1,
      max: 32,
      step: 0.5,
      lower: 1,
      upper: 1000
    },
    {key: 'trained', label: 'Trained length', type: 'range', min: 128, max: 16384, lower: 2, upper: 1e6},
  ],
  change);

/** Return the query and the key of the view: {width, q, k}. */
function wordsOf(core) {
  const words = core.words(['query', 'key']), {width} = words;
  return {width, q: words.q.slice(0, width), k: words.k.slice(width)};
}

/** Return the circles of all pairs of channels, with the rotated query and key. */
function dials({width, q, k}, {layout, m, n, shift}, frequency) {
  const pair = c => layout === 'half' ? [c, c + width / 2] : [2 * c, 2 * c + 1];
  const plane = c => {
    const [x, y] = pair(c), [turned, other] = [m, n].map(position => (position + shift) * frequency[c]);
    return h('div', {}, dial({
      hands: [[q[x], q[y], turned, '', 0], [k[x], k[y], other, '5 4', 1]],
      longest: Math.max(Math.hypot(q[x], q[y]), Math.hypot(k[x], k[y])) || 1,
      label: `channels ${pair(c)}: the query is rotated by ${minus(fixed(turned))}, the key by ${
        minus(fixed(other))} radians`
    }),
      `channels ${x}, ${y}`, h('br'), `${fixed(frequency[c])} rad per\u00a0step`);
  };
  return h('div', {class: 'dials', style: `--columns: ${width / 2}`}, [...Array(width / 2).keys()].map(plane));
}

/** Return the products of query and key: {score(position of the query, that of the key), here: at the positions, there:
 * after the shift, unrotated, line: offsets, product: at these offsets}. */
function productsOf(core, {width, q, k}, text, {m, n, shift}) {
  const score = (from, to) => rotatedRow(core, text, {q, k}, from, to).raw[0];
  core.problem({lenQ: 1, lenK: 1, dimK: width, q, k});
  const unrotated = core.row(0, 0).raw[0], here = score(m, n), there = score(m + shift, n + shift),
        line = [...Array(2 * reach + 1).keys()].map(t => t - reach),
        product = line.map(delta => score(Math.max(0, -delta), Math.max(0, delta)));
  return {score, unrotated, here, there, line, product};
}

const shiftTable = ({score, unrotated, here, there}, {m, n, shift}) =>
  table(['query at, key at', 'offset', 'product'], [
    [minus(`${m}, ${n}`), String(n - m), here], [minus(`${m + shift}, ${n + shift}`), String(n - m), there],
    [minus(`${m + shift}, ${n}`), String(n - m - shift), score(m + shift, n)], ['not rotated', '', unrotated]
  ]);

const productChart = ({here, line, product}, {m, n}) => chart({
  title: 'Product of this query and this key by offset',
  xLabel: 'offset = key − query',
  yLabel: 'product',
  series: [{name: '', x: line, y: product}],
  marks: [{x: Math.min(Math.max(n - m, -reach), reach), text: minus(fixed(here))}]
});

/** Return the frequencies of each kind of scaling, at the length `long`: [[name, {frequency, factor}]]. */
function scalingsOf(core, {base, factor, trained}, dim, long) {
  const scalings = {
    none: '',
    linear: `,factor=${factor}`,
    dynamic: `,factor=${factor},max_position_embeddings=${trained}`,
    yarn: `,factor=${factor},original_max_position_embeddings=${trained}`,
    llama3: `,factor=${factor},original_max_position_embeddings=${trained}`
  };
  return Object.entries(scalings).map(
    ([name, rest]) => [name,
      core.frequencies(`rope,dim=${dim},base=${base}${name === 'none' ? '' : `,scaling=${name}${rest}`}`, dim, long)]);
}

const waveChart = (found, x, long) => chart({
  title: `Wavelength of each pair: 2π / frequency, at length ${long}`,
  xLabel: 'pair',
  yLabel: 'positions',
  logY: true,
  series: found.map(
    ([name, f], c) =>
      ({name: name === 'dynamic' ? 'dynamic NTK' : name, x, y: f.frequency.map(y => 2 * Math.PI / y), colour: c}))
});

const waveTables = (found, x) => [table(['pair', ...found.map(([name]) => name)],
                                    x.map(c => [String(c), ...found.map(([, f]) => 2 * Math.PI / f.frequency[c])]),
                                    {digits: 2, caption: 'Wavelengths, in positions'}),
  table(['', ...found.map(([name]) => name)], [['cosine and sine times', ...found.map(([, f]) => f.factor)]])];

/** Return what can be saved: the products by offset, and the frequencies. */
const savesOf = (figure, {line, product}, wave, found, x) => ({
  product:
    {figure: ofChart(figure), csv: () => [['offset', 'product'], ...line.map((delta, t) => [delta, product[t]])]},
  waves: {
    figure: ofChart(wave),
    csv: () => [['pair', ...found.map(([name]) => `frequency ${name}`)],
      ...x.map(c => [c, ...found.map(([, f]) => f.frequency[c])])]
  }
});

function codeOf(core, {width, q, k}, text, {base, layout, m, n, shift}) {
  const shape = [1, 1, 1, width];
  return {
    CLI: `python3 - <<'END'\nimport numpy as np\nnp.savez("rope.npz", q=${nested(q, shape)}, k=${nested(k, shape)}, v=${
           nested(k, shape)}, m=[${real(m + shift)}], n=[${real(n + shift)}])\nEND\n` +
      shell([
        'relpos', 'explain', '--input', 'rope.npz', '--rope',
        `base=${base},layout=${layout},q_positions=m,k_positions=n`
      ]) +
      '\n',
    Python: `import numpy as np, relpos\nq, k = np.array(${nested(q, shape)}), np.array(${
      nested(k, shape)})\nrope = relpos.RoPE(base=${real(base)}, layout="${layout}", q_positions=np.array([${
      real(m +
        shift)}]), k_positions=np.array([${real(n + shift)}]))\nprint(relpos.explain(q, k, k, query=0, rope=rope))\n`,
    C: program({
      desc: [1, 1, 1, 1, width],
      settings: ['dtype = RP_F64'],
      terms: [text],
      qkv: {q: {shape, data: q}, k: {shape, data: k}},
      arrays: ['q_positions', 'k_positions'].map((name, x) => ({
        term: 0,
        index: core.kindOf.rope.arrays.findIndex(a => a.name === name),
        name,
        shape: [1],
        data: [x ? n + shift : m + shift]
      })),
      call: [
        'double raw;', 'rp_row row = {.raw = &raw};', 'if (rp_attend_row(plan, &t, 0, 0, 0, &row) != RP_OK)',
        '    return puts(rp_last_error()), 1;', 'printf("%.4f\\n", raw);'
      ]
    }),
  };
}

export const rope = {
  id: 'rope',
  title: 'RoPE: rotation by the position',
  name: 'RoPE',
  terms: ['rope'],  // for this term, the view of biases has a link to this view
  defaults: {dim: 64, base: 10000, layout: 'half', factor: 4, trained: 2048, m: 3, n: 8, shift: 20, save: 'product'},

  make({core, facts, change}) {
    const layouts = facts.terms.rope.parameters.find(p => p.key === 'layout').choices,
          settings = settingsOf(layouts, change);
    const planes = h('div'), shifts = h('div'), curve = h('div'), waves = h('div');
    const output = h('div', {}, h('h3', {}, 'Pairs of channels: query (solid) and key (dashed) after rotation'), planes,
      h('h3', {}, 'The product depends only on the offset'), shifts, curve, h('h3', {}, 'Wavelengths of each scaling'),
      waves);
    const words = wordsOf(core), {width} = words;

    const compute = state => {
      const {base, layout, factor, trained} = state, dim = 2 * Math.round(state.dim / 2);
      settings.set({...state, dim});
      const text = `rope,base=${base},layout=${layout}`,
            {frequency} = core.frequencies(`${text},dim=${width}`, width, 1);
      planes.replaceChildren(dials(words, state, frequency));
      const products = productsOf(core, words, text, state), {here, there, unrotated} = products;
      shifts.replaceChildren(shiftTable(products, state));
      const figure = productChart(products, state);
      curve.replaceChildren(figure);
      const long = Math.round(trained * factor), found = scalingsOf(core, state, dim, long),
            pairs = [...Array(dim / 2).keys()], wave = waveChart(found, pairs, long);
      waves.replaceChildren(wave, ...waveTables(found, pairs));
      return {
        name: 'rope',
        docs: ['rope'],
        numbers: {
          here,
          there,
          unrotated,
          frequencies: Object.fromEntries(found.map(([name, f]) => [name, [...f.frequency]])),
          factors: Object.fromEntries(found.map(([name, f]) => [name, f.factor]))
        },
        saves: savesOf(figure, products, wave, found, pairs),
        code: codeOf(core, words, text, state)
      };
    };
    return frame({
      title: this.title,
      facts,
      compute,
      output,
      settings,
      saves: {product: 'the product by offset', waves: 'the wavelengths'},
      change,
      about: 'RoPE rotates pairs of channels of query and key by an angle that grows with the position. Shift both ' +
        'positions: the vectors rotate, and the product stays the same. Beyond the trained length the slow pairs ' +
        'reach angles that did not occur in training; each scaling lengthens their wavelengths differently.',
      formula: 'angle of pair c at position p = p · base^(−2c/dim)      ⟨R(m) q, R(n) k⟩ = ⟨q, R(n − m) k⟩'
    });
  },
};
