// sentence.js -- the view of one query in a sentence, step by step, with the numbers of `relpos explain`.
// SPDX-License-Identifier: Apache-2.0
import {chart} from '../chart.js';
import {nested, optionOf, printedWeights, program, pythonOptions, shell} from '../code.js';
import {ofChart} from '../export.js';
import {frame} from '../frame.js';
import {HeatMap} from '../heat.js';
import {maskEditor, maskKeywords, maskOptions, readMasks} from '../mask.js';
import {nameOf, plainTerms, termEditor} from '../term.js';
import {
  calculation,
  controls,
  differenceOf,
  extent,
  fixed,
  folded,
  followChosen,
  h,
  inner,
  minus,
  sumOfProducts,
  table,
  valueText,
  weightOf,
  wordButtons
} from '../ui.js';

/** Return true if a term has a different default for each head when its array is missing, such as ALiBi's slopes. The
 * view then uses 8 heads, like the command line. */
const manyHeads = (core, text) => {
  const kind = core.kindOf[nameOf(text)], first = kind?.arrays[0];
  return !!first && kind.bias && first.optional && first.learned && !text.includes(`,${first.name}=`);
};

const typed = text => text.trim().split(/\s+/).filter(Boolean);

/** Create the editors of the terms and the masks. */
function editorsOf({core, facts, change}) {
  const names = plainTerms(core, facts);
  return [
    termEditor({core, facts, key: 'a', legend: 'Term', names, change}),
    termEditor({core, facts, key: 'b', legend: 'Compare with', names, none: true, change}),
    maskEditor({core, key: 'masks', change})
  ];
}

/** Create the controls of the view. An empty sentence means the words of `sample`. */
function settingsOf(sample, editors, change) {
  const wordsOf = text => typed(text).length ? typed(text) : sample.words;
  return controls(
    [
      {key: 'text', label: 'Sentence (empty: the worked example)', type: 'text'},
      {key: 'query', lower: 0, limit: state => wordsOf(state.text).length - 1},
      {key: 'head', label: 'Head', type: 'range', min: 0, max: 7, lower: 0, upper: 7},
    ],
    change, editors.map(editor => editor.element));
}

/** Create the maps of the view: three of weights, one of biases, and one of outputs. */
function mapsOf(change) {
  const onpick = r => change({query: r}), map = title => new HeatMap({title, value: 'weight', onpick}),
        weights = ['Standard weights', 'Biased weights', 'Difference'].map(map),
        bias = new HeatMap({title: 'Bias values B', onpick});
  HeatMap.link([...weights, bias]);
  return {
    weights,
    bias,
    outputs: new HeatMap({title: 'Outputs of all queries', columns: 'channel', value: 'number', ratio: 1, onpick})
  };
}

/** Arrange the words, the maps and the steps on the page. rest: the part with the tables of all queries, `every`. */
function pageOf({weights, bias, outputs}) {
  const words = h('div', {class: 'words', role: 'group', 'aria-label': 'The query word'}), steps = h('div'),
        every = h('div'), rest = folded('Weights and outputs of all queries', every);
  const output = h('div', {}, h('p', {class: 'note'}, 'Choose the query word:'), words,
    h('div', {class: 'panels'}, [...weights, bias].map(map => map.element), outputs.element), steps);
  return {output, words, steps, every, rest};
}

/** Read the sentence, the query and the masks of a state. own: the words that were typed. */
function readSentence(core, sample, state) {
  const own = typed(state.text),
        {words: tokens, q, k, v, width} = own.length ? {words: own, ...core.words(own)} : sample, n = tokens.length;
  if (n > 400) throw new Error(`the sentence has ${n} words: enter at most 400`);
  return {own, tokens, n, query: Math.min(state.query, n - 1), q, k, v, width, masks: readMasks(core, state.masks)};
}

/** Repeat the numbers of one head for every head. */
const wide = (data, heads) =>
  heads === 1 ? data : Float64Array.from({length: heads * data.length}, (_, x) => data[x % data.length]);

