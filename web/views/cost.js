// cost.js -- the view of costs: memory and time of biases as an N x N array and as 2N - 1 numbers; decoding with a
// cache, step by step; and numbers of parameters.
// SPDX-License-Identifier: Apache-2.0
import {chart} from '../chart.js';
import {cString, pythonTerm, randomArrays, shell} from '../code.js';
import {ofChart} from '../export.js';
import {frame} from '../frame.js';
import {HeatMap} from '../heat.js';
import {gridOf, nameOf, namesIn, startText, termEditor} from '../term.js';
import {bytes, calculation, controls, count, extent, fixed, folded, h, inner, minus, table} from '../ui.js';

const cells = 48;  // rows and columns of the map of the cache

/** Return the names of the terms whose biases depend only on the offset. */
const namesOf = (core, facts) =>
  core.kinds.filter(kind => kind.bias && kind.name !== 'dense' && facts.terms[kind.name].family === 'Biases by offset')
    .map(kind => kind.name);

/** Return the controls; editor: of the term. */
const settingsOf = (change, editor) => controls(
  [
    {key: 'heads', label: 'Heads', type: 'range', min: 1, max: 32, lower: 1, upper: 64},
    {key: 'dim', label: 'Width of a head', type: 'range', min: 8, max: 128, step: 8, lower: 1, upper: 256},
    {key: 'most', label: 'Longest text to measure', type: 'select', options: [256, 512, 1024, 2048]},
    {key: 'also', label: 'Count the parameters of: terms joined by +', type: 'text'},
    {key: 'step', label: 'Step of the cache', type: 'range', min: 0, max: 47, lower: 0, upper: 47},
  ],
  change, editor.element);

/** Return the learned arrays of a term for this number of heads: {name, shape, size, optional, grows}. An array
 * that grows with the text is computed from the text, so it has no parameters. */
function learned(core, text, heads, dim) {
  const shapes = length => {
    const n = gridOf(text)?.tokens ?? length;
    core.problem({heads, lenQ: n, lenK: n, dimK: dim, terms: [text]});
    return core.kindOf[nameOf(text)].arrays.filter(a => a.learned).map(a => ({
      ...a,
      shape: core.shape(text, a.name, heads)
    }));
  };
  const longer = shapes(128), size = shape => shape.length ? shape.reduce((a, b) => a * b, 1) : 0;
  return shapes(64)
    .map((a, n) => ({...a, size: size(a.shape), grows: size(longer[n].shape) !== size(a.shape)}))
    .filter(a => a.size);
}

const isCounted = (core, a, text) => !a.grows && (!a.optional || a.name in namesIn(core, text));

/** Return the number of parameters of a term. */
const countOf = (core, text, heads, dim) =>
  learned(core, text, heads, dim).filter(a => isCounted(core, a, text)).reduce((sum, a) => sum + a.size, 0);

/** Return the learned arrays of a term and their shapes, as words. */
const aboutArrays = (core, text, heads, dim) =>
  learned(core, text, heads, dim)
    .map(({name, shape, optional, grows}) => `${name} ${grows ? 'computed from the text' : shape.join(' × ')}${
           optional && !(name in namesIn(core, text)) ? ', optional' : ''}`)
    .join('; ') ||
  'none';

const ROUNDS = 5;
/** Measure several calls in turns, so that what slows this machine for a while slows all of them. `calls` is {name:
 * function that prepares a call and returns it}. Browser clocks are coarse, so a round takes the mean over calls of
 * at least 20 ms together, after a first call that does not count. Return {times: {name: ms of the fastest round},
 * noise: the largest share by which the median of the rounds is above the fastest}. */
async function timesOf(calls) {
  const found = Object.fromEntries(Object.keys(calls).map(name => [name, []]));
  for (let round = 0; round < ROUNDS; round++)
    for (const [name, prepare] of Object.entries(calls)) {
      await new Promise(done => setTimeout(done));  // let the page respond
      const call = prepare();
      call();
      const at = performance.now();
      let calls = 0;
      do call();
      while (++calls, performance.now() - at < 20);
      found[name].push((performance.now() - at) / calls);
    }
  const sorted = Object.entries(found).map(([name, times]) => [name, times.sort((x, y) => x - y)]);
  return {
    times: Object.fromEntries(sorted.map(([name, times]) => [name, times[0]])),
    noise: Math.max(...sorted.map(([, times]) => times[ROUNDS >> 1] / times[0] - 1))
  };
}

