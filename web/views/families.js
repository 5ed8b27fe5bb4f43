// families.js -- the view that compares four families of terms on one example: additive bias, Shaw's vectors, rotation,
// linear decay. SPDX-License-Identifier: Apache-2.0
import {chart} from '../chart.js';
import {nested, optionOf, program, shell} from '../code.js';
import {frame} from '../frame.js';
import {HeatMap} from '../heat.js';
import {withNames} from '../term.js';
import {calculation, controls, extent, fixed, folded, h, minus, short, sumOfProducts, table, weightOf} from '../ui.js';

const n = 3;  // tokens
const names = [...Array(n).keys()].map(i => `token ${i}`);
// rows and columns of the map of content against position
const contents = [...Array(21).keys()].map(r => r / 5), strengths = [...Array(21).keys()].map(c => c - 10);
// cells whose numbers in the notes are wrong: docs/texts/s2.md
const errata = {
  rotary: ['0,2', '2,0', '1,2', '2,1']
};

/** Return the arrays of the example: {X: the tokens, of this width; T: the biases of each offset up to `reach`; S:
 * Shaw's vectors; slope: of the linear decay}. */
function exampleOf({VIT3_X: X, VIT3_BIAS_TABLE: T, VIT3_SHAW_TABLE: S, VIT3_SLOPE: M}) {
  return {X, T, S, width: X.shape[1], reach: (T.shape[0] - 1) / 2, slope: M.data[0]};
}

/** Return each family: {title, terms(strength)}. */
function familiesOf({T, S, width, reach, slope}) {
  return {
    content: {title: 'Content only', terms: () => []},
    additive: {
      title: 'Additive bias',
      terms: s => [{
        text: `table,left=${reach},right=${reach}`,
        arrays: {table: {shape: [1, T.shape[0]], data: T.data.map(x => x * s)}}
      }]
    },
    shaw: {
      title: 'Shaw: vectors for keys',
      terms: s =>
        [{text: `relkey,left=${reach},right=${reach}`, arrays: {table: {shape: S.shape, data: S.data.map(x => x * s)}}}]
    },
    rotary: {
      // the only pair of channels rotates by 1 radian per position
      title: 'Rotary: 30 degrees per position, times the strength',
      terms: s => [{
        text: `rope,dim=${width}`,
        arrays: {positions: {shape: [n], data: [...Array(n).keys()].map(i => i * s * Math.PI / 6)}}
      }]
    },
    linear: {title: 'Linear decay with a sign', terms: s => [`linear,left=${slope * s},right=${- slope * s}`]},
  };
}

/** Return the controls; all: the families. */
const settingsOf = (all, change) => controls(
  [
    {
      key: 'strength',
      label: 'Strength of the positions',
      type: 'range',
      min: -20,
      max: 20,
      step: 0.1,
      lower: -1000,
      upper: 1000
    },
    {
      key: 'content',
      label: 'Strength of the content: a factor of the key of the relevant token',
      type: 'range',
      min: 0,
      max: 4,
      step: 0.1,
      lower: -1000,
      upper: 1000
    },
    {
      key: 'family',
      label: 'Family of the maps',
      type: 'select',
      options: Object.entries(all).filter(([key]) => key !== 'content').map(([key, {title}]) => [key, title])
    },
    {key: 'relevant', label: 'Relevant token', type: 'range', min: 0, max: n - 1, lower: 0, upper: n - 1},
    {key: 'query', label: 'Query of the curve', type: 'range', min: 0, max: n - 1, lower: 0, upper: n - 1},
  ],
  change);

/** Return functions that compute rows of the families for a state: {keys(content), problem(family, strength, content)
 * sets the problem in core, rows(family, strength): all rows}. */
