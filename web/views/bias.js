// bias.js -- the view of biases: one term; or two terms, their sum and their difference.
// SPDX-License-Identifier: Apache-2.0
import {chart, someHeads, usualWidth} from '../chart.js';
import {
  cArrays,
  optionOf,
  program,
  pythonOptions,
  pythonString,
  pythonTerm,
  randomArrays,
  rowFunction,
  shell
} from '../code.js';
import {safetensorsOf} from '../files.js';
import {frame} from '../frame.js';
import {HeatMap} from '../heat.js';
import {trainedTable} from '../story/tables.js';
import {gridOf, nameOf, namesIn, startText, termEditor, withNames} from '../term.js';
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

export const bias = {
  id: 'bias',
  title: 'Bias: the effect of a term',
  name: 'Bias',
  defaults: {a: 'alibi', b: '', q: 64, k: 64, heads: 8, head: 0, query: 32, offset: 0, words: 'cat', save: 'a'},

  make({core, facts, change, views}) {
    const names = core.kinds.map(kind => kind.name);
    const set = (key, value) => {
      const patch = {[key]: value}, grid = (key === 'a' || key === 'b') && gridOf(value);
      if (grid && grid.tokens <= 4096) Object.assign(patch, {q: grid.tokens, k: grid.tokens, offset: 0});
      change(patch);
    };
    const {text: shape, arrays: {table: trained}} = trainedTable(core, facts, 0), whole = `${shape},table=trained`;
    /** Return the term that a text means: t5 without parameters is T5 with the trained table. */
    const meant = text => text === 't5' ? whole : text;
    /** Return a term with the trained table, if its text names it. With more heads than the table has, its columns
     * repeat. */
    const given = (text, heads) => {
      if (nameOf(text) !== 't5' || namesIn(core, text).table !== 'trained') return text;
      const of = (name, other) => +(new RegExp(`,${name}=([^,]*)`).exec(text)?.[1] ?? other),
            [buckets, columns] = trained.shape;
      if (of('buckets', 32) !== buckets || of('max_distance', 128) !== 128 || of('bidirectional', 1) !== 0)
        throw new Error(
          `the trained table needs ${shape}: write this, or omit table=trained to see the number of each bucket`);
      const data = Float64Array.from(
        {length: buckets * heads}, (_, n) => trained.data[Math.floor(n / heads) * columns + n % heads % columns]);
      return {text, arrays: {table: {shape: [buckets, heads], data}}};
    };
    const start = name => name === 't5' ? whole : startText(core, facts, name);
    const editors = [
      termEditor({core, facts, key: 'a', legend: 'Term A', names, change: set, start}),
      termEditor({core, facts, key: 'b', legend: 'Term B', names, none: true, change: set, start})
    ];
    const settings = controls(
      [
        {key: 'q', label: 'Queries', type: 'range', min: 1, max: 512, lower: 1, upper: 4096},
        {key: 'k', label: 'Keys', type: 'range', min: 1, max: 512, lower: 1, upper: 4096},
        {key: 'heads', label: 'Heads', type: 'range', min: 1, max: 32, lower: 1, upper: 256},
        {
          key: 'head',
          label: 'Head of the maps',
          type: 'range',
          min: 0,
          max: 7,
          lower: 0,
          limit: ({heads}) => heads - 1
        },
        {key: 'query', label: 'Query of the curve', type: 'range', min: 0, max: 63, lower: 0, limit: ({q}) => q - 1},
        {key: 'offset', label: 'Position of query 0', type: 'range', min: 0, max: 64, lower: -1e6, upper: 1e6},
        {key: 'words', label: 'Words for q, k and v, repeated (with one word, only offsets matter)', type: 'text'},
      ],
      set, editors.map(editor => editor.element));
    const pick = (r, c) => change({query: r});
    const maps =
      Object.fromEntries(Object.entries(kinds).map(([key, title]) => [key, new HeatMap({title, onpick: pick})]));
    HeatMap.link(Object.values(maps));
    const panels = h('div', {class: 'panels pairs aligned'}, Object.values(maps).map(map => map.element)),
          curve = h('div'), first = h('div', {class: 'beside'}, panels, curve), note = h('p', {class: 'note'}),
          more = h('p', {class: 'note'});
    let arrays = null;
    const keep = h('button', {
      type: 'button',
      onclick: () =>
        download('relpos-term.safetensors', safetensorsOf(arrays(), [...Array(current.k).keys()].map(String)))
    },
      'Save the arrays');
    const output = h('div', {}, first, note, more, h('div', {class: 'row'}, keep));
    let current = null;

    /** Return q, k and v for every position: the vectors of the words, repeated in order and equal for all heads. */
    const vectors = {};
    const content = ({words, heads, q, k}) => {
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
    /** Return how the terms change the scores, weights or outputs of n queries of a head: values with the terms minus
     * values without them, which do not depend on the offset. */
    const effect = (terms, {what}, state, head, i = 0, n = state.q) => {
      const {heads, q, k, offset} = state, of = content(state),
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
    };

    const effects = new Map();  // the last maps that have been computed: another query only moves the cursor
    const compute = state => {
      const {q, k, heads, offset} = state, a = meant(state.a), b = meant(state.b),
                          head = Math.min(state.head, heads - 1), query = Math.min(state.query, q - 1),
                          both = [a, ...(b ? [b] : [])];
      if (heads * q * k > 1 << 24)
        throw new Error(`${heads} heads of ${q} × ${k} biases are too many: choose at most ${1 << 24} numbers`);
      settings.set({...state, head, query});
      editors.forEach(editor => editor.set({...state, a, b}));
      const {shown, note: some} = someHeads(heads, head);
      const bias = text =>
        core.kindOf[nameOf(text)]?.bias ?? true;  // for an unknown name, let the library report the error
      const of = (texts, first = 0) => {
        const pure = texts.every(bias), terms = texts.map(text => given(text, heads));
        if (pure) {
          core.problem({heads, lenQ: q, lenK: k, qOffset: offset, terms});
          const data = core.rows('bias', head), {meaning} = core;
          return {
            data,
            meaning,
            expressions: (r, c) =>
              core.problem({heads, lenQ: q, lenK: k, qOffset: offset, terms}).expressions(head, r, c).slice(first),
            value: meaning && meaning !== 'random' ? meaning : 'bias',
            columns: k,
            curve:
              shown.map(n => n === head ? data.subarray(query * k, (query + 1) * k) : core.rows('bias', n, query, 1)),
            all: () => {
              core.problem({heads, lenQ: q, lenK: k, qOffset: offset, terms});
              return core.bias();
            }
          };
        }
        const anywhere = texts.every(text => core.kindOf[nameOf(text)].ignoresOffset),
              id = JSON.stringify([texts, heads, q, k, anywhere || offset, head, state.words]);
        if (!effects.has(id)) {
          let data, how;
          for (how of changes) {
            data = effect(terms, how, state, head);
            if (data.some(x => x !== 0)) break;
          }
          if (!data.some(x => x !== 0)) data = effect(terms, how = changes[0], state, head);
          if (effects.size > 3) effects.clear();
          effects.set(
            id, {data, how, meaning: core.meaning, before: content(state).plain[`${how.what} ${head} 0 ${q}`]});
        }
        const {data, how, meaning, before} = effects.get(id), columns = data.length / q;
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
          note: how.said?.(texts.map(nameOf).filter(name => !core.kindOf[name].bias).join(' and ')),
          curve: shown.map(n => n === head ? data.subarray(query * columns, (query + 1) * columns) :
                                             effect(terms, how, state, n, query, 1)),
          all: () => {
            const all = new Float64Array(heads * data.length);
            for (let n = 0; n < heads; n++) all.set(effect(terms, how, state, n), n * data.length);
            return all;
          }
        };
      };
      const found = {a: of([a])};
      if (b) {
        found.b =
          of(['log,lambda=0', b], 1);  // the term must be the second, because its random arrays depend on its index
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
      }
      const scales = {};  // maps of the same kind share the colours
      for (const {data, what = 'scores'} of Object.values(found)) (scales[what] ??= []).push(data);
      for (const what of Object.keys(scales)) scales[what] = extent(scales[what]);
      for (const [key, map] of Object.entries(maps)) {
        map.element.hidden = !found[key];
        if (!found[key]) continue;
        const text = key === 'b' ? b :
          key === 'a'            ? a :
                                   kinds[key],
              shown = text === whole ? 't5, trained table' : text;
        const {data, columns, value, across = 'key', expressions, what = 'scores'} = found[key],
                                                                         [low, high] = scales[what];
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
      const pure = both.every(bias), needsFile = !pure || both.some(text => Object.keys(namesIn(core, text)).length),
            random = both.some(text => randomArrays(core, text));
      const has = {heads, lenQ: q, lenK: k, qOffset: offset, terms: both.map(text => given(text, heads))};
      core.problem(pure ? has : {...has, dimK: content(state).width});
      const made = both.map((text, n) => core.kindOf[nameOf(text)].arrays.flatMap(({name}, index) => {
        const array = needsFile ? given(text, heads).arrays?.[name] ?? core.filled(n, index) : null;
        const called = namesIn(core, text)[name] ?? `${nameOf(text)}${n && nameOf(a) === nameOf(b) ? 2 : ''}.${name}`;
        return array ? [{...array, index, array: name, name: called}] : [];
      }));
      const named =
        both.map((text, n) => withNames(text, Object.fromEntries(made[n].map(({array, name}) => [array, name]))));
      current = {k};
      arrays = () => {
        const of = content(state),
              all = Object.fromEntries(made.flat().map(({name, shape, data}) => [name, {shape, data}]));
        return {
          q: {shape: [1, heads, q, of.width], data: of.q},
          k: {shape: [1, heads, k, of.width], data: of.k},
          v: {shape: [1, heads, k, of.width], data: of.v},
          ...all
        };
      };
      keep.hidden = !needsFile;
      settings.of('words').element.hidden = pure;
      const said = {
        entry: 'Without a table, entry c is the number c, so the map shows which entry each pair reads.',
        bucket: 'Without a table, the entry of bucket c is the number c, so the map shows the bucket of each pair.',
        random: needsFile ? 'Without arrays, the numbers are random, and the same each time.' :
                            'Without arrays, the numbers are random, and the same as on the command line.'
      };
      const magnitude = data => Math.max(...extent([data]).map(Math.abs)),
            faint =
              ['a', 'b']
                .filter(key => b &&
                    8 * magnitude(found[key].data) < Math.max(...scales[found[key].what ?? 'scores'].map(Math.abs)))
                .map(key => kinds[key]);
      const results = both.map((text, n) => found[n ? 'b' : 'a']);
      note.textContent =
        [
          pure ? '' :
                 'The maps show values with the terms minus values without them, for words as vectors of 8 numbers.',
          both.includes(whole) ? `The table is trained: layer 0 of a byte model with ${trained.shape[1]} heads${
                                   heads > trained.shape[1] ?
                                     ', which repeat' :
                                     ''}. It is causal: all later keys share the bucket of offset 0.` :
                                 '',
          faint.length ?
            `The maps share one scale. ${faint.join(' and ')} ${
              faint.length > 1 ? 'look' : 'looks'} pale: the numbers are small beside those of the other maps.` :
            '',
          ...results.map(result => result.note), ...results.map(result => said[result.meaning])
        ].filter(Boolean)
          .filter((x, n, all) => all.indexOf(x) === n)
          .join(' ');
      const own = views.filter(view => both.some(text => view.terms?.includes(nameOf(text))));
      more.replaceChildren(...own.flatMap(
        view => [`More about ${both.map(nameOf).filter(name => view.terms.includes(name)).join(' and ')}: view `,
          viewLink(view, view.title), '. ']));
      const main = b ? found.sum : found.a, across = main.across ?? 'key',
            x = Float64Array.from({length: main.columns}, (_, j) => across === 'key' ? j - query - offset : j);
      const single = Object.keys(found).length === 1;
      first.classList.toggle('single', single);
      curve.replaceChildren(chart({
        title: `${b ? 'A + B' : 'A'} over the ${across === 'key' ? 'offset' : across}, query ${query}${some}`,
        xLabel: across === 'key' ? 'offset = key − query' : across,
        yLabel: main.value,
        ...(single && roomy.matches ? beside() : {}),
        series: shown.map((n, m) => ({name: `head ${n}`, x, y: main.curve[m]}))
      }));
      const saved = key => ({
        figure: maps[key],
        lines: heads * q * found[key].columns,
        *
          csv() {
            const {columns, across, what, all} = found[key], every = all(), one = q * columns;
            yield ['head', 'query', across ?? 'key', what ? 'change' : 'bias'];
            for (let n = 0; n < every.length; n++)
              yield [Math.floor(n / one), Math.floor(n % one / columns), n % columns, every[n]];
          }
      });
      const result = {
        name: `bias-${both.map(nameOf).join('-')}`,
        saves: Object.fromEntries(Object.keys(found).map(key => [key, saved(key)])),
        docs: both.map(nameOf),
        numbers: {
          map: () => [...(found[state.save] ?? found.a).data],
          curves: () => shown.map((n, m) => [n, ...main.curve[m]])
        }
      };
      const python = words => words.map(([name, x]) => [name, `file[${pythonString(x)}]`]),
            offsets = offset ? ['--q-offset', offset] : [];
      const inFile =
        named.map((text, n) => ({text, arrays: Object.fromEntries(python(made[n].map(x => [x.array, x.name])))}));
      const opened = 'import numpy as np, relpos\nfrom safetensors.numpy import load_file\nfile = ' +
        'load_file("relpos-term.safetensors")\n';
      if (!pure) {
        const common =
          ['relpos', 'explain', '--input', 'relpos-term.safetensors', '--head', head, '--query', query, ...offsets];
        const {what} = main, call = {scores: 'score', weights: 'weights', out: 'out'}[what];
        return {
          ...result,
          code: {
            CLI: `# “Save the arrays” writes relpos-term.safetensors\n# row ${query} of the map of ${
              b ? 'A + B' : 'A'}: ${call} of the first minus that of the second\n${shell([
              ...common, ...named.flatMap(text => optionOf(core, text))
            ])}\n${shell([...common, '--no-bias'])}\n`,
            Python: `${opened}q, k, v = file["q"], file["k"], file["v"]\nat = dict(query=${query}, head=${head}${
              offset ? `, q_offset=${offset}` : ''})\nwith_terms = relpos.explain(q, k, v, **at, ${
              pythonOptions(core, facts, inFile).join(', ')})\nprint((with_terms.${
              call} - relpos.explain(q, k, v, **at).${call}).round(4))\n`,
            C: `/* the map shows the result with the terms minus the result with desc.n_terms = 0 */\n${rowFunction({
              heads,
              kvHeads: heads,
              lenQ: q,
              lenK: k,
              dim: content(state).width,
              head,
              query,
              offset,
              terms: named.map((text, n) => ({text, arrays: made[n]}))
            })}`
          }
        };
      }
      const cli = shell([
        'relpos', 'bias', ...named, ...(needsFile ? ['--input', 'relpos-term.safetensors'] : []), '--q', q, '--k', k,
        '--heads', heads, '--head', head, ...offsets
      ]);
      return {
        ...result,
        code: {
          CLI: `${needsFile ? '# “Save the arrays” writes relpos-term.safetensors\n' : ''}${cli}\n${
            cli} --json     # every number\n`,
          Python: `${needsFile ? opened : 'import numpy as np, relpos\n'}${
            random && !needsFile ? '# random numbers: replace them by your arrays\n' : ''}term = ${
            needsFile ? inFile.map(({text, arrays}) => pythonTerm(core, facts, text, arrays)).join(' + ') :
                        both.map(text => pythonTerm(core, facts, text)).join(' + ')}\nprint(term.matrix(${q}, ${
            k}, heads=${heads}${offset ? `, q_offset=${offset}` : ''})[${head}].round(4))\n`,
          C: (random || needsFile ? '/* numbers 0, 1, 2, ...: replace them by your arrays */\n' : '') + program({
            desc: [1, heads, q, k, 1],
            settings: ['dtype = RP_F64', ...(offset ? [`q_offset = ${offset}`] : [])],
            terms: both,
            arrays: needsFile ?
              made.flatMap((list, term) => list.map(({index, array, shape}) => ({term, index, name: array, shape}))) :
              cArrays(core, both),
            call: [
              `static double bias[${heads}][${q}][${k}];`,
              `rp_array to = rp_array_of(bias, RP_F64, 3, (int64_t[]){${heads}, ${q}, ${k}});`,
              'if (rp_bias(plan, &t, 0, &to) != RP_OK)', '    return puts(rp_last_error()), 1;',
              `for (int j = 0; j < ${k}; j++)`, `    printf("%.4f ", bias[${head}][${query}][j]);`, 'puts("");'
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