/** Return the times of calls: with a bias by offset, with the same bias as an N x N array, and without a bias. Also
 * return the time to compute this array. */
async function once(core, {a, dim}, n) {
  const q = new Float32Array(n * dim);
  let seed = 1;
  const fill = () => q.map(() => ((seed = seed * 1103515245 + 12345 & 0x7fffffff) / 0x40000000) - 1);
  const given = {lenQ: n, lenK: n, dimK: dim, type: 'f32', q: fill(), k: fill(), v: fill()};
  const attend = terms => () => {
    core.problem({...given, terms});
    const to = core.allocate(4 * n * dim);
    return () => core.attend('out', to);
  };
  core.problem({lenQ: n, lenK: n, terms: [a]});
  const whole = Float32Array.from(core.bias());
  const {times, noise} = await timesOf({
    strip: attend([a]),
    making: () => {
      core.problem({lenQ: n, lenK: n, terms: [a]});
      const place = core.allocate(8 * n * n);
      return () => core.bias(place);
    },
    dense: attend([{text: 'dense', arrays: {bias: {shape: [n, n], data: whole, type: 'f32'}}}]),
    none: attend([])
  });
  return {n, noise, ...times};
}

/** Measure texts of 64 tokens up to the longest, and say how far it is. Return {results: see `once`, of: what was
 * measured, in words}. */
async function measureAll(core, state, said) {
  const results = [];
  for (let n = 64; n <= state.most; n *= 2) {
    said.textContent = `measuring ${n} × ${n} …`;
    results.push(await once(core, state, n));
  }
  const of = `${state.a}, one head of width ${state.dim}, f32, ${core.vectors}, one thread`;
  said.textContent = `Measured: ${of}. The calls take turns; each time is the fastest of ${
    ROUNDS} rounds, after a first call that does not count.`;
  return {results, of};
}

/** Return the bytes that biases need at several lengths: {lengths, work: scratch memory of the library, whole: an array
 * N x N}. */
function memoryOf(core, {a, heads, dim}) {
  const lengths = [...Array(9).keys()].map(n => 256 << n);
  const work = lengths.map(n => {
    core.problem({heads, lenQ: n, lenK: n, dimK: dim, type: 'f32', terms: [a]});
    return core.workSize();
  });
  return {lengths, work, whole: lengths.map(n => 4 * heads * n * n)};
}

const memoryChart = ({lengths, work, whole}, {heads, dim}) => chart({
  title: `Memory in addition to q, k, v and out: ${heads} heads of ${dim}`,
  xLabel: 'tokens',
  yLabel: 'bytes',
  logX: true,
  logY: true,
  series: [
    {name: 'biases as an array N × N, f32', x: lengths, y: whole},
    {name: 'relpos: scratch memory of a call, one thread', x: lengths, y: work}
  ]
});

const memoryTable = ({lengths, work, whole}, {heads}) => table(['tokens', ...lengths.map(count)],
  [
    ['N × N biases', ...whole.map(bytes)], ['relpos: scratch', ...work.map(bytes)],
    ['2N − 1 biases', ...lengths.map(n => count(2 * n - 1))]
  ],
  {
    calculation: (r, m) => r === 1 ?
      `${lengths[m]} tokens: ${count(work[m])} bytes, from rp_plan_work_size of the library` :
      calculation([r ? `2 * ${lengths[m]} - 1` : `4 * ${heads} * ${lengths[m]}^2`],
        r ? `${2 * lengths[m] - 1}` : `${whole[m]} bytes`)
  });

function timesChart({results, of}) {
  const x = results.map(r => r.n), line = (name, key) => ({name, x, y: results.map(r => r[key])});
  return chart({
    title: `Milliseconds a call: ${of}`,
    xLabel: 'tokens',
    yLabel: 'ms',
    logX: true,
    logY: true,
    series: [
      line('no bias', 'none'), line('relpos, bias by offset', 'strip'), line('array N × N, computed before', 'dense'),
      {name: 'array N × N, computed in the call', x, y: results.map(r => r.dense + r.making)}
    ]
  });
}

