// slopes.js -- the step about ALiBi: some heads attend to near words, others to far words. SPDX-License-Identifier:
// Apache-2.0
import {shell} from '../code.js';
import {axisWidth, HeatMap} from '../heat.js';
import {controls, fixed, h, minus, short, viewLink} from '../ui.js';

import {i, math, n, o, row, sub, sup} from './mathml.js';
import {coverOf, heightOf, paper, player, step, tall, walk, widthOf} from './step.js';
import {example, lastWords, shade} from './words.js';

const length = 512, faint = -5;

const settingsOf = (change, state) => controls(
  [
    {key: 'query', label: 'Position of the query', type: 'range', min: 0, max: length - 1, lower: 0, upper: length - 1},
    {
      key: 'heads',
      label: 'Heads',
      type: 'range',
      min: 1,
      max: 16,
      lower: 1,
      upper: 16,
      change: (_, heads) => change({heads, head: Math.min(state().head, heads - 1)})
    },
    {key: 'head', lower: 0, upper: 15, limit: ({heads}) => heads - 1},
    {key: 'text', label: 'Your words', type: 'text', placeholder: example}
  ],
  change);

const mapOf = change => new HeatMap({
  title: 'Bias of ALiBi for every head',
  rows: 'head',
  columns: 'position of the key',
  axes: true,
  onpick: (head, query) => change({head, query})
});

/** Return the head with the smallest slope, and its slope: its bias at distance 1, without the sign. */
function flattestOf(core, heads) {
  core.problem({heads, lenQ: 1, lenK: 2, qOffset: 1, terms: ['alibi']});
  const slopes = core.bias().filter((_, n) => n % 2 === 0).map(x => -x), slope = Math.min(...slopes);
  return {head: slopes.indexOf(slope), slope};
}

/** Return the question of the step. */
const guessOf = (core, state, change) => ({
  ask: 'which head gives weight to the farthest tokens?',
  choices: ['head 0', 'the last head', 'another head'],
  right: () => {
    const {heads} = state();
    return heads === 1 ? [0, 1] : flattestOf(core, heads).head === heads - 1 ? 1 : 2;
  },
  because: () => {
    const {head, slope} = flattestOf(core, state().heads);
    return `The slope of head ${head} is the smallest, ${short(slope)}, so its bias falls the most slowly.`;
  },
  reveal: () => change({head: flattestOf(core, state().heads).head})
});

const text = [
  'From each score, ALiBi subtracts the distance times the slope of the head. The slopes are fixed, not ' +
    'learned, and distances have no limit: a text may have any length.',
  'With eight heads the slopes are ½, ¼, ⅛ … Then the first heads attend to the last few tokens, and the last ' +
    'ones to hundreds.'
];

const formula = [
  math(sub(i('b'), row(i('i'), i('j'))), o('='), o('−'), sub(i('m'), i('h')), o('('), i('i'), o('−'), i('j'), o(')')),
  math(sub(i('m'), i('h')), o('='),
    sup(n('2'), row(o('−'), n('8'), o('('), i('h'), o('+'), n('1'), o(')'), o('/'), i('H'))))
];

const notes = [
  'If the number of heads is not a power of two, ALiBi uses the slopes of the next lower power of two, and ' +
    'every other slope of twice that number: set 6 heads.',
  'Tokens after the query are masked, as in the paper. The weights below the picture are those of tokens with ' +
    'equal contents.'
];

/** Return the biases of all heads for a query: {bias: [head][key], data: the map, weights: of each head}. */
function biasesOf(core, heads, query) {
  const seen = query + 1;
  core.problem({heads, lenQ: 1, lenK: seen, qOffset: query, terms: ['alibi']});
  const bias = core.bias(), data = new Float64Array(heads * length).fill(-Infinity), weights = [];
  for (let n = 0; n < heads; n++) {
    data.set(bias.subarray(n * seen, (n + 1) * seen), n * length);
    weights.push(core.rows('weights', n));
  }
  return {bias, data, weights};
}

