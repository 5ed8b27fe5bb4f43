// beyond.js -- the step before the last: how each scheme behaves at distances that do not occur in training.
// SPDX-License-Identifier: Apache-2.0
import {chart, legendOf} from '../chart.js';
import {optionOf, shell} from '../code.js';
import {safetensorsOf} from '../files.js';
import {withNames} from '../term.js';
import {controls, count, download, extent, fixed, h, minus, viewLink} from '../ui.js';

import {i, math, n, o, words} from './mathml.js';
import {doubling, heightOf, paper, player, step, widthOf} from './step.js';
import {trainedTable} from './tables.js';

const trained = 512, min = 64, max = 8192, points = 600, heads = 4, grey = 5, width = 2 * heads, content = 2, low = -6,
      high = 6, columns = 2, file = 'relpos-beyond.safetensors';

/** Return all distances in training, and about `points` of the distances from there to `length` with equal steps on a
 * logarithmic axis. */
function kept(length) {
  const far = Array.from({length: points}, (_, n) => Math.round(trained * (max / trained) ** (n / points)));
  const all = [...Array(Math.min(trained, length)).keys(), ...far.filter(back => back < length), length - 1].slice(1);
  return all.filter((back, at) => back !== all[at - 1]);
}

const shaw = `relkey,left=${trained - 1},right=0`;
const percent = x => x > 0 && x < 0.005 ? 'less than 1 %' : `${Math.round(100 * x)} %`;

const settingsOf = change => controls(
  [
    {key: 'length', label: 'Length of the text', type: 'range', min, max, lower: min, upper: max},
    {key: 'text', type: 'text'}
  ],
  change);

/** Return the tokens of the text: {q, key, problem(length, terms) sets a problem in core}. The query of a head uses one
 * pair of channels, and every key is equal to the sum of the queries: without positions all scores are 2. */
function tokensOf(core) {
  const size = Math.sqrt(content * Math.sqrt(width)), q = new Float64Array(heads * width),
        one = new Float64Array(width);
  for (let n = 0; n < heads; n++) one[n] = q[n * width + n] = size;
  const key = new Float64Array(max * width);
  for (let n = 0; n < max; n++) key.set(one, n * width);
  const problem = (length, terms) => core.problem({
    heads,
    kvHeads: 1,
    lenQ: 1,
    lenK: length,
    qOffset: length - 1,
    dimK: width,
    terms,
    q,
    k: key.subarray(0, length * width)
  });
  return {q, key, problem};
}

/** Return from which distance on each head of the longest text repeats its last score. */
const repeated = scores => 1 + Math.max(...scores.map(all => all.findLastIndex(x => x !== all.at(-1))));

/** Return a note(length, numbers) of a scheme whose numbers or vectors (what) repeat. */
const repeating = what => (length, {first}) => first < length ? `the same ${what} from distance ${first} on` : '';

/** Return the schemes: {name, wide: a longer name, term, note(length, numbers), band: show the range of all heads,
 * bold: widths of lines, turns: the distances in which a dial turns once}. vectors: Shaw's; table: T5's. */
function schemesOf(core, vectors, table) {
  const rope = `rope,dim=${width}`, {frequency} = core.frequencies(rope, width, 1),
        slowest = frequency.at(-1) * 180 / Math.PI;
  return [
    {
      name: 'ALiBi',
      term: {text: 'alibi'},
      note: (length, {scores}) =>
        `its flattest head falls from ${content} to ${minus(fixed(scores.at(-1)[length - 1], 1))}`
    },
    {name: 'T5', term: table, note: repeating('number')}, {
      name: 'Shaw',
      wide: 'Shaw, untrained',
      term: {text: shaw, arrays: {table: vectors}},
      band: true,
      note: (length, all) => ['random vectors', repeating('vector')(length, all)].filter(Boolean).join(', ')
    },
    {
      name: 'RoPE',
      term: {text: rope},
      bold: [1, 1, 2, 2.5],
      turns: frequency.map(speed => 2 * Math.PI / speed),  // the distances in which a dial turns once
      note: length => `slowest dial: ${Math.round(slowest * (length - 1))}°${
        length > trained ? `, trained to ${Math.round(slowest * (trained - 1))}°` : ''}`
    }
  ];
}

/** Return the sums of exp(score) over the distances before each one. */
function sums(scores) {
  const top = Math.max(...scores), to = new Float64Array(scores.length + 1);
  scores.forEach((x, back) => to[back + 1] = to[back] + Math.exp(x - top));
  return to;
}

const mean = list => list.reduce((sum, x) => sum + x, 0) / list.length;

/** Return the range and the median of the heads' scores at some distances, as series of a chart. */
function spread(scores, shown) {
  const sorted = shown.map(back => scores.map(all => all[back]).sort((a, b) => a - b)),
        of = at => sorted.map(all => all[at]);
  const median = sorted.map(all => (all[heads / 2 - 1] + all[heads / 2]) / 2);
  return [
    {name: 'all heads', style: 'band', opacity: 0.2, colour: grey, x: shown, y: of(heads - 1), under: of(0)},
    {name: 'median', line: 1, colour: grey, x: shown, y: median}
  ];
}

