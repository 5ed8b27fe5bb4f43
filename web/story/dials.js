// dials.js -- the step about RoPE: pairs of channels as dials; both hands turn with the position, and the angle between
// them stays. SPDX-License-Identifier: Apache-2.0
import {chart, legendOf} from '../chart.js';
import {nested, shell} from '../code.js';
import {dial, sums} from '../dial.js';
import {rotatedRow} from '../term.js';
import {controls, fixed, h, minus, viewLink} from '../ui.js';

import {i, math, o, row, sub, sup} from './mathml.js';
import {paper, player, roomy, step, tall, walk, widthOf} from './step.js';
import {cutOf, example, wordsOf} from './words.js';

const maxPosition = 200, reach = 64;
const x = Array.from({length: reach + 1}, (_, n) => n);  // the distances

const settingsOf = change => controls(
  [
    {key: 'at', label: 'Position of the key', type: 'range', min: 0, max: maxPosition, lower: 0, upper: 100000},
    {key: 'back', label: 'Distance of the query after it', type: 'range', min: 0, max: reach, lower: 0, upper: reach}, {
      key: 'base',
      label: 'Base: larger is slower',
      type: 'select',
      options: [['100', '100'], ['10000', '10,000, as in Llama 2']]
    },
    {
      key: 'text',
      label: 'Your words: the last one is the query, the one before it is the key',
      type: 'text',
      placeholder: example
    }
  ],
  change);

/** Return the question of the step. */
const guessOf = (state, change) => ({
  ask: 'both words move by 100 places. What does the score do?',
  choices: ['it rises', 'it falls', 'it stays'],
  right: () => 2,
  because: 'All hands have turned, but the angles between them stay the same.',
  reveal: () => change({at: state().at + (state().at + 100 <= maxPosition ? 100 : -100)})
});

const text = [
  'RoPE adds nothing to the scores. It takes the channels of query and key two by two, as the hands of a ' +
    'dial: blue for the query, dashed orange for the key. Each position turns a hand by a fixed angle.',
  'The angle between the hands depends only on the distance, and so does the score. As on a clock, fast hands ' +
    'tell neighbours apart, and slow hands tell near from far.'
];

const formula = [
  math(o('⟨'), i('R'), o('('), i('m'), o(')'), i('q'), o(','), i('R'), o('('), i('n'), o(')'), i('k'), o('⟩'), o('='),
    o('⟨'), i('q'), o(','), i('R'), o('('), i('n'), o('−'), i('m'), o(')'), i('k'), o('⟩')),
  math(sub(i('θ'), i('t')), o('='), sup(i('base'), row(o('−'), i('2'), i('t'), o('/'), i('d'))))
];

const notes = [
  'The words have eight channels here, so four dials; a head of Llama has 128 channels and 64 dials. The base ' +
    'is small, so you can see the slow dials turn.',
  'The library rotates both vectors before their product. The picture shows the same angles.'
];

/** Return the query and the key of the last two words: {two: the words, q, k}. */
function lastTwo(core, text) {
  const words = wordsOf(text),
        two = [words.at(-1), words.at(-2) ?? words[0]],  // in the text, the key is before the query
    {q, k, width} = core.words(two);
  return {two, q: q.slice(0, width), k: k.slice(width)};
}

/** Return the dials of all pairs of channels, with the query at position m and the key at `at`. */
function dialsOf({q, k}, frequency, m, at) {
  const pairs = q.length / 2;
  const longest = c => Math.max(Math.hypot(q[c], q[c + pairs]), Math.hypot(k[c], k[c + pairs])) || 1;
  return Array.from({length: pairs},
    (_, c) =>
      h('div', {}, dial({
        hands: [[q[c], q[c + pairs], m * frequency[c], '', 0], [k[c], k[c + pairs], at * frequency[c], '5 4', 1]],
        longest: longest(c),
        between: true,
        label: `dial ${c}: the query has turned by ${fixed(m * frequency[c], 2)}, the key by ${
          fixed(at * frequency[c], 2)} radians`
      }),
        `${(frequency[c] * 180 / Math.PI).toPrecision(2)}° a\u00a0token`));
}

/** Return score(position of the query, position of the key, dial): the score, or the part of a dial, which is the score
 * if other channels of the query are 0. */