/** Compute the rows of all queries with these terms, in the chosen head or the last one. */
function attend(core, {tokens, n, q, k, v, width, masks}, terms, chosen) {
  const heads = terms.some(text => manyHeads(core, text)) ? 8 : 1, head = Math.min(chosen, heads - 1);
  core.problem(
    {heads, lenQ: n, lenK: n, dimK: width, terms, masks, q: wide(q, heads), k: wide(k, heads), v: wide(v, heads)});
  return {heads, head, rows: tokens.map((_, i) => core.row(head, i, true))};
}

/** Compute attention without a term, with the term to compare with, if any, and with the term; and for the query: the
 * rows without and with the term, the parts of its scores, and the difference of its weights. */
function attendAll(core, sentence, {a, b, head}) {
  const of = terms => attend(core, sentence, terms, head), {query} = sentence, plain = of([]),
        other = b ? of([b]) : null, found = of([a]), row = found.rows[query], standard = plain.rows[query];
  return {
    plain,
    other,
    found,
    row,
    standard,
    parts: core.parts(found.head, query),
    difference: row.weights.map((x, j) => x - standard.weights[j])
  };
}

/** Return a function that returns how the bias of a pair is computed, or nothing if the term is not a bias. */
const expressionOf = (core, {n, width, q, k}, {heads, head}, text) => (i, j) => core.kindOf[nameOf(text)].bias ?
  core.problem({heads, lenQ: n, lenK: n, dimK: width, terms: [text], q: wide(q, heads), k: wide(k, heads)})
    .expressions(head, i, j) :
  [];

/** Return the pairs of numbers whose products are the summands of q · k for the query and key j. */
const channelsOf =
  ({query, q, k, width}, j) => [...Array(width).keys()].map(c => [q[query * width + c], k[j * width + c]]);
const dot = pairs => pairs.reduce((sum, [x, y]) => sum + x * y, 0);

/** Return how a number of an output is computed: the sum of weights times values, unless a term adds vectors to
 * values. */
function outputOf({tokens, v, width}, row, c) {
  const pairs = tokens.map((_, j) => [row.weights[j], v[j * width + c]]),
        whole = Math.abs(dot(pairs) - row.out[c]) < 1e-9;
  return calculation(whole ? sumOfProducts(pairs) : ['the weights times values with their vectors'], fixed(row.out[c]));
}

/** Return the label of a part of the scores, and how its number for key j is computed. */
function partLabel(part, {sentence, row, rotates, expression}) {
  const {query, width} = sentence, scale = 1 / Math.sqrt(width), factor = +scale.toPrecision(6),
                product = j => dot(channelsOf(sentence, j)), value = j => fixed(part.values[j]);
  const how = {
    content: () => rotates ?
      [`Content, q · k · ${factor}`, j => calculation([`${fixed(product(j))} * ${factor}`], value(j))] :
      [`Scaled scores, raw · ${factor}`, j => calculation([`${fixed(row.raw[j])} * ${factor}`], value(j))],
    rotation: () => [`Rotation, raw · ${factor} − content`,
      j => calculation([`${fixed(row.raw[j])} * ${factor} - ${inner(product(j) * scale)}`], value(j))],
    bias: () => ['Bias values, B',
      j => `offset ${minus(j - query)}: ${calculation(expression(query, j), valueText(part.values[j]))}`],
    mask: () => ['Mask, 0 or −∞', j => valueText(part.values[j])]
  };
  return how[part.kind]?.() ?? [`${part.name}, ${part.formula}`, j => `${part.formula}: ${valueText(part.values[j])}`];
}

