// shaw.js -- the view of Shaw's vectors for offsets: clipping, tables, scores from content and from position.
// SPDX-License-Identifier: Apache-2.0
import {chart} from '../chart.js';
import {nested, printedWeights, program, shell} from '../code.js';
import {ofChart} from '../export.js';
import {frame} from '../frame.js';
import {HeatMap} from '../heat.js';
import {
  calculation,
  controls,
  extent,
  fixed,
  folded,
  h,
  inner,
  minus,
  rowsOf,
  short,
  sumOfProducts,
  table,
  weightOf
} from '../ui.js';

/** Return the numbers of the worked example: six words, and vectors for the offsets from -maxClip to maxClip. */
function exampleOf({SHAW_Q: Q, SHAW_K: K, SHAW_V: V, SHAW_A_K: AK, SHAW_A_V: AV}) {
  const [n, width] = Q.shape;
  return {Q, K, V, AK, AV, n, width, shape: [1, 1, n, width], maxClip: (AK.shape[0] - 1) / 2};
}

/** Create the controls of the view. */
function settingsOf({n, maxClip}, change) {
  return controls(
    [
      {
        key: 'clip',
        label: 'Limit of the example: offsets −k … k have vectors',
        type: 'range',
        min: 0,
        max: maxClip,
        lower: 0,
        upper: maxClip
      },
      {key: 'query', label: 'Query of the example', type: 'range', min: 0, max: n - 1, lower: 0, upper: n - 1},
      {key: 'length', label: 'Length of the clip map', type: 'range', min: 1, max: 128, lower: 1, upper: 512},
      {key: 'limit', label: 'Limit of the clip map', type: 'range', min: 0, max: 64, lower: 0, upper: 65536},
      {key: 'trained', label: 'Trained length', type: 'range', min: 1, max: 1024, lower: 1, upper: 65536},
      {key: 'run', label: 'Length of use', type: 'range', min: 1, max: 4096, lower: 1, upper: 65536},
      {
        key: 'near',
        label: 'Preference of the pattern for near keys',
        type: 'range',
        min: 0,
        max: 2,
        step: 0.05,
        lower: -100,
        upper: 100
      },
    ],
    change);
}

/** Create the maps of the view. */
function mapsOf(change) {
  const map = title => new HeatMap({title, onpick: r => change({query: r})}),
        vectors = title => new HeatMap({title, rows: 'offset', columns: 'channel', value: 'number', ratio: 1.2});
  return {
    clip: new HeatMap({title: 'Clipped offset of every pair', value: 'clipped offset'}),
    tables: [vectors('Vectors for keys'), vectors('Vectors for values')],
    scores: HeatMap.link(
      [map('Scores by content'), map('Scores by position'), map('Weights by content only'), map('Weights')]),
    seen: HeatMap.link(['Pairs of positions seen in training', 'Offsets seen in training'].map(
      title => new HeatMap({title, value: 'fraction seen'})))
  };
}

/** Arrange the maps and the places for numbers on the page. */
function pageOf({clip, tables, scores, seen}) {
  const numbers = h('div'), pairs = h('div'), profile = h('div'), pattern = h('div');
  const output = h('div', {}, h('h3', {}, 'Six words with seven vectors'),
    h('div', {class: 'panels aligned'}, scores.map(m => m.element), tables.map(m => m.element)), numbers, profile,
    folded('Vectors that prefer near keys', pattern), folded('Clipping', h('div', {class: 'panels'}, clip.element)),
    folded('At a length beyond training', pairs, h('div', {class: 'panels aligned'}, seen.map(map => map.element))));
  return {output, numbers, pairs, profile, pattern};
}

/** Compute the attention of the example with offsets clipped to c: ak and av, the vectors of the offsets from -c to c;
 * scores by content and by position; weights without and with positions. */