function showMap(map, {data, weights}, {query, heads}, head, wide) {
  map.show({
    data,
    rows: heads,
    columns: length,
    low: faint,
    high: 0,
    cursor: [head, query],
    named: {row: head, column: query, text: `query ${query}`},
    ratio: wide / tall(map.element, Math.min(wide / 1.6, Math.max(heightOf(map.element) - 124, 180)), 124),
    label: (row, column, x) => x === -Infinity ?
      `head ${row}, token ${column}: after the query, masked` :
      `head ${row}, distance ${query - column}: bias ${minus(fixed(x))}, weight ${fixed(weights[row][column])}`
  });
}

/** Cover the rows of all heads but the chosen one, up to the query. */
function placeCover(cover, head, heads, seen) {
  const [from, to] = [head, head + 1].map(row => `${100 * row / heads}%`);
  cover.style.setProperty('--rows', heads);
  cover.style.width = `${100 * seen / length}%`;
  cover.style.clipPath = `polygon(evenodd, 0 0, 100% 0, 100% 100%, 0 100%, 0 0, 0 ${from}, 100% ${from}, 100% ${
    to}, 0 ${to}, 0 ${from}, 0 0)`;
}

/** Return the words as the last ones up to the query, each with its weight. */
const ending = (words, weight, seen) => words.flatMap((word, n) => {
  const share = weight[seen - words.length + n];
  return [
    h('span', {class: 'shaded', style: `background: ${shade(Math.min(share / 0.15, 1))}`}, word, ' ',
      h('small', {}, fixed(share, share < 0.01 ? 4 : 3))),
    ' '
  ];
});

/** Return the slope of the head, in how many tokens the weight halves, and the weights of the reader's words. */
function sentence(slope, head, seen, words, weight) {
  const half = Math.LN2 / slope;
  return seen > 1 ?
    [
      'Head ', String(head), ' has the slope ', h('strong', {}, fixed(slope)),
      `. If all tokens had equal contents, the weight would halve every ${
        half < 10 ? half.toFixed(1) :
                    Math.round(half)} tokens. If your words were the last ones up to the query, they would get: `,
      ...ending(words.slice(-seen), weight, seen)
    ] :
    'The query is the first token: no token is before it.';
}

export const slopes = {
  id: 'story-slopes',
  title: 'ALiBi: every head has a different slope',
  name: 'ALiBi’s slopes',
  defaults: {query: 400, heads: 8, head: 2, text: ''},
  make({core, change, state, story}) {
    const settings = settingsOf(change, state), map = mapOf(change), cover = coverOf('Show all heads');
    map.frame.append(cover);
    return step(this, {
      story,
      settings,
      state,
      change,
      cover,
      figure: map.element,
      extra: [player({key: 'query', state, change, text: 'Move the query', next: walk(12, length)})],
      guess: guessOf(core, state, change),
      lead: drag => ['The query is token ', drag('query'), ` of a text of ${length}, and each row is one of `,
        drag('heads'),
        ' heads. Bright tokens keep their scores, dark ones lose 5 or more, and grey ones come after the query: ' +
          'drag the numbers, or click in the picture.'],
      fold: 1,
      text,
      formula,
      papers: [paper('Press, Smith, Lewis 2022, Train short, test long', '2108.12409')],
      workshop: viewLink({id: 'cost'}, 'what a bias costs'),
      notes,
      compute(state) {
        const {query, heads} = state, head = Math.min(state.head, heads - 1), seen = query + 1,
                      wide = widthOf(map.element) - axisWidth;
        settings.set(state);
        const found = biasesOf(core, heads, query), {bias, weights} = found;
        showMap(map, found, state, head, wide);
        placeCover(cover, head, heads, seen);
        const slope = seen > 1 ? bias[head * seen + seen - 2] / -1 : 0;
        return {
          said: sentence(slope, head, seen, lastWords(state.text), weights[head]),
          numbers: {slope},
          csv: () => [['head', 'token', 'bias', 'weight'],
            ...Array.from({length: heads * seen},
              (_, x) => [Math.floor(x / seen), x % seen, bias[x], weights[Math.floor(x / seen)][x % seen]])],
          code: {
            CLI:
              shell(['relpos', 'bias', 'alibi', '--heads', heads, '--q', 1, '--k', seen, '--q-offset', query, '--json'])
          }
        };
      }
    });
  }
};
