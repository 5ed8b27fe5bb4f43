// bias.js -- the view of biases: one term; or two terms, their sum and their difference.
// SPDX-License-Identifier: Apache-2.0
import {chart, someHeads, usualWidth} from '../chart.js';
import {
  cArrays,
  inFile,
  optionOf,
  printedBiases,
  program,
  pythonOptions,
  pythonTerm,
  randomArrays,
  rowFunction,
  shell
} from '../code.js';
import {safetensorsOf} from '../files.js';
import {frame} from '../frame.js';
import {HeatMap} from '../heat.js';
import {trainedTable} from '../story/tables.js';
import {accepts, filledWith, gridOf, namedArrays, nameOf, namesIn, startText, termEditor, works} from '../term.js';
import {calculation, controls, download, extent, fixed, h, inner, minus, valueText, viewLink} from '../ui.js';

const kinds = {
  a: 'A',
  b: 'B',
  sum: 'A + B',
  difference: 'A − B'
};

/** What a term changes if it is not a bias. The maps show the first change that is not 0; rows are queries, columns are
 * keys or channels. */
const changes = [
  {what: 'scores', value: 'change of the score', columns: 'key'}, {
    what: 'weights',
    value: 'change of the weight',
    columns: 'key',
    said: name => `${name} does not change the scores: the map shows the change of the weights.`
  },
  {
    what: 'out',
    value: 'change of the output',
    columns: 'channel',
    said: name => `${name} does not change scores or weights: the map shows the change of the output by channel.`
  }
];

/** Return the size of a chart beside a map. */
const beside = () => {
  const width = Math.floor((usualWidth() - 24) / 2);
  return {width, height: Math.round(0.8 * width)};
};
const roomy = matchMedia('(min-width: 1200px)');  // in explorer.css, too: there, a single map has the curve beside it

/** Return how the view reads the terms of a state: meant(text) is the term that a text means, where t5 without
 * parameters is `whole`, T5 with the trained table; given(text, heads) is the term with the trained table, if its text
 * names it. heads: those of the table. */
function trainedTerms(core, facts) {
  const {text: shape, arrays: {table}} = trainedTable(core, facts, 0), whole = `${shape},table=trained`,
                              [buckets, columns] = table.shape;
  const given = (text, heads) => {
    if (nameOf(text) !== 't5' || namesIn(core, text).table !== 'trained') return text;
    const of = (name, other) => +(new RegExp(`,${name}=([^,]*)`).exec(text)?.[1] ?? other);
    if (of('buckets', 32) !== buckets || of('max_distance', 128) !== 128 || of('bidirectional', 1) !== 0)
      throw new Error(
        `the trained table needs ${shape}: write this, or omit table=trained to see the number of each bucket`);
    const data = Float64Array.from(  // with more heads than the table has, its columns repeat
      {length: buckets * heads}, (_, n) => table.data[Math.floor(n / heads) * columns + n % heads % columns]);
    return {text, arrays: {table: {shape: [buckets, heads], data}}};
  };
  return {whole, heads: columns, meant: text => text === 't5' ? whole : text, given};
}

/** Return a function that changes a setting. A term with a grid sets the lengths, too. */
const setterOf = change => (key, value) => {
  const patch = {[key]: value}, grid = (key === 'a' || key === 'b') && gridOf(value);
  if (grid && grid.tokens <= 4096) Object.assign(patch, {q: grid.tokens, k: grid.tokens, offset: 0});
  change(patch);
};

/** Create the editors of the two terms. */
function editorsOf({core, facts, given}, {whole, heads}, change) {
  const names = core.kinds.map(kind => kind.name), start = name => name === 't5' ? whole : startText(core, facts, name);
  const fits = text => works(() => given(text, heads)) && accepts(core, given(text, heads));
  return [
    termEditor({core, facts, key: 'a', legend: 'Term A', names, change, start, fits}),
    termEditor({core, facts, key: 'b', legend: 'Term B', names, none: true, change, start, fits})
  ];
}

/** Return the number of tokens if a term of the state has a grid, which sets it; otherwise undefined. */
function tokensOf({a, b}) {
  const {tokens} = gridOf(a) ?? gridOf(b) ?? {};
  return tokens <= 4096 ? tokens : undefined;
}

