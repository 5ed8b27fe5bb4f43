// model.js -- the view of attention heads on a text, without and with position terms: heads of a trained model, or from
// a file of the user. SPDX-License-Identifier: Apache-2.0
import {chart, someHeads} from '../chart.js';
import {inFile, optionOf, pythonOptions, rowFunction, shell} from '../code.js';
import {readArrays, safetensorsOf} from '../files.js';
import {frame} from '../frame.js';
import {HeatMap} from '../heat.js';
import {maskEditor, maskKeywords, maskOfOption, maskOptions, readMasks} from '../mask.js';
import {filledWith, namedArrays, nameOf, namesIn, startText, termEditor, withNames, works} from '../term.js';
import {
  controls,
  differenceOf,
  download,
  extent,
  fileField,
  fixed,
  followChosen,
  h,
  inner,
  inPieces,
  marker,
  minus,
  nth,
  table,
  viewLink,
  weightOf,
  wordButtons
} from '../ui.js';

const maxTokens = 1024;  // a map has the square of this many cells

/** Parse options of `relpos attend` into {terms, masks, scale}. Throw an Error for options that this view does not
 * support. */
function readOptions(core, text) {
  const found = {terms: [], masks: '', scale: 0}, words = text.split(/\s+/).filter(Boolean);
  while (words.length) {
    const option = words.shift(), name = option.slice(2),
          value = () => words.length && !words[0].startsWith('--') ? words.shift() : '';
    const mask = maskOfOption(core, option, value);
    if (mask) found.masks += `${found.masks && '+'}${mask}`;
    else if (option === '--scale') found.scale = +value();
    else if (option === '--bias') found.terms.push(value());
    else if (option.startsWith('--') && Object.hasOwn(core.kindOf, name)) {
      const rest = value();  // --sink NAME
      found.terms.push([
        name, rest && (rest.includes('=') ? rest : `${core.kindOf[name].arrays[0].name}=${rest}`)
      ].filter(Boolean).join(','));
    } else throw new Error(`${option} is not supported here`);
  }
  if (!(found.scale >= 0 && found.scale < Infinity)) throw new Error('--scale needs a number');
  if (found.terms.length > 2) throw new Error(`it has ${found.terms.length} terms, this view supports two`);
  return found;
}

/** Set difference to a - b in [from, to); masked numbers stay masked. Compilers do not optimize such a loop in a
 * generator. */
function subtract(difference, a, b, from, to) {
  for (let x = from; x < to; x++) difference[x] = a[x] === -Infinity ? -Infinity : a[x] - b[x];
}

/** Return a function that returns an array of n numbers, each time another one of two: one is on the screen while the
 * other is computed. */
function inTurns() {
  const kept = [];
  let turn = 0;
  return n => {
    turn ^= 1;
    if (kept[turn]?.length !== n) kept[turn] = new Float64Array(n);
    return kept[turn];
  };
}

const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));

/** Return arrays that bundle.py packed, as f16 or as rows of integers with a scale. */
const unpacked = (core, facts, arrays) => new Map(Object.entries(arrays).map(([name, {shape, f16, bytes: at}]) => {
  if (f16) return [name, {shape, type: 'f16', bytes: bytes(f16)}];
  const columns = shape.at(-1), rows = shape.reduce((a, b) => a * b, 1) / columns;
  return [
    name, {shape, type: 'f32', bytes: new Uint8Array(core.scaled(facts.bytes.subarray(...at), rows, columns).buffer)}
  ];
}));

/** Return the sources that come with the page: {name, title, about, read(), start}. */
const builtIn = (core, facts) => ({
  minilm: {
    name: 'all-MiniLM-L6-v2, layer 3',
    title: 'all-MiniLM-L6-v2 on the Gettysburg Address, layer 3',
    about: 'A trained sentence encoder without a position term in its attention, its queries and keys rounded to 7 ' +
      'bits: add a term to see which words its heads then attend to. The table here is not trained; it has the ' +
      'shape of a T5 table.',
    read: () => take(core, {arrays: unpacked(core, facts, facts.model.arrays), tokens: facts.model.tokens}),
    start: {a: 't5,table=t5_table', head: 3, query: 17}
  },
  ...Object.fromEntries(facts.lab.layers.map((arrays, layer) => [`lab${layer}`, {
    name: `byte model, layer ${layer}`,
    title: `a byte model of the laboratory, layer ${layer} (0 is the first of ${facts.lab.layers.length})`,
    about: 'Trained by relpos lab on documentation such as man pages and Vim’s help, with a separate T5 table in ' +
      'each layer; this text was not in the training data. The curves show the bias that each head has learned ' +
      'for each offset.',
    read: () =>
      take(core, {arrays: unpacked(core, facts, arrays), tokens: facts.lab.tokens, options: facts.lab.options}),
    start: {head: 1, query: facts.lab.tokens.length - 1}
  }]))
});