function attend(core, {Q, K, V, AK, AV, n, width, maxClip}, c) {
  const first = (maxClip - c) * width, size = (2 * c + 1) * width,
        clipped = x => ({shape: [2 * c + 1, width], data: x.data.slice(first, first + size)}), ak = clipped(AK),
        av = clipped(AV);
  const terms = [
    {text: `relkey,left=${c},right=${c}`, arrays: {table: ak}},
    {text: `relval,left=${c},right=${c}`, arrays: {table: av}}
  ];
  const of = terms => core.problem({lenQ: n, lenK: n, dimK: width, terms, q: Q.data, k: K.data, v: V.data});
  of([]);
  const plain = Q.data.slice(0, n).map((_, i) => core.row(0, i, true));
  of(terms);
  const rows = plain.map((_, i) => core.row(0, i, true)), mean = core.attend('profile');
  const flat = call => Float64Array.from(rows.flatMap((row, i) => [...call(row, i)]));
  return {
    c,
    ak,
    av,
    terms,
    plain,
    rows,
    mean,
    content: flat((_, i) => plain[i].scaled),
    position: flat((row, i) => row.score.map((x, j) => x - plain[i].score[j])),
    weights: flat(row => row.weights),
    before: flat((_, i) => plain[i].weights)
  };
}

/** Return how the numbers of a pair are computed: scores from content and from position, weights without and with
 * positions. */
function calculationsOf({Q, K, AK, n, width, maxClip}, {c, plain, rows, content, position}) {
  const scale = 1 / Math.sqrt(width);
  const products = (i, at, data) => `(${
    sumOfProducts([...Array(width).keys()].map(x => [Q.data[i * width + x], data[at * width + x]]), width)
      .join(' + ')}) * ${short(scale)}`;
  const clippedOf = r => Math.max(-c, Math.min(c, r));
  return [
    (i, j) => calculation([products(i, j, K.data)], fixed(content[i * n + j])),
    (i, j) => `vector of ${minus(clippedOf(j - i))}: ${
      calculation([products(i, clippedOf(j - i) + maxClip, AK.data)], fixed(position[i * n + j]))}`,
    (i, j) => weightOf(plain[i], j),
    (i, j) => weightOf(rows[i], j, [fixed(content[i * n + j]), inner(position[i * n + j])].join(' + '))
  ];
}

/** Show scores and weights of all pairs in the maps. */
function showScores(maps, n, query, {content, position, before, weights}, expression) {
  const [, high] = extent([weights, before]);
  [content, position, before, weights].forEach((data, m) => maps[m].show({
    data,
    rows: n,
    columns: n,
    cursor: [query, maps[m].cursor[1]],
    value: m < 2 ? 'score' : 'weight',
    label: (i, j) => `query ${i}, key ${j}, offset ${minus(j - i)}: ${expression[m](i, j)}`,
    ...(m < 2 ? {diverging: true} : {low: 0, high, diverging: false})
  }));
}

/** Show the vectors of the offsets in the maps. */
function showVectors(maps, width, {c, ak, av}) {
  [ak, av].forEach((x, m) => maps[m].show({
    data: x.data,
    rows: 2 * c + 1,
    columns: width,
    places: {rows: [...Array(2 * c + 1).keys()].map(r => r - c)},
    label: (r, k, y) => minus(`offset ${r - c}, channel ${k}: ${fixed(y)}`)
  }));
}

/** Show scores and weights of one query, and all weights, as tables. */
function showNumbers(box, n, query, {content, position, before, weights}, expression) {
  const names = [...Array(n).keys()].map(String), row = data => data.slice(query * n, (query + 1) * n);
  box.replaceChildren(table([`query ${query}`, ...names],
                        [
                          ['content', ...row(content)], ['position', ...row(position)],
                          ['weights, content only', ...row(before)], ['weights', ...row(weights)]
                        ],
                        {calculation: (r, j) => `offset ${minus(j - query)}: ${expression[r](query, j)}`}),
    table(['Weights', ...names], rowsOf(names, [...weights], n),
      {calculation: (i, j) => `offset ${minus(j - i)}: ${expression[3](i, j)}`}));
}