/** Create the controls of the view. */
function settingsOf(editors, change) {
  const only = (state, n = tokensOf(state)) => n && [n, n], first = state => tokensOf(state) && [0, 0];
  return controls(
    [
      {key: 'q', label: 'Queries', type: 'range', min: 1, max: 512, lower: 1, upper: 4096, limit: only},
      {key: 'k', label: 'Keys', type: 'range', min: 1, max: 512, lower: 1, upper: 4096, limit: only},
      {key: 'heads', label: 'Heads', type: 'range', min: 1, max: 32, lower: 1, upper: 256},
      {key: 'head', label: 'Head of the maps', type: 'range', min: 0, max: 7, lower: 0, limit: ({heads}) => heads - 1},
      {key: 'query', label: 'Query of the curve', type: 'range', min: 0, max: 63, lower: 0, limit: ({q}) => q - 1},
      {
        key: 'offset',
        label: 'Position of query 0',
        type: 'range',
        min: 0,
        max: 64,
        lower: -1e6,
        upper: 1e6,
        limit: first
      },
      {key: 'words', label: 'Words for q, k and v, repeated (with one word, only offsets matter)', type: 'text'},
    ],
    change, editors.map(editor => editor.element));
}

/** Create a map for each of `kinds`. */
function mapsOf(change) {
  const onpick = query => change({query}),
        maps = Object.fromEntries(Object.entries(kinds).map(([key, title]) => [key, new HeatMap({title, onpick})]));
  HeatMap.link(Object.values(maps));
  return maps;
}

/** Arrange the maps, the curve and the notes on the page. save(): save the arrays. */
function pageOf(maps, save) {
  const panels = h('div', {class: 'panels pairs aligned'}, Object.values(maps).map(map => map.element)),
        curve = h('div'), first = h('div', {class: 'beside'}, panels, curve), note = h('p', {class: 'note'}),
        more = h('p', {class: 'note'}), keep = h('button', {type: 'button', onclick: save}, 'Save the arrays');
  return {output: h('div', {}, first, note, more, h('div', {class: 'row'}, keep)), first, curve, note, more, keep};
}

/** Return a function that returns q, k and v for every position: the vectors of the words, repeated in order and equal
 * for all heads. plain: values without terms, which effectOf keeps. */
function vectorsOf(core) {
  const vectors = {};
  return ({words, heads, q, k}) => {
    const key = JSON.stringify([words, heads, q, k]);
    if (vectors.key === key) return vectors;
    const list = words.trim().split(/\s+/).filter(Boolean);
    if (!list.length) throw new Error('this term depends on q and k: enter at least one word');
    const of = core.words(list), {width} = of;
    const wide = (data, n) => {
      const all = new Float64Array(heads * n * width);
      for (let x = 0; x < heads * n; x++)
        all.set(data.subarray(x % n % list.length * width, (x % n % list.length + 1) * width), x * width);
      return all;
    };
    return Object.assign(vectors, {key, width, q: wide(of.q, q), k: wide(of.k, k), v: wide(of.v, k), plain: {}});
  };
}

/** Read a state: the terms, where b may be '', and both as a list; the head and the query within the sizes; the heads
 * of the curves, with a note if these are not all. */
function readState(state, meant) {
  const tokens = tokensOf(state);
  if (tokens) state = {...state, q: tokens, k: tokens, offset: 0};
  const {q, k, heads} = state, a = meant(state.a), b = meant(state.b), head = Math.min(state.head, heads - 1);
  if (heads * q * k > 1 << 24)
    throw new Error(`${heads} heads of ${q} × ${k} biases are too many: choose at most ${1 << 24} numbers`);
  const {shown, note: some} = someHeads(heads, head);
  return {...state, a, b, both: [a, ...(b ? [b] : [])], head, query: Math.min(state.query, q - 1), shown, some};
}

/** Return true if a term is a bias, also for an unknown name: then the library reports the error. */
const isBias = (core, text) => core.kindOf[nameOf(text)]?.bias ?? true;

/** Return how the terms change the scores, weights or outputs of n queries of a head: values with the terms minus
 * values without them, which do not depend on the offset. */
