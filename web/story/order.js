// order.js -- the first two steps: attention that does not see the order of words, and a bias that shows it. One figure, without and with a term.
// SPDX-License-Identifier: Apache-2.0
import {shell} from '../code.js';
import {controls, fixed, h, viewLink} from '../ui.js';

import {frac, i, math, n, o, root, row, sub} from './mathml.js';
import {paper, step} from './step.js';
import {readOrder, shuffled, Words} from './words.js';

const example = 'only she told him she loved him', most = 12;
const score =
  () => [sub(i('s'), row(i('i'), i('j'))), o('='), frac(row(sub(i('q'), i('i')), o('·'), sub(i('k'), i('j'))), root(i('d')))];
const softmax = () => [sub(i('a'), row(i('i'), i('j'))), o('='),
  frac(row(i('exp'), sub(i('s'), row(i('i'), i('j')))), row(sub(o('∑'), i('m')), i('exp'), sub(i('s'), row(i('i'), i('m')))))];

/** Attention of words in an order, all numbers by word: weights [word][word], outputs [word], biases of one word [place]. */
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

/** Orders that read differently. */
const orders = words => {
  const count = new Map();
  for (const word of words) count.set(word, (count.get(word) ?? 0) + 1);
  return [...count.values()].reduce((all, c) => all / factorial(c), factorial(words.length));
};

function page(it, {core, change, state, story}, {term, more = [], ...said}) {
  const settings = controls(
    [
      {key: 'order', type: 'text'}, {key: 'word', lower: 0, upper: most - 1}, ...more,
      {key: 'text', label: 'Words of your own', type: 'text'}
    ],
    change);
  settings.of('text').element.querySelector('input').placeholder = example;
  const figure = new Words({onorder: order => change({order: order.join('.')}), onpick: word => change({word})});
  let now = [];
  const button = (text, order, more) =>
    h('button', {type: 'button', ...more, onclick: () => change({order: order().join('.')})}, text);
  return step(it, {
    story,
    settings,
    state,
    figure: figure.element,
    extra:
      [button('Shuffle the words', () => shuffled(now), {class: 'main'}), button('Back in order', () => now.map((_, k) => k))],
    ...said,
    compute(state) {
      const words = (state.text.trim() || example).split(/\s+/), {length} = words;
      if (length > most) throw new Error(`${length} words: at most ${most} fit here`);
      if (words.join('').length > 60) throw new Error(`${words.join('').length} letters: at most 60 fit here`);
      const order = readOrder(state.order, length), chosen = Math.min(state.word, length - 1), terms = term ? [term(state)] : [];
      now = order;
      settings.set(state);
      const found = attend(core, words, order, terms, chosen), first = attend(core, words, words.map((_, k) => k), terms, chosen),
            plain = term && attend(core, words, order, [], chosen), moved = farthest(found.weights, first.weights),
            movedOutput = farthest(found.outputs, first.outputs);
      figure.show(
        {words, order, chosen, weights: found.weights[chosen], ghosts: plain?.weights[chosen], biases: term && found.biases});
      const place = order.indexOf(chosen), sentence = order.map(word => words[word]);
      return {
        said: it.said({moved, movedOutput, words, count: orders(words), chosen, same: order.every((x, k) => x === k)}),
        numbers: {moved, movedOutput, orders: orders(words)},
        csv: () => [
          ['key', 'weight', 'bias'], ...order.map((word, at) => [words[word], found.weights[chosen][word], found.biases[at]])],
        code: {
          CLI: shell([
            'relpos', 'explain', '--query', place, ...(terms.length ? ['--bias', terms[0]] : ['--no-bias']), '--all', '--',
            sentence.join(' ')
          ])
        }
      };
    }
  });
}

const strong = text => h('strong', {}, text);

export const order = {
  id: 'story-order',
  title: 'Attention does not see the order of words',
  name: 'Order',
  defaults: {order: '', word: 2, text: ''},
  said: ({moved, words, count, same}) => [same ? `These words have ${count.toLocaleString('en')} orders. ` : 'In this order ',
    same ? 'Shuffle them, and see how far a weight moves.' : strong(`no weight has moved: ${fixed(moved)}`),
    same ?
      '' :
      ` is the largest change of all ${words.length ** 2}, and so it is in each of the ${count.toLocaleString('en')} orders.`],
  make(tools) {
    return page(this, tools, {
      lead:
        'Drag a word to another place, or shuffle them all. The blue arcs are what one word looks at: every weight travels with its word.',
      text: [
        [
          'Attention compares what words are, not where they stand. Move ', h('em', {}, 'only'),
          ', and the sentence says something else each time; to attention it is the same bag of words. ',
          'Click a word to see what it looks at.'
        ],
      ],
      formula: [math(...score()), math(...softmax())],
      papers: [paper('Vaswani et al. 2017, Attention is all you need', '1706.03762')],
      workshop: viewLink({id: 'sentence'}, 'one query, step by step'),
      notes: [
        'The numbers under the words are weights: how much of each word goes into the output of the chosen one. They sum to 1. Query, key and value of a word are eight numbers that the library makes of its letters, not those of a trained model.',
        'With a causal mask, as in GPT, a word sees only those before it, and so attention knows something of the order even without positions.'
      ]
    });
  }
};

export const bias = {
  id: 'story-bias',
  title: 'A bias tells near from far',
  name: 'A bias',
  defaults: {order: '', word: 2, strength: 0.5, text: ''},
  said: ({moved, same}) => same ? 'Move the strength, then a word: now it matters where it stands.' :
                                  [
                                    'In this order ', strong(`weights have moved by up to ${fixed(moved)}`),
                                    moved < 5e-5 ? ': without a bias, by nothing.' : '. Attention sees the order.'
                                  ],
  make(tools) {
    return page(this, tools, {
      term: ({strength}) => `log,lambda=${strength}`,
      more: [{key: 'strength', label: 'Strength λ of the bias', type: 'range', min: 0, max: 2, step: 0.05, lower: 0, upper: 10}],
      lead:
        'Add a number to each score that depends on the distance alone, here the orange bars. Make it stronger, and drag the words over them.',
      text: [
        [
          'The bars stay with the places, the words move over them: far words lose, near words gain. ',
          'The outlines are the weights without the bias. At strength 0 the order is lost again.'
        ],
      ],
      formula: math(...score(), o('−'), i('λ'), i('log'), o('('), n('1'), o('+'), o('|'), i('i'), o('−'), i('j'), o('|'), o(')')),
      papers: [paper('Chi et al. 2022, Kerple', '2205.09921'), paper('Raffel et al. 2019, T5', '1910.10683')],
      workshop: viewLink({id: 'bias'}, 'every bias as a map'),
      notes: [
        'The softmax makes factors of what is added to scores: a bias of −0.69 halves what a word would get beside the others.',
        'Reverse all words and no weight moves: this bias knows how far, and not which way. T5’s buckets and Shaw’s vectors know that too.',
        'This is the logarithmic bias of the library, the term log. The next steps differ in what they put in its place.'
      ]
    });
  }
};
