// shaw.js -- the view of Shaw's vectors for offsets: clipping, tables, scores of content and of position.
// SPDX-License-Identifier: Apache-2.0
import {chart} from '../chart.js';
import {nested, program, shell} from '../code.js';
import {frame} from '../frame.js';
import {HeatMap} from '../heat.js';
import {controls, extent, fixed, h, rowsOf, table} from '../ui.js';

export const shaw = {
  id: 'shaw',
  title: 'Shaw: a vector for every clipped offset',
  name: 'Shaw',
  terms: ['relkey', 'relval'],  // the view Bias links here for these
  defaults: {clip: 3, length: 10, limit: 4, trained: 128, run: 256, query: 0},

  make({core, facts, change}) {
    const {SHAW_Q: Q, SHAW_K: K, SHAW_V: V, SHAW_A_K: AK, SHAW_A_V: AV} = facts.golden, n = Q.shape[0], width = Q.shape[1],
                                                                    maxClip = (AK.shape[0] - 1) / 2;
    const settings = controls(
      [
        {
          key: 'clip',
          label: 'Clip of the example: offsets −k … k have vectors',
          type: 'range',
          min: 0,
          max: maxClip,
          lower: 0,
          upper: maxClip
        },
        {key: 'query', label: 'Query of the example', type: 'range', min: 0, max: n - 1, lower: 0, upper: n - 1},
        {key: 'length', label: 'Length of the clip map', type: 'range', min: 1, max: 128, lower: 1, upper: 512},
        {key: 'limit', label: 'Clip of the clip map', type: 'range', min: 0, max: 64, lower: 0, upper: 65536},
        {key: 'trained', label: 'Trained length', type: 'range', min: 1, max: 1024, lower: 1, upper: 65536},
        {key: 'run', label: 'Length it runs at', type: 'range', min: 1, max: 4096, lower: 1, upper: 65536},
      ],
      change);
    const map = (title, more) => new HeatMap({title, onpick: r => change({query: r}), ...more});
    const clip = new HeatMap({title: 'Clipped offset of every pair', value: 'clipped offset'});
    const tables = [
      new HeatMap({title: 'Vectors for keys', rows: 'offset', columns: 'channel', value: 'number', ratio: 1.2}),
      new HeatMap({title: 'Vectors for values', rows: 'offset', columns: 'channel', value: 'number', ratio: 1.2})
    ];
    const scores = [map('Scores by content'), map('Scores by position'), map('Weights by content alone'), map('Weights')];
    const numbers = h('div'), pairs = h('div'), profile = h('div');
    const output = h('div', {}, h('h3', {}, 'Six words with seven vectors'),
      h('div', {class: 'panels'}, scores.map(m => m.element), tables.map(m => m.element)), numbers, profile,
      h('h3', {}, 'Clipping'), h('div', {class: 'panels'}, clip.element), h('h3', {}, 'At a length beyond training'), pairs);

    const compute = state => {
      const c = Math.min(state.clip, maxClip), first = (maxClip - c) * width, size = (2 * c + 1) * width,
            clipped = x => ({shape: [2 * c + 1, width], data: x.data.slice(first, first + size)});
      settings.set(state);
      const terms = [
        {text: `relkey,left=${c},right=${c}`, arrays: {table: clipped(AK)}},
        {text: `relval,left=${c},right=${c}`, arrays: {table: clipped(AV)}}
      ];
      const of = terms => core.problem({lenQ: n, lenK: n, dimK: width, terms, q: Q.data, k: K.data, v: V.data});
      of([]);
      const plain = Q.data.slice(0, n).map((_, i) => core.row(0, i, true));
      of(terms);
      const rows = plain.map((_, i) => core.row(0, i, true)), mean = core.attend('profile'), scale = 1 / Math.sqrt(width);
      const flat = call => Float64Array.from(rows.flatMap((row, i) => [...call(row, i)]));
      const content = flat((_, i) => plain[i].scaled),
            position = flat((row, i) => row.scaled.map((x, j) => x - plain[i].scaled[j])), weights = flat(row => row.weights),
            before = flat((_, i) => plain[i].weights);
      const query = Math.min(state.query, n - 1), [, high] = extent([weights, before]);
      [content, position, before, weights].forEach((data, m) => scores[m].show({
        data,
        rows: n,
        columns: n,
        cursor: [query, scores[m].cursor[1]],
        value: m < 2 ? 'score' : 'weight',
        ...(m < 2 ? {diverging: true} : {low: 0, high, diverging: false})
      }));
      [AK, AV].forEach((x, m) => tables[m].show({
        data: clipped(x).data,
        rows: 2 * c + 1,
        columns: width,
        label: (r, k, y) => `offset ${r - c}, channel ${k}: ${fixed(y)}`
      }));
      const names = [...Array(n).keys()].map(String);
      numbers.replaceChildren(table([`query ${query}`, ...names],
                                [
                                  ['content', ...content.slice(query * n, (query + 1) * n)],
                                  ['position', ...position.slice(query * n, (query + 1) * n)],
                                  ['weights, content alone', ...before.slice(query * n, (query + 1) * n)],
                                  ['weights', ...weights.slice(query * n, (query + 1) * n)]
                                ]),
        table(['Weights', ...names], rowsOf(names, [...weights], n)));
      const offsets = Float64Array.from({length: 2 * n - 1}, (_, t) => t - (n - 1)), figure = chart({
        title: 'Mean weight of every offset',
        xLabel: 'offset = key − query',
        yLabel: 'mean weight',
        series: [{name: '', x: offsets, y: mean, style: 'bars'}]
      });
      profile.replaceChildren(figure);
      const {length, limit} = state;
      core.problem({lenQ: length, lenK: length, terms: [`table,left=${limit},right=${limit}`]});
      clip.show({
        data: core.bias().map(x => x - limit),
        rows: length,
        columns: length,
        diverging: true,
        label: (r, k, x) => `query ${r}, key ${k}: offset ${k - r}, clipped ${x}`
      });
      const {trained, run} = state, seen = Math.min(trained, run), all = run * run, new_ = all - seen * seen,
                      far = Math.max(0, run - trained) * (Math.max(0, run - trained) + 1);
      const count = x => x.toLocaleString('en'), share = x => `${(100 * x / all).toFixed(1)} %`;
      pairs.replaceChildren(table(['', 'pairs', 'share'],
                              [
                                ['all pairs of positions', count(all), '100.0 %'],
                                [`pairs of positions that a text of ${trained} tokens does not have`, count(new_), share(new_)],
                                ['pairs whose offset such a text does not have', count(far), share(far)],
                                [`pairs without a vector in a table clipped at ${limit}`, '0', '0.0 %']
                              ]),
        h('p', {class: 'note'},
          'The pairs of the second line never occurred in training with a table of absolute positions. A clipped table has a trained vector for every offset, if training reached the clip.'));
      const shape = [1, 1, n, width], ak = clipped(AK), av = clipped(AV);
      return {
        name: 'shaw',
        figure: scores[3],
        docs: ['relkey', 'relval'],
        numbers: {content, position, weights, before, mean, pairs: [new_, all, far], out: rows.map(row => [...row.out])},
        csv: () => [['query', 'key', 'content', 'position', 'weight'],
          ...[...weights].map((w, x) => [Math.floor(x / n), x % n, content[x], position[x], w])],
        code: {
          CLI: `python3 - <<'END'\nimport numpy as np\nnp.savez("shaw.npz", q=${nested(Q.data, shape)}, k=${
                 nested(K.data, shape)}, v=${nested(V.data, shape)},\n         a_k=${nested(ak.data, ak.shape)}, a_v=${
                 nested(av.data, av.shape)})\nEND\n` +
            shell([
              'relpos', 'explain', '--input', 'shaw.npz', '--query', query, '--relkey', `table=a_k,left=${c},right=${c}`,
              '--relval', `table=a_v,left=${c},right=${c}`
            ]) +
            '\n',
          Python: `import numpy as np, relpos\nq, k, v = (np.array(x) for x in (${
                      [Q, K, V].map(x => nested(x.data, shape)).join(',\n    ')}))\na_k = np.array(${
                    nested(ak.data, ak.shape)})\na_v = np.array(${nested(av.data, av.shape)})\n` +
            `print(relpos.explain(q, k, v, query=${query}, relkey=relpos.RelKey(a_k, left=${c}, right=${
              c}), relval=relpos.RelValue(a_v, left=${c}, right=${c})))\n`,
          C: program({
            desc: [1, 1, n, n, width],
            settings: ['dtype = RP_F64'],
            terms: terms.map(t => t.text),
            qkv: {q: {shape, data: Q.data}, k: {shape, data: K.data}, v: {shape, data: V.data}},
            arrays: [{term: 0, index: 0, name: 'a_k', ...ak}, {term: 1, index: 0, name: 'a_v', ...av}],
            call: [
              `double weights[${n}];`, 'rp_row row = {.weights = weights};',
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
      about:
        'Each offset, clipped to a limit, has a learned vector for keys and one for values. The score of a pair is that of its content plus the product of the query with the vector of its offset.',
      formula: 's[i,j] = ⟨q_i, k_j + a_K[clip(j − i)]⟩ / √d      out_i = Σ_j w[i,j] (v_j + a_V[clip(j − i)])'
    });
  },
};