/** Create a source from a file's arrays: take the first batch entry of q and k as doubles, and the other arrays. */
function take(core, {arrays, tokens, options = ''}, title) {
  const [q, k] = ['q', 'k'].map(name => arrays.get(name) ?? (() => {
    throw new Error(`the file cannot be used: it has no array ${name} (it has ${
        [...arrays.keys()].join(', ') || 'none with floating-point numbers'})`);
  })());
  for (const [name, x] of [['q', q], ['k', k]])
    if (x.shape.length !== 4 || x.shape.some(n => n < 1))
      throw new Error(
        `the file cannot be used: ${name} has the shape ${x.shape.join('×')}, expected (batch, heads, length, width)`);
  const [batch, heads, lenQ, dim] = q.shape, [, kvHeads, lenK, dimK] = k.shape;
  if (dim !== dimK || heads % kvHeads)
    throw new Error(`the file cannot be used: q is ${q.shape.join('×')} and k ${
      k.shape.join('×')}; their widths must be equal, and the heads of k must divide those of q`);
  if (lenQ > maxTokens || lenK > maxTokens)
    throw new Error(
      `the file cannot be used: it has ${Math.max(lenQ, lenK)} tokens, this page shows at most ${maxTokens}`);
  const data = (x, n) => core.doubles(x.bytes, x.type, n), others = Object.create(null);
  for (const [name, x] of arrays)
    if (!['q', 'k', 'v', 'out'].includes(name) && x.shape.length <= 4)
      others[name] = {shape: x.shape, data: data(x, x.shape.reduce((a, b) => a * b, 1))};
  const v = arrays.get('v'), out = arrays.get('out'), dimV = v?.shape[3];
  for (const [name, x, ...axes] of [
         ['k', k, batch], ['v', v, batch, kvHeads, lenK], ['out', out, batch, heads, lenQ, dimV]])
    if (x && !(x.shape.length === 4 && axes.every((n, axis) => n === x.shape[axis]) && x.shape[3] > 0))
      throw new Error(`the file cannot be used: ${name} has the shape ${x.shape.join('×')}, which does not fit q ${
        q.shape.join('×')} and k ${k.shape.join('×')}`);
  const names = tokens?.length === lenK ? tokens : [...Array(lenK).keys()].map(String);
  const source = {
    title,
    heads,
    kvHeads,
    lenQ,
    lenK,
    dim,
    q: data(q, heads * lenQ * dim),
    k: data(k, kvHeads * lenK * dim),
    v: v ? data(v, kvHeads * lenK * dimV) : null,
    dimV: v ? dimV : dim,
    out: v && out ? data(out, heads * lenQ * dimV) : null,
    others,
    tokens: names
  };
  const arraysIn = {q: source.q, k: source.k, v: source.v ?? [], out: source.out ?? []};
  for (const [name, {data}] of Object.entries(others)) arraysIn[name] = data;
  const nonfinite = Object.entries(arraysIn)
                      .map(([name, data]) => [name, data.reduce((sum, x) => sum + !Number.isFinite(x), 0)])
                      .filter(([, n]) => n)
                      .map(([name, n]) => `${n} of ${name}`);
  if (nonfinite.length)
    source.warning = `Not every number of the file is finite: ${nonfinite.join(', ')} are infinite or not a number.`;
  return {...source, options: optionsOf(core, options, source)};
}

/** Return the options that the metadata of a file contains, or that the names of its arrays imply: {terms, masks,
 * scale, note}. */