/** Show the mean weight of every offset. */
function showProfile(box, n, mean) {
  const offsets = Float64Array.from({length: 2 * n - 1}, (_, t) => t - (n - 1));
  box.replaceChildren(chart({
    title: 'Mean weight of every offset',
    xLabel: 'offset = key − query',
    yLabel: 'mean weight',
    series: [{name: '', x: offsets, y: mean, style: 'bars'}]
  }));
}

/** Show the clipped offset of every pair. */
function showClip(map, core, {length, limit}) {
  core.problem({lenQ: length, lenK: length, terms: [`table,left=${limit},right=${limit}`]});
  map.show({
    data: core.bias().map(x => x - limit),
    rows: length,
    columns: length,
    diverging: true,
    label: (r, k, x) => minus(`query ${r}, key ${k}: offset ${k - r}, max(${- limit}, min(${limit}, ${k - r})) = ${x}`)
                          .replace('max(−0', 'max(0')
  });
}

/** Count the pairs of positions of a text of `run` tokens: all of them, those that do not occur in a text of `trained`
 * tokens, and those whose offset does not occur there. */
function countPairs({trained, run}) {
  const seen = Math.min(trained, run), all = run * run;
  return {all, unseen: all - seen * seen, far: Math.max(0, run - trained) * (Math.max(0, run - trained) + 1)};
}

/** Show as a table how many pairs of positions were not seen in training. */
function showPairs(box, {trained, limit}, {all, unseen, far}) {
  const amount = x => x.toLocaleString('en'), percent = x => `${(100 * x / all).toFixed(1)} %`;
  box.replaceChildren(
    table(['', 'pairs', 'percent'],
      [
        ['all pairs of positions', amount(all), '100.0 %'],
        [`pairs of positions that do not occur in a text of ${trained} tokens`, amount(unseen), percent(unseen)],
        ['pairs whose offset does not occur in such a text', amount(far), percent(far)],
        [`pairs without a vector in a table clipped at ${limit}`, '0', '0.0 %']
      ]),
    h('p', {class: 'note'},
      'With a table of absolute positions, the pairs of the second line never occurred in training. A clipped ' +
        'table has a trained vector for every offset if the trained texts were longer than the clip.'));
}

const maxCells = 256;
/** Show which of run × run pairs were seen in training. fraction(rows, columns) returns the fraction of seen pairs
 * in a cell. A cell has several pairs if `run` exceeds maxCells. */
function showSeen(map, run, fraction, what) {
  const cells = Math.min(run, maxCells), data = new Float64Array(cells * cells),
        range = n => [Math.floor(n * run / cells), Math.floor((n + 1) * run / cells)],
        firsts = [...Array(cells).keys()].map(n => n * run / cells);
  for (let r = 0; r < cells; r++)
    for (let c = 0; c < cells; c++) data[r * cells + c] = fraction(range(r), range(c));
  const said = x => x === 1 ? 'seen' : x === 0 ? 'never seen' : `seen in ${fixed(100 * x, 0)} % of this cell`;
  map.show({
    data,
    rows: cells,
    columns: cells,
    places: {rows: firsts, columns: firsts},
    low: 0,
    high: 1,
    diverging: false,
    label: (r, c, x) => `query ${range(r)[0]}, key ${range(c)[0]}: ${what(range(c)[0] - range(r)[0])} ${said(x)}`
  });
  return data;
}

/** Show which pairs of positions and which offsets were seen in training. Return the numbers of both maps. */
function showTrained(maps, {trained, run}) {
  const known = ([from, to]) => Math.max(0, Math.min(to, trained) - from), long = ([from, to]) => to - from;
  return [
    showSeen(maps[0], run, (r, c) => known(r) * known(c) / (long(r) * long(c)), () => 'this pair of positions was'),
    showSeen(maps[1], run,
      (r, c) => {
        let n = 0;
        for (let i = r[0]; i < r[1]; i++)
          n += Math.max(0, Math.min(c[1], i + trained) - Math.max(c[0], i - trained + 1));
        return n / (long(r) * long(c));
      },
      offset => `offset ${minus(offset)} was`)
  ];
}