function computing(core, {X, width}, all, {content, relevant}) {
  const keys = c => Float64Array.from(X.data, (x, at) => Math.floor(at / width) === relevant ? x * c : x);
  const problem = (key, s, c = content) => core.problem(
    {lenQ: n, lenK: n, dimK: width, scale: 1 / Math.sqrt(2), terms: all[key].terms(s), q: keys(1), k: keys(c)});
  const rows = (key, s) => {
    problem(key, s);
    return [...Array(n).keys()].map(i => core.row(0, i));
  };
  return {keys, problem, rows};
}

/** Return how the score of query i and key j is computed in a family; k: the keys; found: the rows of each family. */
function scoreOf({X, T, S, width, reach, slope}, {strength}, k, found, key, i, j) {
  const channels = [...Array(width).keys()], entry = Math.max(-reach, Math.min(reach, j - i)) + reach,
        pairs = channels.map(c => [X.data[i * width + c], k[j * width + c]]), score = fixed(found[key][i].score[j]),
        scaled = terms => `(${terms.join(' + ')}) * 0.7071`;
  if (key === 'shaw')
    return calculation(
      [scaled(channels.map(c => `${short(pairs[c][0])} * (${
                               [pairs[c][1], S.data[entry * width + c] * strength].map(short).join(' + ')})`))],
      score);
  if (key === 'rotary') {  // ⟨q, R k⟩ of one pair of channels
    const [[a, x], [b, y]] = pairs, angle = short((j - i) * strength * Math.PI / 6);
    return calculation(
      [scaled([`${short(a * x + b * y)} * cos(${angle})`, `${short(b * x - a * y)} * sin(${angle})`])], score);
  }
  const bias = key === 'additive' ? short(T.data[entry] * strength) : `${short(slope * strength)} * ${short(j - i)}`;
  return calculation([scaled(sumOfProducts(pairs)), ...(key === 'content' ? [] : [bias])], score);
}

/** Return the tables of scores and weights of a family. */
const tablesOf = (key, title, rows, {strength, content}, explain) =>
  h('div', {}, h('h3', {}, title), table(['scores', ...names], rows.map((row, i) => [names[i], ...row.score]), {
    digits: 3,
    mark: (r, c) => strength === 1 && content === 1 && errata[key]?.includes(`${r},${c - 1}`) ? 'mark' : '',
    calculation: (i, j) => explain(key, i, j)
  }),
    table(['weights', ...names], rows.map((row, i) => [names[i], ...row.weights]),
      {digits: 3, calculation: (i, j) => weightOf(rows[i], j)}));

/** Show the scores of the content alone and those of the chosen family. */
function showScores(maps, found, all, {family, query}, explain) {
  const flat = rows => Float64Array.from(rows.flatMap(row => [...row.score])),
        both = [flat(found.content), flat(found[family])], largest = Math.max(...extent(both).map(Math.abs));
  both.forEach((data, m) => maps[m].show({
    data,
    rows: n,
    columns: n,
    low: -largest,
    high: largest,
    diverging: true,
    cursor: [query, maps[m].cursor[1]],
    title: `${m ? all[family].title : 'Content only'}: scores`,
    label: (i, j) => `query ${i}, key ${j}, offset ${minus(j - i)}: ${explain(m ? family : 'content', i, j)}`
  }));
}

const heaviest = weights => weights.indexOf(extent([weights])[1]);

/** Return which tokens have the largest weight, as words. */
function leading({weights}) {
  const most = extent([weights])[1], found = [...weights.keys()].filter(j => most - weights[j] < 1e-9),
        last = found.at(-1);
  return found.length > 1 ? `tokens ${found.slice(0, -1).join(', ')} and ${last} tie` : `token ${last} is heaviest`;
}

/** Return which token the query prefers with and without positions, as a sentence. */
function sentence(found, {family, query}) {
  const [first, before] = [family, 'content'].map(key => leading(found[key][query]));
  return `Query ${query}: ${
    first === before ? `${first}, with and without positions` : `${first}; by content alone, ${before}`}.`;
}

const nearest = (list, x) => list.reduce((best, y, at) => Math.abs(y - x) < Math.abs(list[best] - x) ? at : best, 0);