function optionsOf(core, text, source) {
  const {others} = source, checked = read => {
    const found = read();
    rowsOf(core, {head: 0, ...startOf({options: found})}, source);
    return found;
  };
  if (text) try {
      return checked(() => readOptions(core, text));
    } catch (error) { return {note: `The options in the file cannot be used: ${error.message}. Choose a term.`}; }
  const named =
    core.kinds
      .map(({name, arrays}) => [name,
             ...arrays.filter(a => Object.hasOwn(others, `${name}.${a.name}`)).map(a => `${a.name}=${name}.${a.name}`)]
                                 .join(','))
      .filter(text => text.includes(','));
  const called = `Its arrays are named like those of ${named.map(nameOf).join(' and ')}`;
  try {
    return named.length ?
      checked(() => ({terms: named.slice(0, 2), note: `${called}; the other parameters have their defaults.`})) :
      {};
  } catch (error) { return {note: `${called}, but cannot be used: ${error.message}. Choose a term.`}; }
}

/** Return the arrays of a file that a term's text names. The library fills others: an array without a name, or with its
 * name in the library, as startText writes it. */
function arraysOf(core, text, others) {
  const names = core.kindOf[nameOf(text)] ? namesIn(core, text) : {};
  return Object.fromEntries(Object.entries(names).flatMap(([name, named]) => {
    if (Object.hasOwn(others, named)) return [[name, others[named]]];
    if (named === name) return [];
    throw new Error(`no array of the file is called ${named} (there are: ${Object.keys(others).join(', ') || 'none'})`);
  }));
}

/** Return what computes rows of a head without (0) and with (1) the terms of a state. Errors in a file are thrown
 * here, before anything is drawn. */
function rowsOf(core, {head, a, b, masks, scale}, source) {
  const {heads, kvHeads, lenQ, lenK, dim, dimV, q, k, v, out, others} = source, terms = [a,
    b].filter(Boolean).map(text => ({text, arrays: arraysOf(core, text, others)})),
                                                              kept = readMasks(core, masks);
  const of = (data, head, size) => data.subarray(head * size, (head + 1) * size),
        group = Math.floor(head / (heads / kvHeads));
  const set = n => core.problem({
    heads,
    kvHeads,
    lenQ,
    lenK,
    dimK: dim,
    dimV,
    scale: scale > 0 ? scale : NaN,
    terms: n ? terms : [],
    masks: kept,
    q: of(q, head, lenQ * dim),
    k: of(k, group, lenK * dim),
    ...(out ? {v: of(v, group, lenK * dimV)} : {})
  });
  const known = [new Map(), new Map()];  // rows that have already been shown
  const rowOf = (n, i) => known[n].get(i) ?? known[n].set(i, set(n).row(head, i)).get(i);
  for (const n of terms.length ? [0, 1] : [0]) rowOf(n, 0);
  const named = namedArrays(core, terms, others), {meaning} = core;
  terms.forEach(
    (term, n) => term.arrays = Object.fromEntries(named.made[n].map(array => [array.array, array])));  // fill them once
  return {terms, ...named, meaning, rowOf, rows: (n, what, i, count, to) => set(n).rows(what, head, i, count, to)};
}

/** Return the initial state of a source. */
function startOf(found) {
  const {terms = [], masks = '', scale = 0} = found.options;
  return {a: terms[0] ?? '', b: terms[1] ?? '', masks, scale, head: 0, query: 0, ...found.start};
}

/** Return the sources of heads: {built, opened: those that were read, of(name)}. */
function sourcesOf(core, facts) {
  const built = builtIn(core, facts), opened = {};
  return {
    built,
    opened,
    of(name) {
      if (name === 'file' && !opened.file)
        throw new Error('This address needs a file of yours, which it does not contain: drop the file again.');
      return opened[name] ??= {...built[name].read(), ...built[name]};
    }
  };
}

const scratch = new Float64Array(2 ** 14);
/** Return the magnitude that a hundredth of the numbers other than 0 exceeds, of at most 2¹⁴ of them that are
 * evenly spread. */
function cap(data) {
  let n = 0;
  for (let at = 0, step = Math.ceil(data.length / scratch.length) | 1; at < data.length; at += step) {
    const x = Math.abs(data[at]);
    if (x > 0 && x < Infinity) scratch[n++] = x;
  }
  return nth(scratch.subarray(0, n), Math.floor(n * 0.99)) || 1;
}

/** Compute the weights of a head without (first) and with the terms (found) in pieces, and how far the outputs are from
 * those of the file; part(data, i, n): n rows of a map. */
