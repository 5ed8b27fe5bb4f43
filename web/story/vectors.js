// vectors.js -- the step about Shaw: each offset has a vector, so the effect of a distance depends on the query word.
// SPDX-License-Identifier: Apache-2.0
import {chart} from '../chart.js';
import {nested, shell} from '../code.js';
import {controls, fixed, h, minus, signed, viewLink, wordButtons} from '../ui.js';
import {frac, i, math, o, root, row, sub} from './mathml.js';
import {paper, step, tall, widthOf} from './step.js';
import {cutOf, example, maxWords, wordsOf} from './words.js';

const far = 8;
const count = 2 * far + 1, x = Array.from({length: count}, (_, n) => n - far);  // the offsets

const settingsOf = change => controls(
  [
    {key: 'word', lower: 0, upper: maxWords - 1, limit: ({text}) => wordsOf(text).length - 1},
    {key: 'clip', label: 'Reach of the vectors', type: 'range', min: 0, max: far, lower: 0, upper: far},
    {key: 'offset', label: 'Offset of the other word', type: 'range', min: -far, max: far, lower: -far, upper: far},
    {key: 'text', label: 'Your words', type: 'text', placeholder: example}
  ],
  change);

/** Return functions for tables of random vectors with this reach: {width, table(clip), scores(q, clip): how much each
 * offset adds to the scores of a word with the query q. k is 0, so nothing else contributes}. */
function vectorsOf(core) {
  const {q: some, width} = core.words(['a']), whole = `relkey,left=${far},right=${far}`;
  core.problem(
    {lenQ: 1, lenK: count, qOffset: far, dimK: width, terms: [whole], q: some, k: new Float64Array(count * width)});
  const {data: all} = core.filled(0, 0);
  const table = clip =>
    ({shape: [2 * clip + 1, width], data: all.slice((far - clip) * width, (far + clip + 1) * width)});
  const scores = (q, clip) => {
    core.problem({
      lenQ: 1,
      lenK: count,
      qOffset: far,
      dimK: width,
      terms: [{text: `relkey,left=${clip},right=${clip}`, arrays: {table: table(clip)}}],
      q,
      k: new Float64Array(count * width)
    });
    return core.rows('scores', 0);
  };
  return {width, table, scores};
}

/** Return the question of the step. */
const guessOf = (state, change) => ({
  ask: 'a word occurs twice. Do its two places have different bars?',
  choices: ['yes', 'no'],
  right: () => 1,
  because: 'The bars depend on the word and the offset, not on the place.',
  reveal: () => {  // the other place of a word that occurs twice
    const words = wordsOf(state().text), at = Math.min(state().word, words.length - 1),
          other = n => words.findIndex((word, k) => k !== n && word === words[n]), first = other(at),
          to = first >= 0 ? first : words.findIndex((_, n) => other(n) >= 0);
    if (to >= 0) change({word: to});
  }
});

const text =
  ['A bias is the same for every word. Shaw learns a vector for each offset and adds it to the key, so its ' +
    'product with the query counts too. A verb can then attend to both sides, and an article only to the next ' +
    'words. The vectors here are random, as before training.'];

const formula = math(sub(i('s'), row(i('i'), i('j'))), o('='),
  frac(row(sub(i('q'), i('i')), o('·'), o('('), sub(i('k'), i('j')), o('+'),
         sub(i('a'), row(i('clip'), o('('), i('j'), o('−'), i('i'), o(')'))), o(')')),
    root(i('d'))));