/** Show the weight of the relevant token for each content and each strength of the positions. Return the weights of all
 * tokens. */
function showContest(contest, problem, {strength, content, relevant, family, query}) {
  const weightsAt = (s, c) => problem(family, s, c).rows('weights', 0, query, 1);
  const grid = contents.map(c => strengths.map(s => weightsAt(s, c)));
  /* whether content or positions determine the heaviest token */
  const wins = (weights, s, c) => {
    const first = heaviest(weights), asContent = heaviest(weightsAt(0, c)) === relevant && c !== 0;
    if (first === relevant) return heaviest(weightsAt(s, 0)) === relevant ? 'positions also prefer it' : 'content wins';
    return `${asContent ? 'position overrides it' : 'its content is too weak'}: token ${first} is heaviest`;
  };
  contest.show({
    data: Float64Array.from(grid.flat().map(weights => weights[relevant])),
    rows: contents.length,
    columns: strengths.length,
    places: {rows: contents, columns: strengths},
    low: 0,
    high: 1,
    diverging: false,
    cursor: [nearest(contents, content), nearest(strengths, strength)],
    title: `Weight of token ${relevant} for query ${query}`,
    label: (r, c, x) => `content ${contents[r]}, positions ${minus(strengths[c])}: weight ${fixed(x)}; ${
      wins(grid[r][c], strengths[c], contents[r])}`
  });
  return grid;
}

/** Return the chart of the query's weights over the strength of the positions. */
function chartOf(rows, title, {strength, family, query}) {
  const steps = [...Array(41).keys()].map(s => s / 2), at = steps.map(s => rows(family, s)[query].weights);
  return chart({
    title: `Weights of query ${query} over the strength of the positions: ${title}`,
    xLabel: 'strength',
    yLabel: 'weight',
    low: 0,
    high: 1,
    marks: [{x: Math.min(Math.max(strength, 0), 20), text: ''}],
    series: names.map((name, j) => ({name, x: steps, y: at.map(w => w[j])}))
  });
}

/** Return the code of a term on the tokens of the example; k: the keys. */
function codeOf(core, facts, {X, width}, term, k, query) {
  const shape = [1, 1, n, width], x = X.data, text = term.text ?? term, name = text.split(',')[0],
        [[array, given] = []] = Object.entries(term.arrays ?? {}),
        index = core.kindOf[name].arrays.findIndex(a => a.name === array);
  const option = optionOf(core, array ? withNames(text, {[array]: 't'}) : text), keyword = facts.terms[name].keyword;
  const rest = text.split(',').slice(1).map(parameter => parameter.split('=')).map(([key,
    value]) => `${key}=${Number.isNaN(+value) ? `"${value}"` : value}`);
  return {
    CLI: `python3 - <<'END'\nimport numpy as np\nx = np.array(${nested(x, shape)})\nnp.savez("three.npz", q=x, k=${
           nested(k, shape)}, v=x${array ? `, t=${nested(given.data, given.shape)}` : ''})\nEND\n` +
      shell(['relpos', 'explain', '--input', 'three.npz', '--query', query, ...option, '--scale', Math.SQRT1_2]) + '\n',
    Python: `import numpy as np, relpos\nx = np.array(${nested(x, shape)})\nterm = relpos.${facts.terms[name].class}(${
        [...(array ? [`${array}=np.array(${nested(given.data, given.shape)})`] : []), ...rest].join(
          ', ')})\nprint(relpos.explain(x, np.array(${nested(k, shape)}), x, query=${query}, scale=${Math.SQRT1_2}, ${
      keyword}=term))\n`,
    C: program({
      desc: [1, 1, n, n, width],
      settings: ['dtype = RP_F64', `scale = ${Math.SQRT1_2}`],
      terms: [text],
      qkv: {q: {shape, data: x}, k: {shape, data: k}},
      arrays: array ? [{term: 0, index, name: array, ...given}] : [],
      call: [
        `double score[${n}];`, 'rp_row row = {.score = score};',
        `if (rp_attend_row(plan, &t, 0, 0, ${query}, &row) != RP_OK)`, '    return puts(rp_last_error()), 1;',
        `for (int j = 0; j < ${n}; j++)`, '    printf("%.4f ", score[j]);', 'puts("");'
      ]
    }),
  };
}

