// buckets.js -- the step about T5: distances fall into buckets, and a model learns a table with one entry per bucket.
// SPDX-License-Identifier: Apache-2.0
import {chart} from '../chart.js';
import {nested, shell} from '../code.js';
import {controls, fixed, h, minus, viewLink, wordButtons} from '../ui.js';

import {i, math, o, row, sub, words} from './mathml.js';
import {coverOf, paper, step, tall, widthOf} from './step.js';
import {trainedTable} from './tables.js';
import {example, lastWords} from './words.js';

const asked = [100, 110];                               // distances of the question: with the second, both are marked
const reach = 160, left = 58, right = 12, bottom = 40;  // left, right, bottom: the margins in chart.js
const rule = {
  buckets: 32,
  maxDistance: 128,
  bidirectional: false,
  strategy: 0
};
const x = Array.from({length: reach + 1}, (_, back) => back);  // the distances

const settingsOf = change => controls(
  [
    {key: 'back', label: 'Distance of the word', type: 'range', min: 0, max: reach, lower: 0, upper: reach},
    {key: 'head', label: 'Head', type: 'range', min: 0, max: 3, lower: 0, upper: 3},
    {key: 'layer', label: 'Layer', type: 'select', options: [['0', '0, the first'], ['1', '1, the second']]},
    {key: 'text', label: 'Your words', type: 'text', placeholder: example}
  ],
  change);

/** Draw the buckets as a strip along the distance, and mark the chosen bucket. of: the bucket of each distance. */
function strip(of, width, chosen) {
  const each = (width - left - right) / reach, found = [];
  for (let back = 0; back <= reach;) {
    let end = back;
    while (of[end + 1] === of[back]) end++;
    const from = Math.max(back - 0.5, 0), to = Math.min(end + 0.5, reach);
    found.push(h('rect', {
      x: left + from * each,
      y: 4,
      width: Math.max((to - from) * each - 1, 0.5),
      height: 22,
      fill: of[back] === chosen ? 'var(--s1)' :
        of[back] % 2            ? 'var(--s0)' :
                                  'var(--s2)',
      'fill-opacity': of[back] === chosen ? 1 : 0.75
    },
      h('title', {}, `bucket ${of[back]}: ${back} to ${end}`)));
    back = end + 1;
  }
  return h('svg', {viewBox: `0 0 ${width} 28`, class: 'chart', 'aria-hidden': 'true'}, found,
    h('text', {x: left - 6, y: 20, 'text-anchor': 'end', fill: 'var(--soft)'}, 'bucket'));
}

/** Return the question of the step; of: the bucket of each distance. */
const guessOf = (of, change) => ({
  ask: `do the distances ${asked.join(' and ')} have different numbers?`,
  choices: ['yes', 'no'],
  right: () => of[asked[0]] === of[asked[1]] ? 1 : 0,
  because: of[asked[0]] === of[asked[1]] ? `Both are in bucket ${of[asked[0]]} of 32.` :
                                           `They are in the buckets ${of[asked[0]]} and ${of[asked[1]]} of 32.`,
  reveal: () => change({back: asked[1]})
});

const text = [
  'The curve is what a head of a trained model learned: unlike a slope, it can rise and fall, and each head ' +
    'learns a different one.',
  'Each of the first sixteen distances has its own bucket. Farther distances share buckets, which become ' +
    'wider, and the last bucket has no end.'
];

const formula = math(sub(i('b'), row(i('i'), i('j'))), o('='),
  sub(words('table'), row(words('bucket'), o('('), i('j'), o('−'), i('i'), o(')'), o(','), i('h'))));

const notes = [
  'The table is from a byte model of relpos’ laboratory with 2 layers of 4 heads, trained for 1,000 steps; a ' +
    'token is a byte. It has 32 buckets for tokens before the query, as in T5’s decoder. T5’s encoder has 16 ' +
    'for each direction.',
  'Half of the buckets contain one distance each. The width of the others grows with the distance.'
];

/** Return the biases by distance that a head has learned. */
function biasesOf(core, term, head) {
  core.problem({heads: 4, lenQ: 1, lenK: reach + 1, qOffset: reach, terms: [term]});
  const bias = core.bias();
  return x.map(back => bias[head * (reach + 1) + reach - back]);
}

