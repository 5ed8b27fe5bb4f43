// order.js -- the first two steps, which share one figure: attention does not depend on the order of words; a bias
// makes it depend on it. SPDX-License-Identifier: Apache-2.0
import {shell} from '../code.js';
import {controls, fixed, h, viewLink} from '../ui.js';

import {frac, i, math, n, named, o, root, row, sub} from './mathml.js';
import {paper, step} from './step.js';
import {cutOf, example, maxWords, readOrder, shuffled, Words, wordsOf} from './words.js';

const score = () => [sub(i('s'), row(i('i'), i('j'))), o('='),
  frac(row(sub(i('q'), i('i')), o('·'), sub(i('k'), i('j'))), root(i('d')))];
const softmax = () => [sub(i('a'), row(i('i'), i('j'))), o('='),
  frac(named('exp', sub(i('s'), row(i('i'), i('j')))),
    row(sub(o('∑'), i('m')), named('exp', sub(i('s'), row(i('i'), i('m'))))))];

/** Compute the attention among words in a given order: weights [word][word], outputs [word], and the biases of one word
 * [place]. */
function attend(core, words, order, terms, chosen) {
  const {q, k, v, width} = core.words(order.map(word => words[word])), len = words.length;
  core.problem({lenQ: len, lenK: len, dimK: width, terms, q, k, v});
  const rows = core.rows('weights', 0), out = core.rows('out', 0), place = words.map((_, word) => order.indexOf(word));
  return {
    weights: words.map((_, a) => words.map((_, b) => rows[place[a] * len + place[b]])),
    outputs: words.map((_, a) => [...out.slice(place[a] * width, (place[a] + 1) * width)]),
    biases: [...core.row(0, place[chosen]).bias]
  };
}

const farthest = (a, b) => Math.max(0, ...a.flatMap((row, x) => row.map((value, y) => Math.abs(value - b[x][y]))));
const factorial = n => n < 2 ? 1 : n * factorial(n - 1);

/** Return in how many different orders the words can be arranged. */
const orders = words => {
  const count = new Map();
  for (const word of words) count.set(word, (count.get(word) ?? 0) + 1);
  return [...count.values()].reduce((all, c) => all / factorial(c), factorial(words.length));
};

/** Return the controls; more: further ones. */
const settingsOf = (more, change) => controls(
  [
    {
      key: 'order',
      type: 'text',
      want: (order, {text}) => readOrder(order, wordsOf(text).length).join('.') === order || !order ?
        '' :
        `the places of ${wordsOf(text).length} words, such as ${wordsOf(text).map((_, k) => k).reverse().join('.')}`
    },
    {key: 'word', lower: 0, upper: maxWords - 1, limit: ({text}) => wordsOf(text).length - 1}, ...more,
    {key: 'text', label: 'Your words', type: 'text', placeholder: example}
  ],
  change);

/** Return what there is to say about a state, and what can be saved; found: the attention, plain: that without the
 * term. */
function resultOf(it, {words, order, chosen, count, terms}, found, first, plain, strength) {
  const place = order.indexOf(chosen), sentence = order.map(word => words[word]),
        moved = farthest(found.weights, first.weights), movedOutput = farthest(found.outputs, first.outputs);
  return {
    said: it.said({
      moved,
      added: plain && farthest([found.weights[chosen]], [plain.weights[chosen]]),
      movedOutput,
      words,
      count,
      chosen,
      same: order.every((x, k) => x === k),
      strength
    }),
    numbers: {moved, movedOutput, orders: count},
    csv: () => [['key', 'weight', 'bias'],
      ...order.map((word, at) => [words[word], found.weights[chosen][word], found.biases[at]])],
    code: {
      CLI: shell([
        'relpos', 'explain', '--query', place, ...(terms.length ? ['--bias', terms[0]] : ['--no-bias']), '--all', '--',
        sentence.join(' ')
      ])
    }
  };
}

function page(it, {core, change, state, story}, {term, more = [], ...said}) {
  const settings = settingsOf(more, change);
  const figure = new Words({onorder: order => change({order: order.join('.')}), onpick: word => change({word})});
  let now = [];
  const button = (text, order, more) =>
    h('button', {type: 'button', ...more, onclick: () => change({order: order().join('.')})}, text);
  const moves = [
    button('Shuffle the words', () => shuffled(now), {class: 'main'}), button('Reverse', () => [...now].reverse()),
    button('Restore', () => now.map((_, k) => k))
  ];
  return step(it, {
    story,
    settings,
    state,
    change,
    figure: figure.element,
    extra: moves,
    ...said,
    guess: {...it.guess, reveal: () => change({order: it.guess.tries(now).join('.')})},
    compute(state) {
      const words = wordsOf(state.text), {length} = words;
      const order = readOrder(state.order, length), chosen = Math.min(state.word, length - 1),
            terms = term ? [term(state)] : [], count = orders(words);
      now = order;
      for (const button of moves) button.disabled = count === 1;
      settings.set(state);
      const found = attend(core, words, order, terms, chosen),
            first = attend(core, words, words.map((_, k) => k), terms, chosen),
            plain = term && attend(core, words, order, [], chosen);
      figure.show({
        words,
        order,
        chosen,
        weights: found.weights[chosen],
        ghosts: plain?.weights[chosen],
        biases: term && found.biases
      });
      const result = resultOf(it, {words, order, chosen, count, terms}, found, first, plain, state.strength);
      return {...result, cut: cutOf(state.text)};
    }
  });
}