function effectOf({core, vectors}, terms, {what}, now, head, i = 0, n = now.q) {
  const {heads, q, k, offset} = now, of = vectors(now),
                      has = {lenQ: q, lenK: k, heads, qOffset: offset, dimK: of.width};
  const read = () => core.rows(what, head, i, n), at = `${what} ${head} ${i} ${n}`;
  if (!of.plain[at]) {
    if (Object.keys(of.plain).length > 16) of.plain = {};
    core.problem({...has, q: of.q, k: of.k, v: of.v});
    of.plain[at] = read();
  }
  core.problem({...has, terms, q: of.q, k: of.k, v: of.v});
  const found = read(), before = of.plain[at];
  for (let x = 0; x < found.length; x++) found[x] -= before[x];
  return found;
}

/** Return the first change that is not 0 of the terms in the head of the maps: {data, how: one of `changes`, meaning,
 * before: the values without the terms}. The last maps are kept: another query only moves the cursor. */
function firstChange(tools, texts, terms, now) {
  const {core, vectors, effects} = tools, {heads, q, k, offset, head, words} = now,
                        anywhere = texts.every(text => core.kindOf[nameOf(text)].ignoresOffset),
                        id = JSON.stringify([texts, heads, q, k, anywhere || offset, head, words]);
  if (effects.has(id)) return effects.get(id);
  let data, how;
  for (how of changes) {
    data = effectOf(tools, terms, how, now, head);
    if (data.some(x => x !== 0)) break;
  }
  if (!data.some(x => x !== 0)) data = effectOf(tools, terms, how = changes[0], now, head);
  if (effects.size > 3) effects.clear();
  effects.set(id, {data, how, meaning: core.meaning, before: vectors(now).plain[`${how.what} ${head} 0 ${q}`]});
  return effects.get(id);
}

/** Return what terms change that are not all biases, in the form of biasesOf, with the fields of `changes`. */
function changesOf(tools, texts, now) {
  const {heads, q, head, query, shown} = now, terms = texts.map(text => tools.given(text, heads)),
                                {data, how, meaning, before} = firstChange(tools, texts, terms, now),
                                columns = data.length / q;
  return {
    ...how,
    data,
    meaning,
    expressions: (r, c) => {
      const at = r * columns + c;
      return [`${fixed(before[at] + data[at])} - ${inner(before[at])}`];
    },
    columns,
    across: how.columns,
    note: how.said?.(texts.map(nameOf).filter(name => !tools.core.kindOf[name].bias).join(' and ')),
    curve: shown.map(n => n === head ? data.subarray(query * columns, (query + 1) * columns) :
                                       effectOf(tools, terms, how, now, n, query, 1)),
    all: () => {
      const all = new Float64Array(heads * data.length);
      for (let n = 0; n < heads; n++) all.set(effectOf(tools, terms, how, now, n), n * data.length);
      return all;
    }
  };
}

/** Return the biases of terms: the numbers of the map, what they mean, the expressions of a pair without those of the
 * terms before `first`, the curves of the query, and all() heads. */
function biasesOf({core, given}, texts, now, first) {
  const {heads, q, k, offset, head, query, shown} = now, terms = texts.map(text => given(text, heads));
  const problem = () => core.problem({heads, lenQ: q, lenK: k, qOffset: offset, terms});
  problem();
  const data = core.rows('bias', head), {meaning} = core;
  return {
    data,
    meaning,
    expressions: (r, c) => problem().expressions(head, r, c).slice(first),
    value: meaning && meaning !== 'random' ? meaning : 'bias',
    columns: k,
    curve: shown.map(n => n === head ? data.subarray(query * k, (query + 1) * k) : core.rows('bias', n, query, 1)),
    all: () => problem().bias()
  };
}

/** Return the numbers of A and, if there is a term B, of B, their sum, and their difference if both change the same. */
function resultsOf(tools, now) {
  const {a, b} = now,
            of = (texts, first = 0) => texts.every(text => isBias(tools.core, text)) ?
    biasesOf(tools, texts, now, first) :
    changesOf(tools, texts, now);
  const found = {a: of([a])};
  if (!b) return found;
  found.b = of(['log,lambda=0', b], 1);  // the term must be the second, because its random arrays depend on its index
  found.sum = of([a, b]);
  const less = (x, y) => x.map((z, n) => z - y[n]);
  if (found.a.columns === found.b.columns && (found.a.what ?? 'scores') === (found.b.what ?? 'scores'))
    found.difference = {
      ...found.a,
      data: less(found.a.data, found.b.data),
      expressions: found.a.expressions && found.b.expressions &&
        ((r, c) => [...found.a.expressions(r, c), `-(${found.b.expressions(r, c)})`]),
      value: found.a.value === found.b.value ? found.a.value : 'difference',
      all: () => less(found.a.all(), found.b.all())
    };
  return found;
}