/** Return the lines of the table of scores: label, how the number of key j is computed, and the numbers. */
function scoreLines(sentence, {row, parts}, expression) {
  const rotates = parts.some(part => part.kind === 'rotation');
  return [
    [
      rotates ? 'Raw scores, R(q) · R(k)' : 'Raw scores, q · k',
      j => calculation(
        rotates ? ['the product of the rotated vectors'] : sumOfProducts(channelsOf(sentence, j), sentence.width),
        fixed(row.raw[j])),
      row.raw
    ],
    ...parts.map(part => [...partLabel(part, {sentence, row, rotates, expression}), part.values]),
    [
      parts.length === 2 && parts[1].kind === 'bias' ?
        'Biased scores, scaled + B' :
        `Biased scores, the sum from ${rotates ? 'content' : 'scaled'} on`,
      j => row.score[j] === -Infinity ?
        'masked' :
        calculation(parts.map(({values}, x) => (x ? inner : fixed)(values[j])), fixed(row.score[j])),
      row.score
    ]
  ];
}

/** Return the weights of the query as bars. */
function weightBars({tokens, query}, row) {
  return h('div', {class: 'scroll', tabindex: 0, role: 'group', 'aria-label': 'Weights'},
    h('table', {},
      h('tbody', {},
        tokens.map(
          (word, j) => h('tr', {}, h('th', {scope: 'row'}, `A[${tokens[query]},${word}]`),
            h('td', {}, fixed(row.weights[j])), h('td', {}, `d = ${Math.abs(j - query)}`),
            h('td', {style: 'text-align: left; width: 60%; min-width: 8rem'},
              row.score[j] === -Infinity ? 'masked' :
                                           h('span', {class: 'bar', style: `width: ${100 * row.weights[j]}%`})))))));
}

/** Return a chart of the weights of the query without and with the terms. */
function weightChart({tokens, query}, {standard, row, other}, {a, b}) {
  const bars = (name, y) => ({name, x: tokens.map((_, j) => j), y, style: 'bars'});
  return chart({
    title: `Weights of “${tokens[query]}”`,
    xLabel: 'key',
    yLabel: 'weight',
    low: 0,
    series: [
      bars('without a term', standard.weights), bars(a, row.weights),
      ...(other ? [bars(b, other.rows[query].weights)] : [])
    ]
  });
}

/** Show the steps of the query. */
function showSteps(box, {sentence, attention, terms: {b}, expression, curve, rest}) {
  const {tokens, n, query} = sentence, {found: {heads, head}, row, standard, other, difference} = attention,
                    lines = scoreLines(sentence, attention, expression),
                    sum = row.lse < 700 && row.lse > -Infinity ? fixed(Math.exp(row.lse)) : 'S';
  box.replaceChildren(
    h('h3', {},
      `1. Scores of “${tokens[query]}” (query ${query} of 0 to ${n - 1}${heads > 1 ? `, head ${head}` : ''})`),
    table(['', ...tokens], lines.map(([label, , values]) => [label, ...values]),
      {caption: 'Scores', calculation: (r, j) => lines[r][1](j)}),
    h('h3', {}, `2. Attention weights: exp(biased score) / ${sum}`), weightBars(sentence, row),
    h('h3', {}, '3. Output: the sum of weight times value'),
    h('pre', {tabindex: 0, 'aria-label': 'output'}, `[${[...row.out].map(x => fixed(x)).join(' ')}]`),
    h('h3', {}, '4. Without and with the term'),
    table(['', ...tokens],
      [
        ['Standard', ...standard.weights], ['Biased', ...row.weights],
        ...(other ? [[b, ...other.rows[query].weights]] : [])
      ],
      {caption: 'Weights', calculation: (r, j) => weightOf([standard, row, other?.rows[query]][r], j)}),
    table(['', ...tokens], [['Difference', ...difference]],
      {sign: true, calculation: (r, j) => differenceOf(row.weights[j], standard.weights[j])}),
    curve, rest);
}