/** Return all numbers of the view, for the console and tests. */
const numbersOf = (found, grid) => ({
  ...Object.fromEntries(Object.entries(found).map(([key, rows]) => [key, rows.map(row => [...row.score])])),
  grid: grid.map(row => row.map(weights => [...weights])),
  contents,
  strengths
});

const csvOf = found => [['family', 'query', 'key', 'score', 'weight'], ...Object.entries(found).flatMap(([key,
  rows]) => rows.flatMap((row, i) => [...row.score].map((s, j) => [key, i, j, s, row.weights[j]])))];

/** Return the map of content against position. */
const contestOf = change => new HeatMap({
  title: 'Content against position',
  rows: 'content’s strength',
  columns: 'positions’ strength',
  value: 'weight',
  ratio: 1,
  onpick: (r, c) => change({content: contents[r], strength: strengths[c]})
});

export const families = {
  id: 'families',
  title: 'The four families on one example',
  name: 'Families',
  defaults: {strength: 5, content: 1, relevant: 2, query: 2, family: 'additive'},

  make({core, facts, change}) {
    const example = exampleOf(facts.golden), all = familiesOf(example), settings = settingsOf(all, change);
    const [tables, others] = [0, 1].map(() => h('div', {class: 'panels pairs'})), curve = h('div'),
                   said = h('p', {role: 'status'});
    const maps = HeatMap.link(['Content', 'With positions'].map(
      title => new HeatMap({title: `${title}: scores`, value: 'score', onpick: r => change({query: r})})));
    const contest = contestOf(change);
    const output = h('div', {}, h('div', {class: 'panels aligned'}, [contest, ...maps].map(map => map.element)), said,
      curve, tables, folded('The other families', others));

    const compute = state => {
      const {strength, content, family, query} = state;
      settings.set(state);
      const {keys, problem, rows} = computing(core, example, all, state), k = keys(content);
      const found = Object.fromEntries(Object.keys(all).map(key => [key, rows(key, strength)]));
      const explain = (key, i, j) => scoreOf(example, state, k, found, key, i, j);
      for (const [box, wanted] of [[tables, true], [others, false]])
        box.replaceChildren(...Object.keys(found)
                              .filter(key => (key === 'content' || key === family) === wanted)
                              .map(key => tablesOf(key, all[key].title, found[key], state, explain)));
      showScores(maps, found, all, state, explain);
      said.textContent = sentence(found, state);
      const grid = showContest(contest, problem, state);
      curve.replaceChildren(chartOf(rows, all[family].title, state));
      const [term] = all[family].terms(strength);
      return {
        name: 'families',
        figure: maps[1],
        docs: ['table', 'relkey', 'rope', 'linear'],
        numbers: numbersOf(found, grid),
        csv: () => csvOf(found),
        code: codeOf(core, facts, example, term, k, query)
      };
    };
    return frame({
      title: this.title,
      facts,
      compute,
      output,
      settings,
      about:
        'Three tokens, [1, 0], [0, 1] and [1, 1], with four families of position terms: scores before the softmax, ' +
        'and weights. Shaded cells correct numbers of the notes that the example comes from.' +
        ' At strength 1 the numbers are those of the example. A stronger table, vector or slope overrides the ' +
        'content, and stronger content overrides the positions: the first map shows which one wins. For rotary ' +
        'positions the strength multiplies the angles, which repeat after a full turn.',
      formula:
        'additive: ⟨q, k⟩ / √2 + b[r]    Shaw: ⟨q, k + a[r]⟩ / √2    rotary: ⟨R(i) q, R(j) k⟩ / √2    linear: ⟨q, ' +
        'k⟩ / √2 + slope · r      r = j − i'
    });
  },
};