/** Return the chart of what each offset adds to the scores of a word. */
const chartOf = (found, word, {clip, offset}, tallest, width, height, change) => chart({
  title: `Contribution of each offset to the scores of “${word}”`,
  xLabel: 'before  ←  offset = key − query  →  after',
  yLabel: 'score',
  width,
  height,
  low: -tallest,
  high: tallest,
  series: [{name: '', x, y: found, style: 'bars', colour: 3}],
  zones: clip < far ?
    [
      {from: -far - 0.5, to: 0.5 - clip, text: 'shared', shade: true},
      ...(clip > 0 ? [{from: 0.5 - clip, to: clip - 0.5, text: 'a vector each', shade: false}] : []),
      {from: Math.max(clip - 0.5, 0.5), to: far + 0.5, text: clip ? 'shared' : '', shade: true}
    ] :
    [],
  marks: [{x: offset, text: minus(signed(found[offset + far], 2))}],
  onpick: at => change({offset: Math.min(Math.max(Math.round(at), -far), far)})
});

/** Return what a word at the chosen offset adds, as a sentence. */
function sentence(word, value, {clip, offset}) {
  const side = offset < 0 ? 'before' : 'after', shared = Math.abs(offset) >= clip;
  return [
    `For “${word}”, a word `, offset ? `${Math.abs(offset)} ${side}` : 'at the same place', ' adds ',
    h('strong', {}, minus(signed(value))), ' to its score',
    shared ? clip ? `, like all words ${clip} or more ${side}.` : ', like every other word.' : '.'
  ];
}

const codeOf = ({width, table}, q, clip) => ({
  CLI: `python3 - <<'END'\nimport numpy as np\nnp.savez("shaw.npz", q=${
         nested(q, [1, 1, 1, width])}, k=np.zeros((1, 1, ${count}, ${width})), v=np.zeros((1, 1, ${count}, ${
         width})),\n         a=${nested(table(clip).data, [2 * clip + 1, width])})\nEND\n` +
    shell([
      'relpos', 'explain', '--input', 'shaw.npz', '--q-offset', far, '--relkey', `table=a,left=${clip},right=${clip}`,
      '--all'
    ])
});

export const vectors = {
  id: 'story-vectors',
  title: 'Shaw: the effect of a distance depends on the word',
  name: 'Shaw’s vectors',
  defaults: {word: 2, clip: 4, offset: -1, text: ''},
  resets: ['word'],
  make({core, change, state, story}) {
    const settings = settingsOf(change), vectors = vectorsOf(core), {width, scores} = vectors;
    const buttons = h('div', {class: 'words', role: 'group', 'aria-label': 'The query word'}),
          box = h('div', {class: 'drag'});
    return step(this, {
      story,
      settings,
      state,
      change,
      figure: h('div', {}, buttons, box),
      guess: guessOf(state, change),
      lead: drag =>
        ['A bar shows how much a word at that offset gains in score; −1 is the word before. Choose a query word: ' +
            'its own numbers and the vectors make the bars. On each side, words ',
          drag('clip'), ' or more away share one vector.'],
      text,
      formula,
      papers:
        [paper('Shaw, Uszkoreit, Vaswani 2018, Self-attention with relative position representations', '1803.02155')],
      workshop: viewLink({id: 'shaw'}, 'six words with seven vectors'),
      notes: [
        'The queries of the words are eight numbers computed from their letters.',
        'Transformer-XL and DeBERTa also multiply keys with position vectors.'
      ],
      compute(state) {
        const {clip, offset} = state, words = wordsOf(state.text), word = Math.min(state.word, words.length - 1),
                     {q: all} = core.words(words), queries = words.map((_, n) => all.slice(n * width, (n + 1) * width)),
                     tallest = Math.max(...queries.flatMap(q => [...scores(q, far)].map(Math.abs))), q = queries[word],
                     found = scores(q, clip);
        const wide = widthOf(box), high = tall(box, 250, 110);
        settings.set(state);
        wordButtons(buttons, words, word, word => change({word}));
        box.replaceChildren(chartOf(found, words[word], state, tallest, wide, high, change));
        return {
          cut: cutOf(state.text),
          said: sentence(words[word], found[offset + far], state),
          numbers: {scores: [...found]},
          csv: () => [['offset', 'score'], ...x.map((at, n) => [at, found[n]])],
          code: codeOf(vectors, q, clip)
        };
      }
    });
  }
};