/** Return tables of the weights of a short sentence without and with the term, and of their difference. */
function weightTables({tokens}, {plain, found}) {
  return [
    ...[plain, found].map(
      (x, m) => table([m ? 'Biased' : 'Standard', ...tokens], tokens.map((word, i) => [word, ...x.rows[i].weights]),
        {calculation: (i, j) => weightOf(x.rows[i], j)})),
    table(['Difference', ...tokens],
      tokens.map((word, i) => [word, ...found.rows[i].weights.map((x, j) => x - plain.rows[i].weights[j])]),
      {sign: true, calculation: (i, j) => differenceOf(found.rows[i].weights[j], plain.rows[i].weights[j])})
  ];
}

/** Show the weights and outputs of all queries as tables, if the sentence is short enough. */
function showEvery(box, sentence, {plain, found}) {
  const {tokens, n, width} = sentence;
  box.replaceChildren(...(n <= 8 ? weightTables(sentence, {plain, found}) : []),
    n <= 64 ? table(['Output', ...[...Array(width).keys()].map(c => `channel ${c}`)],
                found.rows.map((x, i) => [tokens[i], ...x.out]),
                {calculation: (i, c) => outputOf(sentence, found.rows[i], c)}) :
              h('p', {class: 'note'}, 'The table is shown for up to 64 words; the map above shows all outputs.'));
}

/** Show the weights of all pairs without and with the term, and their difference, in the maps. */
function showWeights(maps, {tokens, n, query}, {plain, found}) {
  const all = x => {
    const data = new Float64Array(n * n);
    x.rows.forEach((r, i) => data.set(r.weights.map((w, j) => r.score[j] === -Infinity ? -Infinity : w), i * n));
    return data;
  };
  const shown = [all(plain), all(found)];
  const [, high] = extent(shown);
  [...shown, shown[0].map((x, m) => x === -Infinity ? x : shown[1][m] - x)].forEach((data, m) => maps[m].show({
    data,
    rows: n,
    columns: n,
    cursor: [query, maps[m].cursor[1]],
    places: {rows: tokens, columns: tokens},
    label: (r, c, x) => `${tokens[r]} → ${tokens[c]}: ${
      m < 2             ? weightOf([plain, found][m].rows[r], c) :
        x === -Infinity ? 'masked' :
                          calculation([`${fixed(shown[1][r * n + c])} - ${fixed(shown[0][r * n + c])}`], fixed(x))}`,
    ...(m < 2 ? {low: 0, high, diverging: false} : {diverging: true})
  }));
}

/** Show the biases of all pairs in the map. */
function showBias(map, {tokens, n, query}, rows, expression) {
  map.show({
    data: Float64Array.from(rows.flatMap(row => [...row.bias])),
    rows: n,
    columns: n,
    cursor: [query, map.cursor[1]],
    places: {rows: tokens, columns: tokens},
    label: (r, c, x) =>
      `${tokens[r]} → ${tokens[c]}, offset ${minus(c - r)}: ${calculation(expression(r, c), valueText(x))}`
  });
}

/** Show the outputs of all queries in the map. */
function showOutputs(map, sentence, rows) {
  const {tokens, n, query, width} = sentence;
  map.show({
    data: Float64Array.from(rows.flatMap(row => [...row.out])),
    rows: n,
    columns: width,
    cursor: [query, map.cursor[1]],
    places: {rows: tokens},
    label: (r, c) => `output of ${tokens[r]}, channel ${c}: ${outputOf(sentence, rows[r], c)}`
  });
}

/** Return the figures that can be saved. */
function savesOf({tokens}, {row, parts, standard, difference, found, plain}, curve, map) {
  return {
    row: {
      figure: ofChart(curve),
      csv: () => [['key', 'word', 'raw', ...parts.map(part => part.name), 'biased', 'weight', 'standard', 'difference'],
        ...tokens.map((word, j) => [j, word, row.raw[j], ...parts.map(({values}) => values[j]), row.score[j],
                        row.weights[j], standard.weights[j], difference[j]])]
    },
    map: {
      figure: map,
      csv: () => [['query', 'key', 'weight', 'standard'],
        ...found.rows.flatMap((row, i) => [...row.weights].map((w, j) => [i, j, w, plain.rows[i].weights[j]]))]
    }
  };
}