function* computeMaps(found, first, {head}, part) {
  const {source, rows} = found, {lenQ, lenK, dimV, out} = source, all = found.with, last = all ? 1 : 0,
                 many = Math.max(1, Math.floor(2e6 / lenK / source.dim));
  for (; first.known < lenQ; first.known += many) {
    const n = Math.min(many, lenQ - first.known);
    rows(0, 'masked', first.known, n, part(first.all, first.known, n));
    yield;
  }
  for (let i = 0; i < lenQ && (last || out); i += many) {
    const n = Math.min(many, lenQ - i);
    if (last) rows(1, 'masked', i, n, part(all, i, n));
    if (out) {
      const got = rows(last, 'out', i, n), want = out.subarray((head * lenQ + i) * dimV);
      for (let x = 0; x < got.length; x++) found.far = Math.max(found.far, Math.abs(got[x] - want[x]));
    }
    if (last) subtract(found.difference, all, first.all, i * lenK, (i + n) * lenK);
    yield;
  }
  if (first.cap === undefined) yield first.cap = cap(first.all);
  found.high = Math.max(first.cap, last ? cap(all) : 0);
  yield;
  if (last) found.highest = cap(found.difference);
  yield;
}

/** Return {weightsOf(state, source), isDrawn(weights)}. weightsOf returns the weights of a head without and with the
 * terms of a state: all queries are computed in pieces, the chosen ones at once. */
function weighing(core) {
  let drawn = null, plain = null;
  const arrays = {plain: inTurns(), all: inTurns(), difference: inTurns()};
  const weightsOf = (state, source) => {
    const {head, a, b, masks, scale} = state, {lenQ, lenK} = source, id = [head, masks, scale].join(' '),
                              key = JSON.stringify([id, a, b]);
    if (drawn?.key === key && drawn.source === source) return drawn;  // the weights of all queries are already known
    const found = rowsOf(core, state, source), {terms} = found, cells = lenQ * lenK;
    if (plain?.id !== id || plain.source !== source) plain = {id, source, known: 0, all: arrays.plain(cells)};
    const first = plain, part = (data, i, n) => data.subarray(i * lenK, (i + n) * lenK);
    const result = {
      ...found,
      key,
      source,
      plain: first.all,
      with: terms.length ? arrays.all(cells) : null,
      difference: terms.length ? arrays.difference(cells) : null,
      far: 0
    };
    result.steps = () => computeMaps(result, first, state, part);
    return drawn = result;
  };
  return {weightsOf, isDrawn: found => drawn === found};
}

/** Return the editors of two terms. A term starts with arrays of the source that have its name or its shape. */
function editorsOf({core, facts, change, view}) {
  const tabled = core.kinds.filter(kind => kind.bias && kind.arrays[0]?.name === 'table' && 'buckets' in kind.defaults)
                   .map(kind => kind.name);
  const source = () => view.sources.of(view.current().source),
        fits = (key, text) =>
          works(() => rowsOf(core, {...view.current(), head: 0, a: '', b: '', [key]: text}, source()));
  return [['a', 'Term'], ['b', 'Second term']].map(([key, legend]) => termEditor({
    core,
    facts,
    key,
    legend,
    names: core.kinds.map(kind => kind.name),
    none: true,
    change,
    fits: text => fits(key, text),
    start: name => {
      const {others, lenK} = source(), named = {};
      let rows = Math.floor(Math.sqrt(lenK));
      while (lenK % rows) rows--;
      const text = startText(core, facts, name).replace(/grid=\d+x\d+/, `grid=${rows}x${lenK / rows}`);
      for (const {name: array} of core.kindOf[name].arrays) {
        const own = [`${name}.${array}`, ...(tabled.includes(name) && array === 'table' ? Object.keys(others) : [])],
              found = own.find(x => Object.hasOwn(others, x) && fits(key, withNames(text, {...named, [array]: x})));
        if (found) named[array] = found;
      }
      return withNames(text, named);
    }
  }));
}

/** Return what the state becomes when a file is opened: the settings of the file, or those of before that work with it.
 * Throw an Error if the file cannot be shown. */