const strong = text => h('strong', {}, text);

export const order = {
  id: 'story-order',
  title: 'Attention does not see the order of words',
  name: 'Order',
  resets: ['order', 'word'],
  guess: {
    ask: 'you move one word. Which weights change?',
    choices: ['those of that word', 'all', 'none'],
    right: () => 2,
    because: 'Attention compares words, not places: the last word is now the first one.',
    tries: order => [order.at(-1), ...order.slice(0, -1)]
  },
  defaults: {order: '', word: 2, text: ''},
  said: ({moved, words, count, same}) => count === 1 ?
    ['These words have only one order. Enter different words to shuffle them.'] :
    [
      same ? `These words have ${count.toLocaleString('en')} orders. ` : 'In this order ',
      same ? 'Shuffle them, and see how much a weight changes.' : strong(`no weight has changed: ${fixed(moved)}`),
      same ? '' :
             ` is the largest change of all ${words.length ** 2} weights. The same holds for each of the ${
               count.toLocaleString('en')} orders.`
    ],
  make(tools) {
    return page(this, tools, {
      fold: 0,
      lead: 'Drag a word to another place, or shuffle all words. The arcs and bars show how much attention the blue ' +
        'word gives to each word.',
      text: [
        [
          'Attention compares the contents of the words, not their places: when a word moves, its weight moves with ' +
            'it. In “only she told him she loved him”, move ',
          h('em', {}, 'only'),
          ', and the meaning changes each time; attention sees the same set of words. Click another word to see its ' +
            'attention.'
        ],
      ],
      formula: [math(...score()), math(...softmax())],
      papers: [paper('Vaswani et al. 2017, Attention is all you need', '1706.03762')],
      workshop: viewLink({id: 'sentence'}, 'one query, step by step'),
      notes: [
        'The numbers under the words are weights: the contribution of each word to the output of the chosen word. ' +
          'They sum to 1. Query, key and value of a word are eight numbers each, which the library computes from its ' +
          'letters; they are not from a trained model.',
        'With a causal mask, as in GPT, a word attends only to the words before it, so attention depends on the ' +
          'order even without positions.'
      ]
    });
  }
};

export const bias = {
  id: 'story-bias',
  title: 'A bias distinguishes near from far',
  name: 'A bias',
  resets: ['order', 'word'],
  guess: {
    ask: 'you reverse all words. Does a weight change?',
    choices: ['yes', 'no'],
    right: () => 1,
    because: 'All distances stay the same, and the bias depends only on them.',
    tries: order => [...order].reverse()
  },
  defaults: {order: '', word: 2, strength: 2, text: ''},
  said: ({moved, same, added, words, strength}) => words.length < 2 ?
    ['A single word has the whole weight. Enter two or more words.'] :
    same ?
    [
      'The bias changes a weight of the chosen word by up to ', strong(fixed(added)),
      '. Now move a word: its place matters.'
    ] :
    [
      'In this order ',
      strong(moved >= 5e-5 ? `weights have changed by up to ${fixed(moved)}` : 'no weight has changed'),
      moved >= 5e-5    ? '. Attention depends on the order.' :
        strength === 0 ? '. Without a bias nothing changes.' :
                         ': the distances to the chosen word are the same.'
    ],
  make(tools) {
    return page(this, tools, {
      term: ({strength}) => `log,lambda=${strength}`,
      more: [{
        key: 'strength',
        label: 'Strength λ of the bias',
        type: 'range',
        min: 0,
        max: 4,
        step: 0.05,
        lower: 0,
        upper: 10
      }],
      lead: drag =>
        ['To each score, add a bias that depends only on the distance: −λ · log(1 + distance), the orange bars, ' +
            'with λ = ',
          drag('strength', {text: x => x.toFixed(2)}), '. Drag this number, then drag the words over the bars.'],
      text: [
        [
          'Each orange bar belongs to a place, not to a word. Far words lose weight, and near words gain weight; ' +
            'the dashed outlines are the weights without the bias. ',
          'If λ is 0, the order has no effect again.'
        ],
      ],
      formula: math(
        ...score(), o('−'), i('λ'), i('log'), o('('), n('1'), o('+'), o('|'), i('i'), o('−'), i('j'), o('|'), o(')')),
      papers: [paper('Chi et al. 2022, Kerple', '2205.09921'), paper('Raffel et al. 2020, T5', '1910.10683')],
      workshop: viewLink({id: 'bias'}, 'every bias as a map'),
      notes: [
        'The softmax turns a number added to a score into a factor: a bias of −0.69 halves a word’s weight relative ' +
          'to the others.',
        'Reverse all words, and no weight changes: this bias depends on the distance, not on the direction. T5’s ' +
          'buckets and Shaw’s vectors depend on both.',
        'This is the logarithmic bias of the library, the term log. The next steps show other terms.'
      ]
    });
  }
};