/** Return the simulated pattern: a table of small random vectors, to whose first channel a bell curve around offset
 * 0 is added. Also return the scores that a uniform query gives each offset if keys are 0. */
function patternOf(core, noise, strength) {
  const [count, channels] = noise.shape, reach = (count - 1) / 2;
  const bell = n => n % channels ? 0 : strength * Math.exp(-0.5 * (n / channels - reach) ** 2),
        table = {shape: noise.shape, data: noise.data.map((x, n) => x + bell(n))};
  const q = new Float64Array(channels).fill(1 / Math.sqrt(channels)), k = new Float64Array(count * channels),
        terms = [{text: `relkey,left=${reach},right=${reach}`, arrays: {table}}];
  core.problem({lenQ: 1, lenK: count, qOffset: reach, dimK: channels, scale: 1, terms, q, k});
  return {
    table,
    q,
    score: core.rows('scores', 0),
    count,
    channels,
    reach,
    steps: [...Array(count).keys()].map(n => n - reach)
  };
}

/** Show the scores of the pattern. Return their chart. */
function showPattern(box, {table: vectors, q, score, channels, steps}) {
  const figure = chart({
    title: 'Score of each offset for a uniform query',
    xLabel: 'offset = key − query',
    yLabel: 'score by position',
    series: [{name: '', x: steps, y: score, style: 'bars'}]
  });
  box.replaceChildren(figure, table(['offset', ...steps.map(minus)], [['score', ...score]], {
    digits: 3,
    calculation: (_, t) => `offset ${minus(steps[t])}: ${
      calculation(sumOfProducts([...Array(channels).keys()].map(x => [q[x], vectors.data[t * channels + x]]), channels),
        fixed(score[t], 3))}`
  }),
    h('p', {class: 'note'},
      'The vectors are small random numbers, with a bell curve around offset 0 added to their first channel, as ' +
        'training may do if near words matter. At a preference of 1 they are those of the tutorial.'));
  return figure;
}

/** Return the figures that can be saved. */
function savesOf({trained, run}, {maps, n, found, patternFigure, pattern, pairs}) {
  const {content, position, weights} = found, {steps, score} = pattern;
  return {
    weights: {
      figure: maps.scores[3],
      csv: () => [['query', 'key', 'content', 'position', 'weight'],
        ...[...weights].map((w, x) => [Math.floor(x / n), x % n, content[x], position[x], w])]
    },
    pattern: {figure: ofChart(patternFigure), csv: () => [['offset', 'score'], ...steps.map((x, m) => [x, score[m]])]},
    pairs: {
      figure: maps.seen[0],
      csv: () => [['trained', 'run', 'pairs', 'never_seen', 'offsets_never_seen'],
        [trained, run, pairs.all, pairs.unseen, pairs.far]]
    }
  };
}

/** Return commands that print the example's row of the query, and the scores of the pattern. */
function commands({Q, K, V, shape}, {c, ak, av}, query, {table, q, count, channels, reach}) {
  return `python3 - <<'END'\nimport numpy as np\nnp.savez("shaw.npz", q=${nested(Q.data, shape)}, k=${
           nested(K.data, shape)}, v=${nested(V.data, shape)},\n         a_k=${nested(ak.data, ak.shape)}, a_v=${
           nested(av.data, av.shape)})\nEND\n` +
    shell([
      'relpos', 'explain', '--input', 'shaw.npz', '--query', query, '--relkey', `table=a_k,left=${c},right=${c}`,
      '--relval', `table=a_v,left=${c},right=${c}`
    ]) +
    `\n# the pattern: its scores are the biased scores of this command\npython3 - <<'END'\nimport numpy as ` +
    `np\nk = np.zeros((1, 1, ${count}, ${channels}))\nnp.savez("pattern.npz", k=k, v=k, q=${
      nested(q, [1, 1, 1, channels])},\n         a=${nested(table.data, table.shape)})\nEND\n` +
    shell([
      'relpos', 'explain', '--input', 'pattern.npz', '--relkey', `table=a,left=${reach},right=${reach}`, '--q-offset',
      reach, '--scale', 1, '--all'
    ]) +
    '\n';
}