/** Return the ends of the colour scales: {scores: [low, high], ...}. Maps of the same kind share the colours. */
function scalesOf(found) {
  const scales = {};
  for (const {data, what = 'scores'} of Object.values(found)) (scales[what] ??= []).push(data);
  for (const what of Object.keys(scales)) scales[what] = extent(scales[what]);
  return scales;
}

/** Show the numbers in the maps. Hide the maps that have none. */
function showMaps(maps, found, scales, {a, b, q, offset, head, query}, whole) {
  for (const [key, map] of Object.entries(maps)) {
    map.element.hidden = !found[key];
    if (!found[key]) continue;
    const text = {a, b}[key] ?? kinds[key], shown = text === whole ? 't5, trained table' : text;
    const {data, columns, value, across = 'key', expressions, what = 'scores'} = found[key], [low, high] = scales[what];
    map.show({
      data,
      rows: q,
      columns,
      cursor: [query, Math.min(map.cursor[1], columns - 1)],
      low,
      high,
      title: `${key === 'a' || key === 'b' ? kinds[key] + ': ' : ''}${shown}, head ${head}`,
      value,
      across,
      ratio: across === 'key' ? undefined : 1,
      label: (r, c, x) => across === 'key' ?
        `query ${r}, key ${c}, offset ${minus(c - r - offset)}: ${
          calculation(x > -Infinity && expressions?.(r, c) || [], valueText(x))}` :
        `query ${r}, ${across} ${c}: ${calculation(expressions?.(r, c) ?? [], valueText(x))}`
    });
  }
}

/** Return what the code needs besides the settings. pure: all terms are biases; needsFile: the code reads the arrays
 * from a file, because names or words give their numbers; made: for each term, the arrays in the file; named: the terms
 * with the names of these arrays. The problem in `core` then contains the terms. */
function arraysOf({core, given, vectors}, now) {
  const {both, heads, q, k, offset} = now, pure = both.every(text => isBias(core, text)),
                            needsFile = !pure || both.some(text => Object.keys(namesIn(core, text)).length),
                            random = both.some(text => randomArrays(core, text)),
                            has =
                              {heads, lenQ: q, lenK: k, qOffset: offset, terms: both.map(text => given(text, heads))};
  core.problem(pure ? has : {...has, dimK: vectors(now).width});
  const found = needsFile ? namedArrays(core, has.terms.map(term => term.text ? term : {text: term})) :
                            {made: both.map(() => []), named: both};
  return {pure, needsFile, random, ...found};
}

/** Return the file of the arrays: q, k and v, and those of the terms. */
function fileOf({vectors}, now, made) {
  const {heads, q, k} = now, of = vectors(now), array = (n, data) => ({shape: [1, heads, n, of.width], data}),
                   all = Object.fromEntries(made.flat().map(({name, shape, data}) => [name, {shape, data}]));
  return safetensorsOf(
    {q: array(q, of.q), k: array(k, of.k), v: array(k, of.v), ...all}, [...Array(k).keys()].map(String));
}