function stateFor(core, now, found) {
  const fits = terms => works(() => rowsOf(core, {...now, head: 0, a: '', b: '', ...terms}, found));
  const query = Math.min(now.query, found.lenQ - 1), kept = ['a', 'b'].filter(key => fits({[key]: now[key]})),
        patch = found.options.terms ?
    startOf({...found, start: {query: found.lenQ - 1}}) :
    {head: 0, query, a: kept.includes('a') ? now.a : '', b: kept.includes('b') ? now.b : ''};
  rowsOf(core, {...now, ...patch}, found);
  return patch;
}

/** Open a file, or say in `problem` why it cannot be used. */
async function openFile(file, {core, change, current, sources, problem, title}) {
  try {
    const found = take(core, await readArrays(file));  // if this throws an error, the page does not change
    if (!title.isConnected) return;                    // the user has gone to another view
    const patch = stateFor(core, current(), found);
    sources.opened.file = {...found, title: file.name, about: 'Your file. It is not sent anywhere.'};
    problem.textContent = '';
    change({source: 'file', ...patch});
  } catch (error) {
    problem.textContent = error instanceof RangeError ? 'the file cannot be used: it refers to bytes beyond its end' :
      error.message.startsWith('the file ')           ? error.message :
                                                        `the file cannot be used: ${error.message}`;
  }
}

/** Return the place where the reader drops a file. problem: the element that says why a file cannot be used; save():
 * saves the arrays. */
function dropPlace(open, problem, save) {
  const drop = h('div', {
    class: 'drop',
    ondragover: event => {
      event.preventDefault();
      drop.classList.add('over');
    },
    ondragleave: () => drop.classList.remove('over'),
    ondrop: event => {
      event.preventDefault();
      drop.classList.remove('over');
      if (event.dataTransfer.files[0]) open(event.dataTransfer.files[0]);
    }
  },
    h('label',
      {for: 'file'
      },
      'Your heads: drop a .safetensors or .npz file with q and k (batch, heads, length, width), such as a file of ' +
        'relpos lab export. It is not sent anywhere. The text of a term can name its arrays: ' +
        'relkey,table=NAME,left=8,right=8.'),
    fileField({accept: '.safetensors,.npz', id: 'file'}, open), problem,
    h('div', {class: 'row'}, h('button', {type: 'button', onclick: save}, 'Save the arrays')));
  return drop;
}

/** Return a file with the arrays of a source and those of terms. */
const fileOf = (source, made) => safetensorsOf({
  q: {shape: [1, source.heads, source.lenQ, source.dim], data: source.q},
  k: {shape: [1, source.kvHeads, source.lenK, source.dim], data: source.k},
  v: {shape: [1, source.kvHeads, source.lenK, source.dimV], data: source.v ?? source.k},
  ...(source.out ? {out: {shape: [1, source.heads, source.lenQ, source.dimV], data: source.out}} : {}),
  ...source.others,
  ...Object.fromEntries(made.flat().map(({name, shape, data}) => [name, {shape, data}]))
},
  source.tokens);

/** Return the controls of the view. */
const settingsOf =
  ({change, sources, editors, maskSet, view}, drop) =>
    controls(
      [
        {
          key: 'source',
          label: 'Model and text',
          type: 'select',
          options:
            [...Object.entries(sources.built).map(([name, {name: text}]) => [name, text]), ['file', 'your file']],
          change: (_, name) => change({source: name, ...startOf(sources.of(name))})
        },
        {key: 'head', label: 'Head', type: 'range', min: 0, max: 11, lower: 0, limit: () => view.source.heads - 1},
        {
          key: 'query',
          label: 'Query word',
          type: 'range',
          min: 0,
          max: 330,
          lower: 0,
          limit: () => view.source.lenQ - 1
        },
        {key: 'scale', label: 'Scale of q · k (0: 1/√width)', type: 'range', min: 0, max: 2, step: 0.01, lower: 0},
      ],
      change, [...editors.map(editor => editor.element), maskSet.element], drop);