const ranges = new Map();  // of scores, by distance, for each head that has some

/** Return the range of a head's scores around a distance, which contains a whole turn of a dial that has turned
 * three times. */
function around(scores, back) {
  const known = ranges.get(scores) ?? ranges.set(scores, []).get(scores);
  return known[back] ??= extent([scores.subarray(Math.floor(back / 1.18), Math.ceil(back * 1.18))]);
}

/** Return a head's scores at some distances as series of a chart. After three turns of a dial, its line would hide
 * the slower dials: show ranges. */
function curve(scores, shown, head, {bold = [], turns = []}) {
  const end = 3 * turns[head] < trained ? 3 * turns[head] : Infinity, far = shown.filter(back => back >= end),
        of = far.map(back => around(scores, back)), common = {name: `head ${head}`, colour: head};
  return [
    {...common, line: bold[head] ?? 1.5, x: shown, y: shown.map(back => back < end ? scores[back] : NaN)},
    ...(far.length ? [{
      ...common,
      style: 'band',
      opacity: 0.18,
      x: far,
      y: of.map(range => range[1]),
      under: of.map(range => range[0])
    }] :
                     [])
  ];
}

/** Return the numbers of each scheme for the longest text: {scores: of the last word by distance, for each head; sums;
 * first: from which distance on they repeat}. A score depends only on the distance, so they serve every length. */
const numbersOf = (core, problem, schemes) => schemes.map(({term}) => {
  problem(max, [term]);
  const scores = [...Array(heads).keys()].map(head => core.rows('scores', head).reverse());
  return {scores, sums: scores.map(sums), first: repeated(scores)};
});

/** Return the share of the attention beyond training in each scheme, as means over the heads. */
const sharesOf = (known, length) =>
  known.map(({sums}) => mean(sums.map(all => 1 - all[Math.min(trained, length)] / all[length])));

/** Return the file that the commands read. */
const fileOf = ({q, key}, vectors, table, length) => safetensorsOf({
  q: {shape: [1, heads, 1, width], data: q},
  k: {shape: [1, 1, length, width], data: key.subarray(0, length * width)},
  v: {shape: [1, 1, length, 1], data: new Float64Array(length)},
  't5.table': table.arrays.table,
  'relkey.table': vectors
},
  Array.from({length}, (_, n) => String(n)));

const named = ({text, arrays}) => arrays ? withNames(text, {table: `${text.split(',')[0]}.table`}) : text;

/** Return the question of the step; shares(length): see sharesOf. */
const guessOf = (schemes, shares, state, change) => ({
  ask: 'which scheme gives far words the least attention?',
  choices: schemes.map(({name}) => name),
  right: () => {
    const of = shares(max);
    return of.indexOf(Math.min(...of));
  },
  because: 'Its scores fall with the distance without an end.',
  reveal: () => state().length > trained || change({length: max})
});

const paragraphs =
  () => ['All words are equal here, so only the distance matters. Each scheme has four heads; a head of RoPE is one ' +
      'dial, and where it turns too fast for a line, its range is shaded.',
    [
      'ALiBi keeps falling, so far words get almost no weight. T5 and Shaw repeat their last number for more ' +
        'and more words. RoPE’s slow dials reach angles that did not occur in training, so models for long texts ' +
        'slow the dials down. A table of 512 position vectors ends: it has none for token 513 (that of GPT-2 has ' +
        '1,024).',
      ' More attention is not better: ', viewLink({id: 'length'}, 'trained models'),
      ' show what becomes of their predictions.'
    ]];

const notes = [
  `The four schemes have the same queries and keys, four heads each, and all keys are equal. A head’s query ` +
    `uses one pair of channels. Without positions every score is ${content}.`,
  'T5 is a trained table, layer 0 of the laboratory’s byte model. Shaw’s vectors are random. RoPE’s dials ' +
    'turn by 1, 0.1, 0.01 and 0.001 radians per word.',
  'If you have entered words in another step, a dotted line marks the largest distance between two of them.',
  'An arrow marks where a curve leaves the frame. Point at a chart to read the scores beyond it.',
  '“Save the arrays” writes the file that the commands read.'
];