const timesTable = ({results}) => table(['tokens', ...results.map(r => count(r.n))],
  [
    ['no bias', 'none'], ['by offset', 'strip'], ['array, computed before', 'dense'], ['computing the array', 'making']
  ].map(([name, key]) => [name, ...results.map(r => r[key])]),
  {
    digits: 2,
    caption: 'ms',
    calculation: (r, m) => {
      const now = results[m], time = now[['none', 'strip', 'dense', 'making'][r]];
      return `${now.n} tokens: the fastest of ${ROUNDS} rounds, ${
        r % 3 ? calculation([`${fixed(now.none)} ms without bias`, inner(time - now.none)], `${fixed(time)} ms`) :
                `${fixed(time)} ms`}`;
    }
  });

/** Return whether a bias by offset takes longer than an array at the longest text, as a note. */
function timesNote({results}) {
  const last = results.at(-1), share = last.strip / last.dense - 1;
  return h('p', {class: 'note'},
    `At ${last.n} tokens, the median of the rounds is up to ${
      Math.round(100 * last.noise)} % above the fastest one, so smaller differences are noise. A bias by offset ${
      Math.abs(share) <= last.noise ? 'takes as long as the array that was computed before, within this noise' :
                                      `takes ${Math.round(100 * Math.abs(share))} % ${
                                        share < 0 ? 'less' : 'more'} time than the array that was computed before`}.`);
}

/** Return the numbers of parameters: {counts: of each term [text, of these heads, of one head], first those that the
 * reader asked for, asked: how many these are}. */
function countsOf(core, facts, {also, heads, dim}) {
  const asked = also.split('+').map(text => text.trim()).filter(Boolean),
        every = core.kinds.map(kind => startText(core, facts, kind.name));
  return {
    asked: asked.length,
    counts: [...asked, ...every].map(text => [text, countOf(core, text, heads, dim), countOf(core, text, 1, dim)])
  };
}

/** Return two tables of parameters: of the terms that the reader asked for with their sum, and of every term. */
function parameterTables(core, {counts, asked}, {heads, dim}) {
  const sum = at => counts.slice(0, asked).reduce((total, line) => total + line[at], 0),
        line = ([text, many, one]) => [text, aboutArrays(core, text, heads, dim), count(many), count(one)];
  /** Return how each number of parameters is computed. The last row of the first table is a sum. */
  const counted = of => (r, c) => {
    if (!of[r]) return !c ? '' : calculation(of.map(line => String(line[c])), String(sum(c)));
    const [text] = of[r], n = c === 2 ? 1 : heads;
    if (!c) return `${text}: ${aboutArrays(core, text, heads, dim)}`;
    const products = learned(core, text, n, dim).filter(a => isCounted(core, a, text)).map(a => a.shape.join(' * '));
    return `${text}: ${calculation(products, String(of[r][c]))}`;
  };
  const head = ['term', `learned arrays of ${heads} heads of ${dim}`, `${heads} heads`, '1 head'],
        [first, every] = [counts.slice(0, asked), counts.slice(asked)];
  return [
    table(head, [...first.map(line), ['together', '', count(sum(1)), count(sum(2))]], {calculation: counted(first)}),
    h('p', {class: 'note'},
      'All heads share vectors, as in the papers; numbers are counted once for each head. An optional array is ' +
        'counted if the text names it.'),
    table(head, every.map(line), {caption: 'Every term with its initial settings', calculation: counted(every)})
  ];
}

/** Return the biases that a cache computes up to a step, one query at a time: {data: the map, low, high: the limits of
 * the whole matrix, value: what they are, worst: the largest difference from the whole matrix}. */