/** Return the parts of the view and what they work with. */
function viewOf({core, facts, change, current}) {
  const view = {core, facts, change, current, sources: sourcesOf(core, facts), ...weighing(core)};
  view.source = view.sources.of(model.defaults.source);
  view.editors = editorsOf({core, facts, change, view});
  view.maskSet = maskEditor({core, key: 'masks', change});
  view.problem = h('p', {class: 'problem', role: 'alert'});
  view.title = h('p', {class: 'note', role: 'status'});
  view.open = file => openFile(file, view);
  view.settings = settingsOf({...view, view},
    dropPlace(view.open, view.problem, () => download('relpos-heads.safetensors', fileOf(view.source, view.made))));
  view.dropped = view.settings.element.querySelector('option[value=file]');
  view.words =
    h('div', {class: 'words', role: 'group', 'aria-label': 'Words; darker means more weight. Choose the query'});
  for (const name of ['heavy', 'profile', 'curves']) view[name] = h('div');
  view.said = h('p', {class: 'note'});
  view.maps = HeatMap.link(['Without a term', 'With the term', 'Difference'].map(
    name => new HeatMap({title: name, value: 'weight', onpick: r => change({query: r})})));
  view.panels = h('div', {class: 'panels aligned'}, view.maps.map(map => map.element));
  view.mark = marker([view.panels]);
  view.output = h('div', {}, view.words, view.panels, view.title, view.said, view.heavy, view.profile, view.curves);
  view.follow = followChosen(view.words);
  view.calculate = () => '';
  view.words.addEventListener('pointerover', event => {
    const at = [...view.words.children].indexOf(event.target);
    if (at >= 0) event.target.title = view.calculate(at);
  });
  return view;
}

/** Return how a weight is computed without (n = 0) or with (1) the terms, or how their difference (2) is. */
function expressionOf(rowOf, n, i, j) {
  if (n === 2)
    return rowOf(1, i).score[j] === -Infinity ? 'masked' : differenceOf(rowOf(1, i).weights[j], rowOf(0, i).weights[j]);
  const row = rowOf(n, i);
  const whole =
    row.bias[j] && Math.abs(row.scaled[j] + row.bias[j] - row.score[j]) < 1e-9;  // the score has no other part
  return weightOf(row, j, whole ? `${fixed(row.scaled[j])} + ${inner(row.bias[j])}` : fixed(row.score[j]));
}

/** Show the words; darker means more weight. */
function showWords(view, {rowOf, terms}, row, query) {
  const {words, source} = view, {tokens} = source, top = extent([row])[1] || 1;
  wordButtons(words, tokens, query, j => view.change({query: Math.min(j, view.source.lenQ - 1)}));
  view.follow();
  [...words.children].forEach((button, j) => {
    const now =
      j === query ? '' : `color-mix(in srgb, var(--s1) ${3 * Math.round(15 * Math.sqrt(row[j] / top))}%, var(--bg))`;
    if (button.now === now) return;
    button.now = button.style.background = now;
    button.removeAttribute('title');
  });
  view.calculate = j => [`${tokens[j]}: ${expressionOf(rowOf, terms.length ? 1 : 0, query, j)}`,
    ...(terms.length ? [`without a term: ${expressionOf(rowOf, 0, query, j)}`] : [])]
                          .join('\n');
}

/** Return the table of the heaviest keys without and with the terms. */
function heaviestKeys({rowOf}, tokens, plain, row, a, query) {
  const order = data => [...data.keys()].sort((x, y) => data[y] - data[x]).slice(0, 8), before = order(plain),
        after = order(row);
  return table(['', 'without a term', 'offset', 'weight', a ? `with ${nameOf(a)}` : '', 'offset', 'weight'],
    before.map((j, n) => [String(n + 1), tokens[j], String(j - query), fixed(plain[j]), tokens[after[n]],
                 String(after[n] - query), fixed(row[after[n]])]),
    {
      calculation: (r, c) => `“${tokens[c < 3 ? before[r] : after[r]]}”: ${
        expressionOf(rowOf, c < 3 ? 0 : 1, query, c < 3 ? before[r] : after[r])}`
    });
}

/** Return the offsets of n keys from a query. */
const offsetsOf = (n, query) => Float64Array.from({length: n}, (_, j) => j - query);

function profileChart(texts, plain, row, query) {
  const x = offsetsOf(row.length, query);
  return chart({
    title: `Weights of query ${query} over the offset`,
    xLabel: 'offset = key − query',
    yLabel: 'weight',
    low: 0,
    series: [{name: 'without a term', x, y: plain}, ...(texts.length ? [{name: texts.join(' + '), x, y: row}] : [])]
  });
}