/** Return sentences about the numbers: what they are, where they come from, and which maps look pale. */
function noteOf({whole, heads: columns}, found, scales, {both, heads}, {pure, needsFile}) {
  const said = {
    entry: ', so the map shows which entry each pair reads.',
    bucket: ', so the map shows the bucket of each pair.',
    random: needsFile ? '.' : ' and on the command line.'
  };
  const magnitude = data => Math.max(...extent([data]).map(Math.abs)),
        pale = key => 8 * magnitude(found[key].data) < Math.max(...scales[found[key].what ?? 'scores'].map(Math.abs)),
        faint = ['a', 'b'].filter(key => found.b && pale(key)).map(key => kinds[key]),
        results = [found.a, ...(found.b ? [found.b] : [])];
  return [
    pure ? '' : 'The maps show values with the terms minus values without them, for words as vectors of 8 numbers.',
    both.includes(whole) ?
      `The table is trained: layer 0 of a byte model with ${columns} heads${
        heads > columns ? ', which repeat' : ''}. It is causal: all later keys share the bucket of offset 0.` :
      '',
    faint.length ? `The maps share one scale. ${faint.join(' and ')} ${
                     faint.length > 1 ? 'look' : 'looks'} pale: the numbers are small beside those of the other maps.` :
                   '',
    ...results.map(result => result.note), ...results.map(({meaning}) => meaning && filledWith[meaning] + said[meaning])
  ].filter(Boolean)
    .filter((x, n, all) => all.indexOf(x) === n)
    .join(' ');
}

/** Show links to the views about the terms. */
function showViews(box, views, both) {
  const own = views.filter(view => both.some(text => view.terms?.includes(nameOf(text))));
  box.replaceChildren(...own.flatMap(
    view => [`More about ${both.map(nameOf).filter(name => view.terms.includes(name)).join(' and ')}: view `,
      viewLink(view, view.title), '. ']));
}

/** Show the curves of the query. single: there is one map, and the curves are beside it if there is space. */
function showCurve(box, {columns, value, curve, across = 'key'}, {b, query, offset, shown, some}, single) {
  const x = Float64Array.from({length: columns}, (_, j) => across === 'key' ? j - query - offset : j);
  box.replaceChildren(chart({
    title: `${b ? 'A + B' : 'A'} over the ${across === 'key' ? 'offset' : across}, query ${query}${some}`,
    xLabel: across === 'key' ? 'offset = key − query' : across,
    yLabel: value,
    ...(single && roomy.matches ? beside() : {}),
    series: shown.map((n, m) => ({name: `head ${n}`, x, y: curve[m]}))
  }));
}

/** Return the map and the table of one of `kinds`, which can be saved. */
const savedOf = (map, {columns, across, what, all}, {heads, q}) => ({
  figure: map,
  lines: heads * q * columns,
  *
    csv() {
      const every = all(), one = q * columns;
      yield ['head', 'query', across ?? 'key', what ? 'change' : 'bias'];
      for (let n = 0; n < every.length; n++)
        yield [Math.floor(n / one), Math.floor(n % one / columns), n % columns, every[n]];
    }
});

const imports = 'import numpy as np, relpos\n',
      opened = imports + 'from safetensors.numpy import load_file\nfile = ' +
  'load_file("relpos-term.safetensors")\n';

/** Return commands, Python code and a C function for a row of what the terms change. */
function changeCode({core, facts, vectors}, now, arrays, {what}) {
  const {b, heads, q, k, head, query, offset} = now, {made, named} = arrays,
                                      call = {scores: 'score', weights: 'weights', out: 'out'}[what], common = [
                                        'relpos', 'explain', '--input', 'relpos-term.safetensors', '--head', head,
                                        '--query', query, ...(offset ? ['--q-offset', offset] : [])
                                      ];
  return {
    CLI: `# “Save the arrays” writes relpos-term.safetensors\n# row ${query} of the map of ${b ? 'A + B' : 'A'}: ${
      call} of the first minus that of the second\n${
      shell([...common, ...named.flatMap(text => optionOf(core, text))])}\n${shell([...common, '--no-bias'])}\n`,
    Python: `${opened}q, k, v = file["q"], file["k"], file["v"]\nat = dict(query=${query}, head=${head}${
      offset ? `, q_offset=${offset}` : ''})\nwith_terms = relpos.explain(q, k, v, **at, ${
      pythonOptions(core, facts, inFile(arrays)).join(', ')})\nprint((with_terms.${
      call} - relpos.explain(q, k, v, **at).${call}).round(4))\n`,
    C: `/* the map shows the result with the terms minus the result with desc.n_terms = 0 */\n${rowFunction({
      heads,
      kvHeads: heads,
      lenQ: q,
      lenK: k,
      dim: vectors(now).width,
      head,
      query,
      offset,
      terms: named.map((text, n) => ({text, arrays: made[n]}))
    })}`
  };
}