/** Return Python code that prints the row of the query, and the number of pairs of positions never seen. */
function python({Q, K, V, shape}, {c, ak, av}, query, {trained, run}) {
  return `import numpy as np, relpos, relpos.numpy\nq, k, v = (np.array(x) for x in (${
             [Q, K, V].map(x => nested(x.data, shape)).join(',\n    ')}))\na_k = np.array(${
           nested(ak.data, ak.shape)})\na_v = np.array(${nested(av.data, av.shape)})\n` +
    `print(relpos.explain(q, k, v, query=${query}, relkey=relpos.RelKey(a_k, left=${c}, right=${
      c}), relval=relpos.RelValue(a_v, left=${c}, right=${c})))\nprint(relpos.numpy.count_position_pairs(${trained}, ${
      run}))  # pairs of positions never seen, and all\n`;
}

/** Return a C program that prints the weights of the query. */
const cProgram = ({Q, K, V, n, width, shape}, {terms, ak, av}, query) => program({
  desc: [1, 1, n, n, width],
  settings: ['dtype = RP_F64'],
  terms: terms.map(t => t.text),
  qkv: {q: {shape, data: Q.data}, k: {shape, data: K.data}, v: {shape, data: V.data}},
  arrays: [{term: 0, index: 0, name: 'a_k', ...ak}, {term: 1, index: 0, name: 'a_v', ...av}],
  call: printedWeights(query, n)
});

export const shaw = {
  id: 'shaw',
  title: 'Shaw: a vector for every clipped offset',
  name: 'Shaw',
  terms: ['relkey', 'relval'],  // for these terms, the view of biases has a link to this view
  defaults: {clip: 3, length: 10, limit: 4, trained: 128, run: 256, query: 0, near: 1, save: 'weights'},

  make({core, facts, change}) {
    const example = exampleOf(facts.golden), {n, maxClip} = example, settings = settingsOf(example, change),
          maps = mapsOf(change), {output, numbers, pairs: counts, profile, pattern: patternBox} = pageOf(maps);
    const compute = state => {
      settings.set(state);
      const query = Math.min(state.query, n - 1), found = attend(core, example, Math.min(state.clip, maxClip)),
            expression = calculationsOf(example, found);
      showScores(maps.scores, n, query, found, expression);
      showVectors(maps.tables, example.width, found);
      showNumbers(numbers, n, query, found, expression);
      showProfile(profile, n, found.mean);
      showClip(maps.clip, core, state);
      const pairs = countPairs(state);
      showPairs(counts, state, pairs);
      const seen = showTrained(maps.seen, state), pattern = patternOf(core, facts.golden.SHAW_NOISE, state.near),
            patternFigure = showPattern(patternBox, pattern), {content, position, weights, before, mean, rows} = found;
      return {
        name: 'shaw',
        docs: ['relkey', 'relval'],
        numbers: {
          pattern: [...pattern.score],
          seen: seen.map(data => [...data]),
          content,
          position,
          weights,
          before,
          mean,
          pairs: [pairs.unseen, pairs.all, pairs.far],
          out: rows.map(row => [...row.out])
        },
        saves: savesOf(state, {maps, n, found, patternFigure, pattern, pairs}),
        code: {
          CLI: commands(example, found, query, pattern),
          Python: python(example, found, query, state),
          C: cProgram(example, found, query)
        }
      };
    };
    return frame({
      title: this.title,
      facts,
      compute,
      output,
      settings,
      saves: {weights: 'the weights', pattern: 'the pattern', pairs: 'the seen pairs'},
      change,
      about:
        'Each offset, clipped to a limit, has a learned vector for keys and one for values. The score of a pair is ' +
        'the score of its content plus the product of the query with the vector of its offset.',
      formula: 's[i,j] = ⟨q_i, k_j + a_K[clip(j − i)]⟩ / √d      out_i = Σ_j w[i,j] (v_j + a_V[clip(j − i)])'
    });
  },
};