/** Compute all weights and then show the maps, in pieces. */
function* showMaps({maps, panels, mark, current}, found) {
  const {lenQ, lenK, tokens} = found.source, data = [found.plain, found.with ?? found.plain, found.difference];
  yield* found.steps();
  for (let n = 0; n < 3; n++) {
    maps[n].element.hidden = n > 0 && !found.terms.length;
    if (maps[n].element.hidden) continue;
    maps[n].show({
      data: data[n],
      rows: lenQ,
      columns: lenK,
      cursor: [Math.min(current().query, lenQ - 1), maps[n].cursor[1]],
      places: {rows: lenQ === lenK ? tokens : undefined, columns: tokens},
      label: (r, c) =>
        `“${tokens[r] ?? r}” → “${tokens[c]}”, offset ${minus(c - r)}: ${expressionOf(found.rowOf, n, r, c)}`,
      ...(n < 2 ? {low: 0, high: found.high, diverging: false} :
                  {low: -found.highest, high: found.highest, diverging: true})
    });
    yield;
  }
  panels.removeAttribute('aria-busy');
  mark(false);
}

/** Show the maps of other weights soon, and of the same weights with another query now. say: of what was computed. */
function updateMaps(view, found, query, say) {
  const {panels, mark} = view;
  if (!found.job) {
    panels.setAttribute('aria-busy', true);
    mark(true);
    found.job = inPieces(showMaps(view, found), () => view.isDrawn(found) && panels.isConnected, say);
  } else {
    found.job.go();
    for (const map of found.job.done ? view.maps : []) {
      map.cursor = [query, map.cursor[1]];
      map.paint();
    }
  }
}

/** Return what there is to say about a source, and how far its output is from that in the file. */
function remarks({about, warning, options, out}, found, head) {
  return [
    about, warning, options.note, found.meaning && `${filledWith[found.meaning]}.`,
    out && found.job.done &&
      (Number.isFinite(found.far) ?
          `The output of head ${head} differs from that in the file by at most ${found.far.toPrecision(2)}.` :
          `The output of head ${head}, or that in the file, is not finite.`)
  ].filter(Boolean)
    .join(' ');
}

/** Return the biases of the query by the terms, of each head or of some: {bias: [[head, biases]], some: a note}. */
function biasesOf(core, {heads, kvHeads, lenQ, lenK, dim, q, k}, terms, head, query) {
  const biases = terms.some(({text}) => core.kindOf[nameOf(text)].bias), {shown, note: some} = someHeads(heads, head);
  if (biases) core.problem({heads, kvHeads, lenQ, lenK, dimK: dim, terms, q, k});
  return {some, bias: biases ? shown.map(n => [n, core.rows('bias', n, query, 1)]) : []};
}

const biasChart = ({bias, some}, query) => chart({
  title: `Bias of each head over the offset, query ${query}${some}`,
  xLabel: 'offset = key − query',
  yLabel: 'bias',
  series: bias.map(([n, y]) => ({name: `head ${n}`, x: offsetsOf(y.length, query), y}))
});

const numbersOf = (found, plain, row, bias, file) => ({
  row: [...row],
  plain: [...plain],
  weights: () => (found.job.finish(), [...found.with ?? found.plain]),
  without: () => (found.job.finish(), [...found.plain]),
  bias: () => bias.map(([n, y]) => [n, ...y]),
  get far() {
    found.job.finish();
    return found.far;
  },
  file
});

function csvOf({tokens}, query, plain, row, own) {
  return [
    ['key', 'word', 'offset', 'without', 'with', ...(own ? ['bias'] : [])],
    ...tokens.map((word, j) => [j, word, j - query, plain[j], row[j], ...(own ? [own[j]] : [])])
  ];
}