function scoring(core, {q, k}, text) {
  const pairs = q.length / 2;
  return (query, key, dial = -1) => {
    const only = dial < 0 ? q : q.map((x, c) => c % pairs === dial ? x : 0);
    return rotatedRow(core, text, {q: only, k}, query, key).scaled[0];
  };
}

const barsOf = (parts, sum, width, height) =>
  sums({parts, sum, names: [...parts.map((_, dial) => `${dial ? '+ ' : ''}dial ${dial}`), '= score'], width, height});

const chartOf = (y, here, back, width, height, change) => chart({
  title: 'The score over the distance',
  xLabel: 'distance of the key before the query',
  yLabel: 'score',
  width,
  height,
  series: [{name: '', x, y}],
  marks: [{x: back, text: minus(fixed(here))}],
  onpick: to => change({back: Math.min(Math.max(Math.round(to), 0), reach)})
});

/** Return the score of the two words, here and at the beginning of a text, as a sentence. */
const sentence = (two, {at, back}, here,
  there) => [`The query “${two[0]}” at ${at + back} looks back at the key “${two[1]}” at ${at}: the score is `,
  h('strong', {}, minus(fixed(here))),
  at === dials.defaults.at ? '.' : `. At ${back} and 0, with the same distance, it is ${minus(fixed(there))}.`];

function codeOf({q, k}, base, m, at) {
  const shape = [1, 1, 1, q.length];
  return {
    CLI: `python3 - <<'END'\nimport numpy as np\nnp.savez("rope.npz", q=${nested(q, shape)}, k=${nested(k, shape)}, v=${
           nested(k, shape)}, m=[${m}.0], n=[${at}.0])\nEND\n` +
      shell(['relpos', 'explain', '--input', 'rope.npz', '--rope', `base=${base},q_positions=m,k_positions=n`])
  };
}

export const dials = {
  id: 'story-dials',
  title: 'RoPE: positions rotate channels',
  name: 'RoPE’s dials',
  defaults: {at: 30, back: 6, base: 100, text: ''},
  make({core, change, state, story}) {
    const settings = settingsOf(change), {width} = core.words(['a']), pairs = width / 2,
          columns = pairs + 1;  // the last column is the sum
    const planes = h('div', {class: 'dials', style: `--columns: ${columns}`}), box = h('div', {class: 'drag'}),
          bars = h('div'), key = legendOf([{name: 'query'}, {name: 'key'}]);
    return step(this, {
      story,
      settings,
      state,
      change,
      figure: h('div', {}, planes, bars, box),
      extra: [player({key: 'at', state, change, text: 'Move both words', next: walk(60, maxPosition)})],
      guess: guessOf(state, change),
      lead: drag => ['The key is at position ', drag('at'), ', and the query is ', drag('back'),
        ' tokens after it. Drag the first number to move both words, and the second to change their distance.'],
      fold: 1,
      text,
      formula,
      papers: [paper('Su et al. 2021, RoFormer', '2104.09864')],
      workshop: viewLink({id: 'rope'}, 'wavelengths and scalings'),
      notes,
      compute(state) {
        const {at, back, base} = state, m = at + back, text = `rope,base=${base}`,
                         {frequency} = core.frequencies(`${text},dim=${width}`, width, 1),
                         found = lastTwo(core, state.text);
        const wide = widthOf(box), high = tall(box, 170, 223 + Math.min(0.26 * innerHeight, wide / columns));
        settings.set(state);
        planes.replaceChildren(
          ...dialsOf(found, frequency, m, at), h('div', {class: 'whole'}, key, 'The score is the sum.'));
        const score = scoring(core, found, text), y = x.map(n => score(n, 0)), here = score(m, at),
              parts = Array.from({length: pairs}, (_, dial) => score(m, at, dial));
        bars.replaceChildren(barsOf(parts, here, wide, roomy(box) ? 150 : 104));
        box.replaceChildren(chartOf(y, here, back, wide, high, change));
        return {
          cut: cutOf(state.text),
          said: sentence(found.two, state, here, y[back]),
          numbers: {here, there: y[back], parts},
          csv: () => [['apart', 'score', ...parts.map((_, dial) => `dial ${dial}`)],
            ...x.map(n => [n, y[n], ...parts.map((_, dial) => score(n, 0, dial))])],
          code: codeOf(found, base, m, at)
        };
      }
    });
  }
};
