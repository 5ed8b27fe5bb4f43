// bias.js -- what a term adds to the scores; two terms, their sum and their difference. SPDX-License-Identifier: Apache-2.0
import {chart} from '../chart.js';
import {cArrays, program, pythonTerm, randomArrays, shell} from '../code.js';
import {frame} from '../frame.js';
import {HeatMap} from '../heat.js';
import {gridOf, nameOf, termEditor} from '../term.js';
import {controls, fixed, h} from '../ui.js';

const kinds = {
  a: 'A',
  b: 'B',
  sum: 'A + B',
  difference: 'A − B'
};

export const bias = {
  id: 'bias',
  title: 'Bias: what a term adds to the scores',
  name: 'Bias',
  defaults: {a: 'alibi', b: '', q: 64, k: 64, heads: 8, head: 0, query: 32, offset: 0, save: 'a'},

  make({core, facts, change}) {
    const names = core.kinds.filter(kind => kind.bias && kind.name !== 'dense').map(kind => kind.name);
    const set = (key, value) => {
      const patch = {[key]: value}, grid = (key === 'a' || key === 'b') && gridOf(value);
      if (grid && grid.tokens <= 4096) Object.assign(patch, {q: grid.tokens, k: grid.tokens, offset: 0});
      change(patch);
    };
    const editors = [
      termEditor({core, facts, key: 'a', legend: 'Term A', names, change: set}),
      termEditor({core, facts, key: 'b', legend: 'Term B', names, none: true, change: set})
    ];
    const settings = controls(
      [
        {key: 'q', label: 'Queries', type: 'range', min: 1, max: 512, least: 1, most: 4096},
        {key: 'k', label: 'Keys', type: 'range', min: 1, max: 512, least: 1, most: 4096},
        {key: 'heads', label: 'Heads', type: 'range', min: 1, max: 32, least: 1, most: 256},
        {key: 'head', label: 'Head of the maps', type: 'range', min: 0, max: 7, least: 0},
        {key: 'query', label: 'Query of the curve', type: 'range', min: 0, max: 63, least: 0},
        {key: 'offset', label: 'Position of query 0', type: 'range', min: 0, max: 64},
      ],
      set, editors.map(editor => editor.element));
    const pick = (r, c) => change({query: r});
    const maps = Object.fromEntries(Object.entries(kinds).map(([key, title]) => [key, new HeatMap({title, onpick: pick})]));
    const curve = h('div'), note = h('p', {class: 'note'});
    const output = h('div', {}, h('div', {class: 'panels pairs'}, Object.values(maps).map(map => map.element)), note, curve);

    const compute = state => {
      const {a, b, q, k, heads, offset} = state, head = Math.min(state.head, heads - 1), query = Math.min(state.query, q - 1);
      if (heads * q * k > 1 << 24)
        throw new Error(`${heads} heads of ${q} × ${k} biases are more than this page takes: ${1 << 24} numbers`);
      settings.set({...state, head, query});
      editors.forEach(editor => editor.set(state));
      settings.of('head').limit(heads - 1);
      settings.of('query').limit(q - 1);
      const shown = heads <= 8 ? [...Array(heads).keys()] : [...Array(8).keys()].map(n => Math.round(n * (heads - 1) / 7));
      const of = terms => {
        core.problem({heads, lenQ: q, lenK: k, qOffset: offset, terms});
        const data = core.biasOf(head), {meaning} = core;
        return {
          data,
          meaning,
          curve: shown.map(n => n === head ? data.subarray(query * k, (query + 1) * k) : core.biasOf(n, query, 1)),
          all: () => {
            core.problem({heads, lenQ: q, lenK: k, qOffset: offset, terms});
            return core.bias();
          }
        };
      };
      const found = {a: of([a])};
      if (b) {
        found.b = of(['log,lambda=0', b]);  // as second term, as in the sum: random arrays differ from place to place
        found.sum = of([a, b]);
        const minus = (x, y) => x.map((z, n) => z - y[n]);
        found.difference = {data: minus(found.a.data, found.b.data), all: () => minus(found.a.all(), found.b.all())};
      }
      const one = q * k, value = found.a.meaning && found.a.meaning !== 'random' ? found.a.meaning : 'bias';
      for (const [key, map] of Object.entries(maps)) {
        map.element.hidden = !found[key];
        if (!found[key]) continue;
        const shown = key === 'b' ? b : key === 'a' ? a : kinds[key];
        map.show({
          data: found[key].data,
          rows: q,
          columns: k,
          cursor: [query, Math.min(map.cursor[1], k - 1)],
          title: `${key === 'a' || key === 'b' ? kinds[key] + ': ' : ''}${shown}, head ${head} of ${heads}`,
          value: key === 'a' ? value : 'bias',
          label: (r, c, x) => `query ${r}, key ${c}, offset ${c - r - offset}: ${x > -Infinity ? fixed(x) : 'masked'}`
        });
      }
      const both = [a, ...(b ? [b] : [])], random = both.some(text => randomArrays(core, text));
      core.problem({heads, lenQ: q, lenK: k, qOffset: offset, terms: both});
      const said = {
        entry: 'No table is given: entry c holds the number c, so that the map shows which entry a pair reads.',
        bucket: 'No table is given: bucket c holds the number c, so that the map shows the bucket of each pair.',
        random: 'No arrays are given: the numbers are random, the same as those of the command line.'
      };
      note.textContent = both.map((text, n) => said[found[n ? 'b' : 'a'].meaning])
                           .filter(Boolean)
                           .filter((x, n, all) => all.indexOf(x) === n)
                           .join(' ');
      const x = Float64Array.from({length: k}, (_, j) => j - query - offset), main = b ? found.sum : found.a;
      curve.replaceChildren(chart({
        title: `${b ? 'A + B' : 'A'} over the offset, query ${query}`,
        xLabel: 'offset = key − query',
        yLabel: value,
        series: shown.map((n, m) => ({name: `head ${n}`, x, y: main.curve[m]}))
      }));
      const csv = () => {
        const rows = [['head', 'query', 'key', 'bias']];
        const all = found[save].all();
        for (let n = 0; n < all.length; n++) rows.push([Math.floor(n / one), Math.floor(n % one / k), n % k, all[n]]);
        return rows;
      }, save = found[state.save] ? state.save : 'a';
      const cli = shell([
        'relpos', 'bias', ...both, '--q', q, '--k', k, '--heads', heads, '--head', head, ...(offset ? ['--q-offset', offset] : [])
      ]);
      const python = both.map(text => pythonTerm(core, facts, text)).join(' + ');
      return {
        name: `bias-${both.map(nameOf).join('-')}`,
        figure: maps[save],
        csv,
        docs: both.map(nameOf),
        code: {
          CLI: `${cli}\n${cli} --json     # every number\n`,
          Python: `import numpy as np, relpos\n${
            random ? '# arrays that nobody gave are random; yours go in their place\n' : ''}term = ${python}\nprint(term.matrix(${
            q}, ${k}, heads=${heads}${offset ? `, q_offset=${offset}` : ''})[${head}].round(4))\n`,
          C: (random ? '/* arrays that nobody gave count 0, 1, 2, ... here; yours go in their place */\n' : '') + program({
            desc: [1, heads, q, k, 1],
            settings: ['dtype = RP_F64', ...(offset ? [`q_offset = ${offset}`] : [])],
            terms: both,
            arrays: cArrays(core, both),
            call: [
              `static double bias[${heads}][${q}][${k}];`,
              `rp_array to = rp_array_of(bias, RP_F64, 3, (int64_t[]){${heads}, ${q}, ${k}});`,
              'if (rp_bias(plan, &t, 0, &to) != RP_OK)', '    return puts(rp_last_error()), 1;', `for (int j = 0; j < ${k}; j++)`,
              `    printf("%.4f ", bias[${head}][${query}][j]);`, 'puts("");'
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
      settings: settings.element,
      about:
        'A bias depends on where query and key are. Rows are queries, columns keys; the offset is key minus query. Choose a second term to see their sum, as the library adds it, and their difference.',
      formula: 's[i,j] = scale ⟨q_i, k_j⟩ + bias_h(i,j)      offset = j − (i + position of query 0)'
    });
  },
};