function cacheOf(core, {a, step}) {
  const data = new Float64Array(cells * cells).fill(-Infinity);
  core.problem({lenQ: cells, lenK: cells, terms: [a]});
  const full = core.bias(), [low, high] = extent([full]),
        value = core.meaning && core.meaning !== 'random' ? core.meaning : 'bias';
  let worst = 0;
  for (let t = 0; t <= step; t++) {  // one query at position t, and all keys up to t
    core.problem({lenQ: 1, lenK: t + 1, qOffset: t, terms: [a]});
    const one = core.bias();
    data.set(one, t * cells);
    one.forEach((x, j) => {
      worst = Math.max(worst, Math.abs(x - full[t * cells + j]));
    });
  }
  return {data, low, high, value, worst};
}

function showCache(cache, core, {data, low, high, value}, {a, step}) {
  cache.show({
    data,
    rows: cells,
    columns: cells,
    value,
    title: `${value === 'bias' ? 'Biases' : 'Buckets'} while a text is written`,
    cursor: [step, Math.min(cache.cursor[1], step)],
    low,
    high,
    label: (r, c, x) => x > -Infinity ?
      `step ${r}, key ${c}, offset ${minus(c - r)}: ${
        calculation(core.problem({lenQ: cells, lenK: cells, terms: [a]}).expressions(0, r, c),
          fixed(x, value === 'bias' ? 4 : 0))}` :
      `step ${r}, key ${c}: not computed yet`
  });
}

/** Return what can be saved: the memory, the parameters, the times if they were measured, and the map of the cache. */
const savesOf = ({figure, cache, times}, {lengths, work, whole}, counts, measured, {data, value}, {step}) => ({
  memory: {
    figure: ofChart(figure),
    csv: () => [['tokens', 'bytes_of_array', 'bytes_of_work'], ...lengths.map((n, m) => [n, whole[m], work[m]])]
  },
  parameters: {figure: ofChart(figure), csv: () => [['term', 'parameters', 'parameters_of_one_head'], ...counts]},
  ...(measured ? {
    times: {
      figure: ofChart(times.querySelector('figure')),
      csv: () => [['tokens', 'ms_none', 'ms_by_offset', 'ms_array', 'ms_making_array'],
        ...measured.results.map(r => [r.n, r.none, r.strip, r.dense, r.making])]
    }
  } :
                 {}),
  cache: {
    figure: cache,
    csv: () => [['step', 'key', value],
      ...[...data.keys()].map(at => [Math.floor(at / cells), at % cells, data[at]]).filter(([t,
        j]) => j <= t && t <= step)]
  }
});

function codeOf(core, facts, {a, heads, dim, most, step}) {
  const problem = term => `fwd:f32:b1h1q${most}k${most}d${dim}${term === 'none' ? '' : `:${term}`}`;
  core.problem({lenQ: cells, lenK: cells, terms: [a]});
  return {
    CLI: `relpos info     # shapes of the learned arrays\n# times of this machine with its best instruction set, ` +
      `not those of the browser\n${
          ['none', a, 'dense'].map(term => shell(['relpos', 'bench', problem(term)])).join('\n')}\n${
        shell(['relpos', 'bias', a, '--q', 1, '--k', step + 1, '--q-offset', step, '--heads', 1])}\n`,
    Python: `import numpy as np, relpos, timeit\nq, k, v = np.random.default_rng(0).standard_normal((3, 1, 1, ${
              most}, ${dim}), dtype=np.float32)\n${
              randomArrays(core, a) ? '# random numbers: replace them by your arrays\n' : ''}term = ${
              pythonTerm(core, facts,
                a)}\n# times of this machine, on one thread, not those of the browser\nfor bias in (None, term, ` +
      `relpos.Dense(term.matrix(${most}, ${
        most}, heads=1).astype(np.float32))):\n    print(min(timeit.repeat(lambda: relpos.attention(q, k, ` +
      `v, ` +
      `bias=bias, threads=1), number=1)), "s")\n# the row that step ${step} adds to the cache\nprint(term.matrix(1, ${
        step + 1}, heads=1, q_offset=${step})[0].round(4))\n`,
    C: `#include <relpos/relpos.h>\n#include <stdio.h>\n\n/* scratch memory of a call in bytes; it depends on ` +
      `the instruction set, which differs from that in the browser */\nint main(void)\n{\n    rp_term term;\n ` +
      `  ` +
      ` char names[RP_MAX_ARRAYS][RP_NAME_MAX];\n    rp_pool *one;\n    rp_plan *plan;\n    if (rp_term_parse(${
        cString(a)}, &term, names) != RP_OK || rp_pool_create(&one, 1) != RP_OK)\n        return ` +
      `puts(rp_last_error()), 1;\n    for (int64_t n = 256; n <= 65536; n *= 2) {\n        rp_desc desc = ` +
      `rp_desc_init(1, ${heads}, n, n, ${
        dim});\n        desc.terms = &term, desc.n_terms = 1;\n        if (rp_plan_create(&plan, &desc) != ` +
      `RP_OK)\n            return puts(rp_last_error()), 1;\n        printf("%lld %zu\\n", (long long)n, ` +
      `rp_plan_work_size(plan, one));\n        rp_plan_destroy(plan);\n    }\n    rp_pool_destroy(one);\n    ` +
      `return 0;\n}\n`,
  };
}

