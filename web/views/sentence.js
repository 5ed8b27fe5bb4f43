// sentence.js -- the view of one query in a sentence, step by step, with the numbers of `relpos explain`.
// SPDX-License-Identifier: Apache-2.0
import {chart} from '../chart.js';
import {nested, optionOf, program, pythonOptions, shell} from '../code.js';
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

export const sentence = {
  id: 'sentence',
  title: 'A sentence: one query, step by step',
  name: 'Sentence',
  defaults: {text: '', query: 0, a: 'log,lambda=0.3', b: '', head: 0, masks: '', save: 'row'},

  make({core, facts, change}) {
    const sample = core.example();
    const typed = text => text.trim().split(/\s+/).filter(Boolean);
    /** Return the words of a sentence, or those of the worked example if it is empty. */
    const wordsOf = text => typed(text).length ? typed(text) : sample.words;
    const names = plainTerms(core, facts);
    const maskSet = maskEditor({core, key: 'masks', change});
    const editors = [
      termEditor({core, facts, key: 'a', legend: 'Term', names, change}),
      termEditor({core, facts, key: 'b', legend: 'Compare with', names, none: true, change}), maskSet
    ];
    const settings = controls(
      [
        {key: 'text', label: 'Sentence (empty: the worked example)', type: 'text'},
        {key: 'query', lower: 0, limit: state => wordsOf(state.text).length - 1},
        {key: 'head', label: 'Head', type: 'range', min: 0, max: 7, lower: 0, upper: 7},
      ],
      change, editors.map(editor => editor.element));
    const words = h('div', {class: 'words', role: 'group', 'aria-label': 'The query word'}), steps = h('div'),
          every = h('div'), rest = folded('Weights and outputs of all queries', every);
    const maps = ['Standard weights', 'Biased weights', 'Difference'].map(
      title => new HeatMap({title, value: 'weight', onpick: r => change({query: r})}));
    maps.push(new HeatMap({title: 'Bias values B', onpick: r => change({query: r})}));
    HeatMap.link(maps);
    const outputs = new HeatMap({
      title: 'Outputs of all queries',
      columns: 'channel',
      value: 'number',
      ratio: 1,
      onpick: r => change({query: r})
    });
    const follow = followChosen(words);
    const output = h('div', {}, h('p', {class: 'note'}, 'Choose the query word:'), words,
      h('div', {class: 'panels'}, maps.map(map => map.element), outputs.element), steps);

    const compute = state => {
      const own = typed(state.text);
      const {words: tokens, q, k, v, width} = own.length ? {words: own, ...core.words(own)} : sample;
      const n = tokens.length, query = Math.min(state.query, n - 1);
      if (n > 400) throw new Error(`the sentence has ${n} words: enter at most 400`);
      const masks = readMasks(core, state.masks);
      settings.set(state);
      editors.forEach(editor => editor.set(state));
      const wide = (data, heads) =>
        heads === 1 ? data : Float64Array.from({length: heads * data.length}, (_, x) => data[x % data.length]);
      const of = terms => {
        const heads = terms.some(text => manyHeads(core, text)) ? 8 : 1, head = Math.min(state.head, heads - 1);
        core.problem({
          heads,
          lenQ: n,
          lenK: n,
          dimK: width,
          terms,
          masks,
          q: wide(q, heads),
          k: wide(k, heads),
          v: wide(v, heads)
        });
        return {heads, head, rows: tokens.map((_, i) => core.row(head, i, true))};
      };
      /** Return how the bias of a pair is computed, or nothing if the term is not a bias. */
      const expression = (i, j) => {
        const {heads, head} = found, given = {q: wide(q, heads), k: wide(k, heads)};
        return core.kindOf[nameOf(state.a)].bias ?
          core.problem({heads, lenQ: n, lenK: n, dimK: width, terms: [state.a], ...given}).expressions(head, i, j) :
          [];
      };
      const plain = of([]), other = state.b ? of([state.b]) : null, found = of([state.a]), {heads, head} = found;
      settings.of('head').element.hidden = heads === 1;
      const row = found.rows[query], parts = core.parts(head, query), standard = plain.rows[query],
            difference = row.weights.map((x, j) => x - standard.weights[j]);
      wordButtons(words, tokens, query, i => change({query: i}));
      follow();
      const sum = row.lse < 700 && row.lse > -Infinity ? fixed(Math.exp(row.lse)) : 'S', scale = 1 / Math.sqrt(width);
      const channels = [...Array(width).keys()], pair = (c, j) => [q[query * width + c], k[j * width + c]];
      const dot = j => channels.reduce((sum, c) => sum + pair(c, j)[0] * pair(c, j)[1], 0);
      const near = (x, y) => Math.abs(x - y) < 1e-9;
      const outputOf = (row, c, value) => {  // if a term adds vectors to values, the output is no plain sum of products
        const pairs = tokens.map((_, j) => [row.weights[j], v[j * width + c]]),
              whole = near(pairs.reduce((sum, [w, x]) => sum + w * x, 0), row.out[c]);
        return calculation(whole ? sumOfProducts(pairs) : ['the weights times values with their vectors'], value);
      };
      const factor = +scale.toPrecision(6), rotates = parts.some(part => part.kind === 'rotation');
      /** For each kind of part: the label of its row, and how its number for key j is computed. */
      const how = {
        content: part => rotates ?
          [`Content, q · k · ${factor}`, j => calculation([`${fixed(dot(j))} * ${factor}`], fixed(part.values[j]))] :
          [
            `Scaled scores, raw · ${factor}`,
            j => calculation([`${fixed(row.raw[j])} * ${factor}`], fixed(part.values[j]))
          ],
        rotation: part => [`Rotation, raw · ${factor} − content`,
          j => calculation([`${fixed(row.raw[j])} * ${factor} - ${inner(dot(j) * scale)}`], fixed(part.values[j]))],
        bias: part => ['Bias values, B',
          j => `offset ${minus(j - query)}: ${calculation(expression(query, j), valueText(part.values[j]))}`],
        mask: part => ['Mask, 0 or −∞', j => valueText(part.values[j])]
      };
      const lines = [
        [
          rotates ? 'Raw scores, R(q) · R(k)' : 'Raw scores, q · k',
          j => calculation(
            rotates ? ['the product of the rotated vectors'] : sumOfProducts(channels.map(c => pair(c, j)), width),
            fixed(row.raw[j])),
          row.raw
        ],
        ...parts.map(
          part => [...(how[part.kind]?.(part) ??
                     [`${part.name}, ${part.formula}`, j => `${part.formula}: ${valueText(part.values[j])}`]),
            part.values]),
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
      const bars = h('div', {class: 'scroll', tabindex: 0, role: 'group', 'aria-label': 'Weights'},
        h('table', {},
          h('tbody', {},
            tokens.map((word, j) => h('tr', {}, h('th', {scope: 'row'}, `A[${tokens[query]},${word}]`),
                         h('td', {}, fixed(row.weights[j])), h('td', {}, `d = ${Math.abs(j - query)}`),
                         h('td', {style: 'text-align: left; width: 60%; min-width: 8rem'},
                           row.score[j] === -Infinity ?
                             'masked' :
                             h('span', {class: 'bar', style: `width: ${100 * row.weights[j]}%`})))))));
      const curve = chart({
        title: `Weights of “${tokens[query]}”`,
        xLabel: 'key',
        yLabel: 'weight',
        low: 0,
        series: [
          {name: 'without a term', x: tokens.map((_, j) => j), y: standard.weights, style: 'bars'},
          {name: state.a, x: tokens.map((_, j) => j), y: row.weights, style: 'bars'},
          ...(other ? [{name: state.b, x: tokens.map((_, j) => j), y: other.rows[query].weights, style: 'bars'}] : [])
        ]
      });
      const squares = n <= 8 ?
        [
          ...[plain, found].map((x, m) => table([m ? 'Biased' : 'Standard', ...tokens],
                                  tokens.map((word, i) => [word, ...x.rows[i].weights]),
                                  {calculation: (i, j) => weightOf(x.rows[i], j)})),
          table(['Difference', ...tokens],
            tokens.map((word, i) => [word, ...found.rows[i].weights.map((x, j) => x - plain.rows[i].weights[j])]),
            {sign: true, calculation: (i, j) => differenceOf(found.rows[i].weights[j], plain.rows[i].weights[j])})
        ] :
        [];
      every.replaceChildren(...squares,
        n <= 64 ?
          table(['Output', ...channels.map(c => `channel ${c}`)], found.rows.map((x, i) => [tokens[i], ...x.out]),
            {calculation: (i, c) => outputOf(found.rows[i], c, fixed(found.rows[i].out[c]))}) :
          h('p', {class: 'note'}, 'The table is shown for up to 64 words; the map above shows all outputs.'));
      steps.replaceChildren(
        h('h3', {},
          `1. Scores of “${tokens[query]}” (query ${query} of 0 to ${n - 1}${heads > 1 ? `, head ${head}` : ''})`),
        table(['', ...tokens], lines.map(([label, , values]) => [label, ...values]),
          {caption: 'Scores', calculation: (r, j) => lines[r][1](j)}),
        h('h3', {}, `2. Attention weights: exp(biased score) / ${sum}`), bars,
        h('h3', {}, '3. Output: the sum of weight times value'),
        h('pre', {tabindex: 0, 'aria-label': 'output'}, `[${[...row.out].map(x => fixed(x)).join(' ')}]`),
        h('h3', {}, '4. Without and with the term'),
        table(['', ...tokens],
          [
            ['Standard', ...standard.weights], ['Biased', ...row.weights],
            ...(other ? [[state.b, ...other.rows[query].weights]] : [])
          ],
          {caption: 'Weights', calculation: (r, j) => weightOf([standard, row, other?.rows[query]][r], j)}),
        table(['', ...tokens], [['Difference', ...difference]],
          {sign: true, calculation: (r, j) => differenceOf(row.weights[j], standard.weights[j])}),
        curve, rest);
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
          m < 2 ? weightOf([plain, found][m].rows[r], c) :
            x === -Infinity ?
                  'masked' :
                  calculation([`${fixed(shown[1][r * n + c])} - ${fixed(shown[0][r * n + c])}`], fixed(x))}`,
        ...(m < 2 ? {low: 0, high, diverging: false} : {diverging: true})
      }));
      maps[3].element.hidden = !core.kindOf[nameOf(state.a)].bias;
      maps[3].show({
        data: Float64Array.from(found.rows.flatMap(row => [...row.bias])),
        rows: n,
        columns: n,
        cursor: [query, maps[3].cursor[1]],
        places: {rows: tokens, columns: tokens},
        label: (r, c, x) =>
          `${tokens[r]} → ${tokens[c]}, offset ${minus(c - r)}: ${calculation(expression(r, c), valueText(x))}`
      });
      outputs.show({
        data: Float64Array.from(found.rows.flatMap(row => [...row.out])),
        rows: n,
        columns: width,
        cursor: [query, outputs.cursor[1]],
        places: {rows: tokens},
        label: (r, c, x) => `output of ${tokens[r]}, channel ${c}: ${outputOf(found.rows[r], c, fixed(x))}`
      });
      core.problem({lenQ: n, lenK: n, dimK: width, terms: [state.a]});
      const option = optionOf(core, state.a), shape = [1, 1, n, width];
      return {
        name: 'sentence',
        docs: [nameOf(state.a), ...(state.b ? [nameOf(state.b)] : [])],
        numbers: {row, parts, standard, difference, all: found.rows, plain: plain.rows},
        saves: {
          row: {
            figure: ofChart(curve),
            csv: () => [
              ['key', 'word', 'raw', ...parts.map(part => part.name), 'biased', 'weight', 'standard', 'difference'],
              ...tokens.map((word, j) => [j, word, row.raw[j], ...parts.map(({values}) => values[j]), row.score[j],
                              row.weights[j], standard.weights[j], difference[j]])]
          },
          map: {
            figure: maps[1],
            csv: () => [['query', 'key', 'weight', 'standard'],
              ...found.rows.flatMap((row, i) => [...row.weights].map((w, j) => [i, j, w, plain.rows[i].weights[j]]))]
          }
        },
        code: {
          CLI: shell([
            'relpos', 'explain', '--query', query, ...option, ...maskOptions(masks),
            ...(heads > 1 ? ['--head', head] : []), '--outputs', ...(own.length ? ['--', own.join(' ')] : [])
          ]) +
            '\n',
          Python: `import numpy as np, relpos\nq = np.array(${nested(q, shape)})\nk = np.array(${
                    nested(k, shape)})\nv = np.array(${nested(v, shape)})\n` +
            (heads > 1 ? `q, k, v = (np.repeat(x, ${heads}, axis=1) for x in (q, k, v))\n` : '') +
            `steps = relpos.explain(q, k, v, query=${query}, head=${head}, ${pythonOptions(core, facts, [{
              text: state.a
            }])}${maskKeywords(masks).map(word => `, ${word}`).join('')})\nprint(steps)\n`,
          C: (heads > 1 ? `/* this program has one head; the page shows head ${head} of ${heads} */\n` : '') + program({
            desc: [1, 1, n, n, width],
            settings: ['dtype = RP_F64'],
            terms: [state.a],
            masks,
            qkv: {q: {shape, data: q}, k: {shape, data: k}, v: {shape, data: v}},
            call: [
              `double weights[${n}], out[${width}];`, 'rp_row row = {.weights = weights, .out = out};',
              `if (rp_attend_row(plan, &t, 0, 0, ${query}, &row) != RP_OK)`, '    return puts(rp_last_error()), 1;',
              `for (int j = 0; j < ${n}; j++)`, '    printf("%.4f ", weights[j]);', 'puts("");'
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