const chartOf = (y, exact, {back, layer, head}, width, height, change) => chart({
  title: `The bias that layer ${layer}, head ${head} has learned`,
  xLabel: 'distance of the key before the query',
  yLabel: 'bias',
  width,
  height,
  series: [{name: '', x, y, steps: true}],
  zones: [{from: 0, to: exact - 0.5, text: 'one each'}, {from: exact - 0.5, to: reach, text: 'shared'}],
  marks: [{x: back, text: minus(fixed(y[back], 2))}, ...(back === asked[1] ? [{x: asked[0], text: ''}] : [])],
  onpick: at => change({back: Math.min(Math.max(Math.round(at), 0), reach)})
});

/** Return which distances share the bucket of the chosen one, and its bias, as a sentence. of: the bucket of each
 * distance. */
function sentence(of, bias, {back, head}, words) {
  const word = words.at(-1 - back), sharing = x.filter(n => of[n] === of[back]), last = sharing.at(-1) === reach;
  return [
    `Distance ${back}${word && back ? `, from “${words.at(-1)}” back to “${word}”,` : ''} is in bucket ${of[back]}`,
    sharing.length < 2 ? ' and shares it with no other' :
      last             ? `, with all distances from ${sharing[0]}` :
                         `, with all distances from ${sharing[0]} to ${sharing.at(-1)}`,
    `. Head ${head} adds to the score: `, h('strong', {}, minus(fixed(bias))), '.'
  ];
}

function codeOf({text, arrays: {table}}, head) {
  return {
    CLI: `python3 - <<'END'\nimport numpy as np\nnp.savez("t5.npz", table=${nested(table.data, table.shape)})\nEND\n` +
      shell([
        'relpos', 'bias', `${text},table=table`, '--input', 't5.npz', '--head', head, '--q', 1, '--k', reach + 1,
        '--q-offset', reach, '--json'
      ])
  };
}

export const buckets = {
  id: 'story-buckets',
  title: 'T5 learns numbers for distances',
  name: 'T5’s buckets',
  defaults: {back: 40, layer: '0', head: 0, text: ''},
  make({core, facts, change, state, story}) {
    const settings = settingsOf(change), of = x.map(back => core.bucket(-back, rule)), exact = core.bucketExact(rule);
    const box = h('div', {class: 'drag'}),
          buttons = h('div', {class: 'words', role: 'group', 'aria-label': 'Words; choose one to see its distance'});
    const cover = coverOf('Show the rest'), known = of.lastIndexOf(of[64]);  // the cover begins behind a bucket
    return step(this, {
      story,
      settings,
      state,
      change,
      cover,
      figure: box,
      extra: [h('span', {}, 'Your words, if they end the text: '), buttons],
      guess: guessOf(of, change),
      lead: drag =>
        ['T5 learns one bias for each coloured bar, a bucket of distances. Drag across the picture, or drag the ' +
            'distance of the word: ',
          drag('back'), ' tokens.'],
      fold: 1,
      text,
      formula,
      papers: [paper('Raffel et al. 2020, T5', '1910.10683')],
      workshop: viewLink({id: 'buckets'}, 'all strategies of buckets'),
      notes,
      compute(state) {
        const {back, layer, head} = state, term = trainedTable(core, facts, +layer), width = widthOf(box),
                            height = tall(box, 250, 100);
        settings.set(state);
        const y = biasesOf(core, term, head), figure = chartOf(y, exact, state, width, height, change);
        const from = left + known / reach * (width - left - right);
        cover.style.inset = `0 ${right}px ${bottom}px ${100 * from / width}%`;
        figure.querySelector('figcaption')
          .after(h('div', {class: 'part'}, strip(of, width, of[back]), figure.querySelector('svg.chart'), cover));
        box.replaceChildren(figure);
        const words = lastWords(state.text);
        wordButtons(buttons, words, words.length - 1 - back, n => change({back: words.length - 1 - n}));
        return {
          said: sentence(of, y[back], state, words),
          numbers: {exact, bucket: of[back]},
          csv: () => [['back', 'bucket', 'bias'], ...x.map(n => [n, of[n], y[n]])],
          code: codeOf(term, head)
        };
      }
    });
  }
};