export const cost = {
  id: 'cost',
  title: 'Cost: N × N against O(N), measured here',
  name: 'Cost',
  defaults: {
    a: 'alibi',
    heads: 8,
    dim: 64,
    most: 1024,
    step: 32,
    also: 'relkey,left=64,right=64+relval,left=64,right=64',
    save: 'memory'
  },

  make({core, facts, change}) {
    const editor = termEditor({core, facts, key: 'a', legend: 'Term', names: namesOf(core, facts), change});
    const settings = settingsOf(change, editor);
    const parameters = h('div', {class: 'texts'}), memory = h('div'), times = h('div'),
          said = h('p', {role: 'status', class: 'note'}), row = h('p', {role: 'status'});
    const cache = new HeatMap({title: 'Biases while a text is written', onpick: r => change({step: r})});
    const go =
      h('button', {type: 'button', id: 'measure', class: 'main', onclick: () => measure()}, 'Measure in this browser');
    const output = h('div', {}, h('h3', {}, 'Memory'), memory, h('h3', {}, 'Time'), h('div', {class: 'row'}, go, said),
      times, h('h3', {}, 'A cache, step by step'), row, h('div', {class: 'panels'}, cache.element),
      folded('Parameters', parameters));
    let now = null, measured = null, running = false;

    async function measure() {
      if (running) return;
      running = true;
      try {
        measured = await measureAll(core, now, said);
      } catch (error) { said.textContent = error.message; }
      running = false;
      change({});
    }

    const compute = state => {
      now = state;
      settings.set(state);
      editor.set(state);
      const {a, step} = state, needed = memoryOf(core, state), {work, whole} = needed;
      const figure = memoryChart(needed, state);
      memory.replaceChildren(figure, memoryTable(needed, state));
      if (measured) times.replaceChildren(timesChart(measured), timesTable(measured), timesNote(measured));
      const found = countsOf(core, facts, state), {counts} = found;
      parameters.replaceChildren(...parameterTables(core, found, state));
      const written = cacheOf(core, state), {data, worst} = written;
      showCache(cache, core, written, state);
      row.textContent = `Step ${step}: the cache has ${step + 1} keys, and the step computes one new row of ${
        step + 1} biases. Earlier rows do not change. Largest difference between the ${
        step + 1} rows, computed one by one, and those of the whole matrix: ${worst}.`;
      return {
        name: 'cost',
        docs: [nameOf(a)],
        numbers: {counts, work, whole, worst, measured, row: data.slice(step * cells, step * cells + step + 1)},
        saves: savesOf({figure, cache, times}, needed, counts, measured, written, state),
        code: codeOf(core, facts, state)
      };
    };
    return frame({
      title: this.title,
      facts,
      compute,
      output,
      settings,
      saves: {
        memory: 'the memory',
        parameters: 'the parameters',
        times: 'the measured times',
        cache: 'the map of the cache'
      },
      change,
      about:
        'A bias by offset has 2N − 1 numbers for each head; as an array it has N². The library never creates that ' +
        'array: it starts the sums of a tile of scores with biases from those numbers. The library reports the ' +
        'memory. The times are measured in this browser, and depend on other programs that run on this machine.',
      formula:
        'N × N array: 4 · heads · N² bytes      by offset: 4 · heads · (2N − 1) bytes, and scratch memory that ' +
        'grows with N'
    });
  },
};