/** Return a command, Python code and a C program that print the row of the query. The problem in `core` must contain
 * the term. */
function codeOf({core, facts}, {own, n, query, q, k, v, width, masks}, {heads, head}, text) {
  const shape = [1, 1, n, width];
  return {
    CLI: shell([
      'relpos', 'explain', '--query', query, ...optionOf(core, text), ...maskOptions(masks),
      ...(heads > 1 ? ['--head', head] : []), '--outputs', ...(own.length ? ['--', own.join(' ')] : [])
    ]) +
      '\n',
    Python: `import numpy as np, relpos\nq = np.array(${nested(q, shape)})\nk = np.array(${
              nested(k, shape)})\nv = np.array(${nested(v, shape)})\n` +
      (heads > 1 ? `q, k, v = (np.repeat(x, ${heads}, axis=1) for x in (q, k, v))\n` : '') +
      `steps = relpos.explain(q, k, v, query=${query}, head=${head}, ${pythonOptions(core, facts, [{text}])}${
        maskKeywords(masks).map(word => `, ${word}`).join('')})\nprint(steps)\n`,
    C: (heads > 1 ? `/* this program has one head; the page shows head ${head} of ${heads} */\n` : '') + program({
      desc: [1, 1, n, n, width],
      settings: ['dtype = RP_F64'],
      terms: [text],
      masks,
      qkv: {q: {shape, data: q}, k: {shape, data: k}, v: {shape, data: v}},
      call: printedWeights(query, n, width)
    }),
  };
}

export const sentence = {
  id: 'sentence',
  title: 'A sentence: one query, step by step',
  name: 'Sentence',
  defaults: {text: '', query: 0, a: 'log,lambda=0.3', b: '', head: 0, masks: '', save: 'row'},

  make({core, facts, change}) {
    const sample = core.example(), editors = editorsOf({core, facts, change}),
          settings = settingsOf(sample, editors, change), maps = mapsOf(change),
          {output, words, steps, every, rest} = pageOf(maps), follow = followChosen(words);
    const compute = state => {
      const sentence = readSentence(core, sample, state), {tokens, n, query, width} = sentence, {a, b} = state;
      settings.set(state);
      editors.forEach(editor => editor.set(state));
      const attention = attendAll(core, sentence, state), {plain, found, row, parts, standard, difference} = attention;
      settings.of('head').element.hidden = found.heads === 1;
      wordButtons(words, tokens, query, i => change({query: i}));
      follow();
      const expression = expressionOf(core, sentence, found, a), curve = weightChart(sentence, attention, state);
      showEvery(every, sentence, attention);
      showSteps(steps, {sentence, attention, terms: state, expression, curve, rest});
      showWeights(maps.weights, sentence, attention);
      maps.bias.element.hidden = !core.kindOf[nameOf(a)].bias;
      showBias(maps.bias, sentence, found.rows, expression);
      showOutputs(maps.outputs, sentence, found.rows);
      core.problem({lenQ: n, lenK: n, dimK: width, terms: [a]});
      return {
        name: 'sentence',
        docs: [nameOf(a), ...(b ? [nameOf(b)] : [])],
        numbers: {row, parts, standard, difference, all: found.rows, plain: plain.rows},
        saves: savesOf(sentence, attention, curve, maps.weights[1]),
        code: codeOf({core, facts}, sentence, found, a)
      };
    };
    return frame({
      title: this.title,
      facts,
      compute,
      output,
      settings,
      change,
      saves: {row: 'the row of the query', map: 'the map of biased weights'},
      about: 'Raw scores, scale, bias, softmax, output: every step for one query word, without and with a term. The ' +
        'vectors of your words are computed from their letters: the numbers have no meaning, the arithmetic is ' +
        'real. To see the effect of the strength, move lambda from 0 to 1; for different rates before and after the ' +
        'query, choose linear.',
      formula: 'A = softmax(Q Kᵀ / √d_k + B) V      r = key − query, d = |r|'
    });
  },
};