/** Return the chart of scheme n; found: its scores; fraction: its share beyond training; words: those of the reader. */
function chartOf(scheme, n, found, fraction, {length, shown, words, width, tall}) {
  const after = width > 320 ? ` of attention beyond ${trained}` : width > 170 ? ' beyond' : '';
  return chart({
    title: (scheme.wide && width > 260 ? scheme.wide : scheme.name) +
      (length > trained ? `: ${percent(fraction)}${after}` : ''),
    xLabel: n < columns ? '' : 'distance',
    named: back => `distance ${count(back)}`,
    ticksX: [1, 8, 64, ...(width > 200 ? [trained] : []), max],
    yLabel: width > 240 ? 'score' : '',
    width,
    height: n < columns ? tall - 16 : tall,  // those above another have no name of the axis
    low,
    high,
    logX: true,
    span: [1, max],
    series: scheme.band ? spread(found, shown) : found.flatMap((scores, head) => curve(scores, shown, head, scheme)),
    legend: false,
    zones: [{from: 1, to: trained - 0.5, shade: true}],
    marks: words > 1 && words <= length ? [{x: words - 1, text: `your ${words} words`}] : [],
    rest: length < max ?
      {from: length - 0.5, free: Math.max(length, trained), text: width > 360 ? 'not in this text' : 'not in text'} :
      undefined
  });
}

/** Return how much of the distances is new, as a sentence. */
function sentence(length, isPlaying) {
  const size = h('strong', {}, `${count(length)} tokens`), part = percent(1 - trained / length);
  return length > trained ?
    [
      size,
      `: ${part} of the distances are new. Without positions they would get ${
        part} of the attention; the titles show how much the last word gives them, as the mean over the heads.`
    ] :
    [size, ': every distance occurred in training.', isPlaying ? '' : ' What happens beyond? Guess, or press Play.'];
}

const codeOf = (core, schemes, length) => ({
  CLI: `# “Save the arrays” writes ${
    file}: score and weights of each scheme, from the first word to the last\nfor head in 0 1 2 3; do\n${
    schemes
      .map(({term}) => '  ' + shell([
        'relpos', 'explain', '--input', file, '--q-offset', length - 1, ...optionOf(core, named(term)), '--head'
      ]) + ' $head --json\n')
      .join('')}done\n`
});

export const beyond = {
  id: 'story-beyond',
  title: 'Longer than anything in training',
  name: 'Beyond training',
  defaults: {length: trained, text: ''},
  make({core, facts, change, state, story}) {
    const settings = settingsOf(change);
    const box = h('div', {class: 'four'}), legend = legendOf([
      ...[...Array(heads).keys()].map(head => ({name: `head ${head}`})),
      {name: 'Shaw: all heads', style: 'band', colour: grey}, {name: 'Shaw: their median', colour: grey}
    ]);
    const tokens = tokensOf(core);
    tokens.problem(min, [shaw]);
    const vectors = core.filled(0, 0), table = trainedTable(core, facts, 0), schemes = schemesOf(core, vectors, table);
    let known = null;
    const shares = length => sharesOf(known, length);
    const play =
      player({key: 'length', state, change, text: 'Play: 64 to 8,192', ends: [min, max], next: doubling(max)});
    return step(this, {
      story,
      settings,
      state,
      change,
      figure: box,
      save: h('button', {type: 'button', onclick: () => download(file, fileOf(tokens, vectors, table, state().length))},
        'Save the arrays'),
      guess: guessOf(schemes, shares, state, change),
      lead: drag => [`Suppose no training text had more than ${trained} tokens: the shaded part. This text has `,
        drag('length', {text: count, log: true}), '. What do four schemes do with longer distances? ', play],
      fold: 1,
      text: paragraphs(),
      formula: math(words('new offsets:'), i('δ'), o('='), i('j'), o('−'), i('i'), o('≤'), n(`−${trained}`)),
      papers: [
        paper('Chen et al. 2023, Position interpolation', '2306.15595'), paper('Peng et al. 2023, YaRN', '2309.00071')
      ],
      workshop: viewLink({id: 'rope'}, 'slow RoPE’s dials'),
      notes,
      compute(state) {
        const {length} = state, gap = parseFloat(getComputedStyle(box).columnGap) || 0,
              width = (widthOf(box) - gap) / columns;
        settings.set(state);
        known ??= numbersOf(core, tokens.problem, schemes);
        const found = known.map(({scores}) => scores), shown = kept(length), fractions = shares(length),
              own = state.text.split(/\s+/).filter(Boolean).length;
        const room = heightOf(box) / 2 - (width > 240 ? 80 : 138);  // for a chart, so that all are on the first screen
        const tall = Math.min(room > 112 ? room : 140, 1.3 * width);
        const figures = schemes.map(
          (scheme, n) => chartOf(scheme, n, found[n], fractions[n], {length, shown, words: own, width, tall}));
        schemes.forEach(
          ({note}, n) =>
            figures[n].querySelector('figcaption').append(h('span', {class: 'note'}, note(length, known[n]))));
        box.replaceChildren(...figures, legend);
        return {
          said: sentence(length, play.getAttribute('aria-pressed') === 'true'),
          numbers: {fractions},
          csv: () => [['back', ...schemes.flatMap(({name}) => found[0].map((_, head) => `${name} head ${head}`))],
            ...Array.from({length}, (_, back) => [back, ...found.flatMap(all => all.map(scores => scores[back]))])],
          code: codeOf(core, schemes, length)
        };
      }
    });
  }
};