/** Return commands, Python code and a C program for the biases of the terms. */
function biasCode({core, facts}, {both, heads, q, k, head, query, offset}, arrays) {
  const {needsFile, random, made, named} = arrays;
  const cli = shell([
    'relpos', 'bias', ...named, ...(needsFile ? ['--input', 'relpos-term.safetensors'] : []), '--q', q, '--k', k,
    '--heads', heads, '--head', head, ...(offset ? ['--q-offset', offset] : [])
  ]);
  return {
    CLI: `${needsFile ? '# “Save the arrays” writes relpos-term.safetensors\n' : ''}${cli}\n${
      cli} --json     # every number\n`,
    Python: `${needsFile ? opened : imports}${
      random && !needsFile ? '# random numbers: replace them by your arrays\n' : ''}term = ${
      needsFile ? inFile(arrays).map(({text, arrays}) => pythonTerm(core, facts, text, arrays)).join(' + ') :
                  both.map(text => pythonTerm(core, facts, text)).join(' + ')}\nprint(term.matrix(${q}, ${k}, heads=${
      heads}${offset ? `, q_offset=${offset}` : ''})[${head}].round(4))\n`,
    C: (random || needsFile ? '/* numbers 0, 1, 2, ...: replace them by your arrays */\n' : '') + program({
      desc: [1, heads, q, k, 1],
      settings: ['dtype = RP_F64', ...(offset ? [`q_offset = ${offset}`] : [])],
      terms: both,
      arrays: needsFile ?
        made.flatMap((list, term) => list.map(({index, array, shape}) => ({term, index, name: array, shape}))) :
        cArrays(core, both),
      call: printedBiases({heads, lenQ: q, lenK: k, head, query})
    }),
  };
}

export const bias = {
  id: 'bias',
  title: 'Bias: the effect of a term',
  name: 'Bias',
  defaults: {a: 'alibi', b: '', q: 64, k: 64, heads: 8, head: 0, query: 32, offset: 0, words: 'cat', save: 'a'},

  make({core, facts, change, views}) {
    const trained = trainedTerms(core, facts), {whole, meant, given} = trained,
          tools = {core, facts, given, vectors: vectorsOf(core), effects: new Map()}, set = setterOf(change),
          editors = editorsOf(tools, trained, set), settings = settingsOf(editors, set), maps = mapsOf(change),
          page = pageOf(maps, () => download('relpos-term.safetensors', file()));
    let file = null;  // returns the arrays of what is shown
    const compute = state => {
      const now = readState(state, meant), {b, both, shown} = now;
      settings.set(now);
      editors.forEach(editor => editor.set(now));
      const found = resultsOf(tools, now), scales = scalesOf(found), main = b ? found.sum : found.a,
            single = Object.keys(found).length === 1;
      showMaps(maps, found, scales, now, whole);
      const arrays = arraysOf(tools, now), {pure, needsFile, made} = arrays;
      file = () => fileOf(tools, now, made);
      page.keep.hidden = !needsFile;
      settings.of('words').element.hidden = pure;
      page.note.textContent = noteOf(trained, found, scales, now, arrays);
      showViews(page.more, views, both);
      page.first.classList.toggle('single', single);
      showCurve(page.curve, main, now, single);
      return {
        name: `bias-${both.map(nameOf).join('-')}`,
        saves: Object.fromEntries(Object.keys(found).map(key => [key, savedOf(maps[key], found[key], now)])),
        docs: both.map(nameOf),
        numbers: {
          map: () => [...(found[state.save] ?? found.a).data],
          curves: () => shown.map((n, m) => [n, ...main.curve[m]])
        },
        code: pure ? biasCode(tools, now, arrays) : changeCode(tools, now, arrays, main)
      };
    };
    return frame({
      title: this.title,
      facts,
      compute,
      output: page.output,
      settings,
      saves: kinds,
      change,
      about: 'Attention does not depend on the order of the keys; a bias, added to each score before the softmax, ' +
        'changes that. Rows are queries, columns are keys, and the offset is key minus query. For terms that depend ' +
        'on q and k, or act on weights or values, the map shows the change that they cause. Choose a second term to ' +
        'see the sum and the difference of both.',
      formula: 's[i,j] = scale ⟨q_i, k_j⟩ + bias_h(i,j)      offset = j − (i + position of query 0)'
    });
  },
};