function codeOf(core, facts, {heads, kvHeads, lenQ, lenK, dim, v}, found, {head, query, scale, masks}) {
  const common = ['--input', 'relpos-heads.safetensors'], {made, named: texts} = found,
        biases = texts.some(text => core.kindOf[nameOf(text)].bias);
  return {
    CLI: `# “Save the arrays” writes relpos-heads.safetensors${
      v ? '' : ' with k in place of v, because only weights are shown'}\n${shell([
      'relpos', 'explain', ...common, '--head', head, '--query', query,
      ...(texts.length ? texts.flatMap(text => optionOf(core, text)) : ['--no-bias']), ...maskOptions(masks),
      ...(scale > 0 ? ['--scale', scale] : []), '--brief'
    ])}\n${
      biases ? shell([
        'relpos', 'bias', ...texts.filter(text => core.kindOf[nameOf(text)].bias), ...common, '--q', lenQ, '--k', lenK,
        '--heads', heads, '--head', head
      ]) + '\n' :
               ''}`,
    Python: `import relpos\nfrom safetensors.numpy import load_file\nfile = load_file("relpos-heads.safetensors")\n` +
      `print(relpos.explain(${
          ['file["q"]', 'file["k"]', 'file["v"]', `query=${query}`, `head=${head}`, ...maskKeywords(masks),
            ...(scale > 0 ? [`scale=${scale}`] : []), ...pythonOptions(core, facts, inFile(found))]
            .join(', ')}))\n`,
    C: rowFunction({
      heads,
      kvHeads,
      lenQ,
      lenK,
      dim,
      head,
      query,
      scale: scale > 0 ? scale : NaN,
      masks,
      terms: texts.map((text, n) => ({text, arrays: made[n]}))
    }),
  };
}

/** Show a state in the view. Return what the page saves. */
function compute(view, state) {
  const {core, facts, settings, sources} = view;
  settings.set(state);
  view.editors.forEach(editor => editor.set(state));
  view.maskSet.set(state);
  const masks = readMasks(core, state.masks);
  view.dropped.hidden = !sources.opened.file;
  const next = sources.of(state.source), head = Math.min(state.head, next.heads - 1);
  const found = view.weightsOf({...state, head}, next), {rowOf, terms} = found;
  view.made = found.made;
  const source = view.source = next, query = Math.min(state.query, source.lenQ - 1), {tokens, lenQ, lenK} = source,
        texts = terms.map(term => term.text);
  settings.set({...state, head, query});
  const biases = biasesOf(core, source, terms, head, query), {bias} = biases;
  const [plain, row] = [0, terms.length ? 1 : 0].map(n => rowOf(n, query).weights);
  view.title.textContent = `${source.title}: ${source.heads} heads, ${lenK} tokens. Query ${query}: “${
    tokens[lenQ === lenK ? query : 0] ?? query}”.`;
  const say = () => view.said.textContent = remarks(source, found, head);
  showWords(view, found, row, query);
  view.heavy.replaceChildren(h('h3', {}, 'The heaviest keys'), heaviestKeys(found, tokens, plain, row, state.a, query));
  view.profile.replaceChildren(profileChart(texts, plain, row, query));
  updateMaps(view, found, query, say);
  say();
  view.curves.replaceChildren(...(bias.length ? [biasChart(biases, query)] : []));
  const own = bias.find(([n]) => n === head)?.[1];
  return {
    name: 'model',
    figure: view.maps[terms.length ? 1 : 0],
    docs: texts.map(nameOf),
    numbers: numbersOf(found, plain, row, bias, () => fileOf(source, found.made)),
    csv: () => csvOf(source, query, plain, row, own),
    code: codeOf(core, facts, source, found, {head, query, scale: state.scale, masks})
  };
}

export const model = {
  id: 'model',
  title: 'A trained model: its heads without and with a term',
  name: 'Model',
  opens: ({name}) => /\.(safetensors|npz)$/i.test(name),
  defaults: {
    source: 'lab1',
    a: 't5,buckets=32,max_distance=128,bidirectional=0,table=t5.table',
    b: '',
    head: 1,
    query: 60,
    masks: 'causal',
    scale: 0
  },

  make({core, facts, change, state: current}) {
    const view = viewOf({core, facts, change, current});
    const page = frame({
      title: this.title,
      facts,
      compute: state => compute(view, state),
      output: view.output,
      settings: view.settings,
      about: [
        'The queries and keys of a trained model on a text, or those of your file: the weights of each head, their ' +
          'change by a term, and the bias of each head over the offset. To see a model read a text of yours, open ',
        viewLink({id: 'story-model'}, 'the last step of the story'), '.'
      ],
      formula: 'w = softmax(Q Kᵀ / √d + B)'
    });
    const {sources: {built, of}, open} = view;
    return {...page, open, start: ({source}) => Object.hasOwn(built, source) ? startOf(of(source)) : {}};
  },
};
