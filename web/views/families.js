// families.js -- the view that compares additive bias, Shaw's vectors, rotation and linear decay on one example.
// SPDX-License-Identifier: Apache-2.0
import {chart} from '../chart.js';
import {nested, program, shell} from '../code.js';
import {frame} from '../frame.js';
import {HeatMap} from '../heat.js';
import {controls, extent, h, table} from '../ui.js';

const thirty =
  3.64756261112416;  // with this base the second of two pairs of channels rotates by 30 degrees for each position: docs/errata.md

export const families = {
  id: 'families',
  title: 'The four families on one example',
  name: 'Families',
  defaults: {strength: 1, query: 0, family: 'additive'},

  make({core, facts, change}) {
    const {VIT3_X: X, VIT3_BIAS_TABLE: T, VIT3_SHAW_TABLE: S, VIT3_SLOPE: M} = facts.golden, n = 3, [width] = [X.shape[1]],
                                                                          reach = (T.shape[0] - 1) / 2, slope = M.data[0];
    const four = Float64Array.from([0, 1, 2].flatMap(i => [0, X.data[2 * i], 0, X.data[2 * i + 1]]));
    const all = {
      content: {title: 'Content alone', terms: () => []},
      additive: {
        title: 'Additive bias',
        terms: s =>
          [{text: `table,left=${reach},right=${reach}`, arrays: {table: {shape: [1, T.shape[0]], data: T.data.map(x => x * s)}}}]
      },
      shaw: {
        title: 'Shaw: vectors for keys',
        terms:
          s => [{text: `relkey,left=${reach},right=${reach}`, arrays: {table: {shape: S.shape, data: S.data.map(x => x * s)}}}]
      },
      rotary: {title: 'Rotary, 30 degrees for each position', terms: () => [`rope,dim=4,base=${thirty},layout=half`], wide: true},
      linear: {title: 'Linear decay with a sign', terms: s => [`linear,left=${slope * s},right=${- slope * s}`]},
    };
    const errata = {rotary: ['0,2', '2,0', '1,2', '2,1']};  // printed .259 and .707 in the notes: docs/errata.md
    const settings = controls(
      [
        {
          key: 'strength',
          label: 'Strength of the positions',
          type: 'range',
          min: 0,
          max: 20,
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
        {key: 'query', label: 'Query of the curve', type: 'range', min: 0, max: n - 1, lower: 0, upper: n - 1},
      ],
      change);
    const tables = h('div', {class: 'panels pairs'}), curve = h('div'), said = h('p', {role: 'status'});
    const maps = ['Content', 'With positions'].map(
      title => new HeatMap({title: `${title}: scores`, value: 'score', onpick: r => change({query: r})}));
    const output = h('div', {}, tables, h('h3', {}, 'Content overridden by position'), said,
      h('div', {class: 'panels'}, maps.map(map => map.element)), curve);
    const names = [...Array(n).keys()].map(i => `token ${i}`);

    const compute = state => {
      const {strength, family, query} = state;
      settings.set(state);
      const of = (key, s) => {
        const {terms, wide} = all[key], x = wide ? four : Float64Array.from(X.data);
        core.problem({lenQ: n, lenK: n, dimK: wide ? 4 : width, scale: 1 / Math.sqrt(2), terms: terms(s), q: x, k: x});
        return [...Array(n).keys()].map(i => core.row(0, i));
      };
      const found = Object.fromEntries(Object.keys(all).map(key => [key, of(key, strength)]));
      tables.replaceChildren(...Object.entries(found).map(
        ([key, rows]) => h('div', {}, h('h3', {}, all[key].title),
          table(['scores', ...names], rows.map((row, i) => [names[i], ...row.score]),
            {digits: 3, mark: (r, c) => errata[key]?.includes(`${r},${c - 1}`) ? 'mark' : ''}),
          table(['weights', ...names], rows.map((row, i) => [names[i], ...row.weights]), {digits: 3}))));
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
        title: `${m ? all[family].title : 'Content alone'}: scores`
      }));
      const best = row => row.weights.indexOf(extent([row.weights])[1]), before = found.content.map(best),
            after = found[family].map(best), moved = after.filter((x, i) => x !== before[i]).length;
      said.textContent = `At strength ${strength} the heaviest key of ${moved} of ${n} queries is not that of content alone: ${
        after.map((x, i) => `token ${i} looks at ${x} (content: ${before[i]})`).join(', ')}.`;
      const steps = [...Array(41).keys()].map(s => s / 2), at = steps.map(s => of(family, s)[query].weights);
      curve.replaceChildren(chart({
        title: `Weights of token ${query} as the positions grow stronger: ${all[family].title}`,
        xLabel: 'strength',
        yLabel: 'weight',
        low: 0,
        high: 1,
        marks: [{x: Math.min(strength, 20), text: ''}],
        series: names.map((name, j) => ({name, x: steps, y: at.map(w => w[j])}))
      }));
      const {terms, wide} = all[family], x = wide ? four : X.data, shape = [1, 1, n, wide ? 4 : width], [term] = terms(strength),
                    text = term.text ?? term, table_ = term.arrays?.table, name = text.split(',')[0];
      const option = core.kindOf[name].bias ? ['--bias', text.replace(name, table_ ? `${name},table=t` : name)] :
                                              [`--${name}`, (table_ ? 'table=t,' : '') + text.slice(name.length + 1)],
            keyword = facts.terms[name].keyword;
      const rest = text.split(',').slice(1).map(parameter => parameter.split('=')).map(([key,
        value]) => `${key}=${Number.isNaN(+value) ? `"${value}"` : value}`);
      return {
        name: 'families',
        figure: maps[1],
        docs: ['table', 'relkey', 'rope', 'linear'],
        numbers: Object.fromEntries(Object.entries(found).map(([key, rows]) => [key, rows.map(row => [...row.score])])),
        csv: () => [['family', 'query', 'key', 'score', 'weight'], ...Object.entries(found).flatMap(([key,
          rows]) => rows.flatMap((row, i) => [...row.score].map((s, j) => [key, i, j, s, row.weights[j]])))],
        code: {
          CLI: `python3 - <<'END'\nimport numpy as np\nx = ${nested(x, shape)}\nnp.savez("three.npz", q=x, k=x, v=x${
                 table_ ? `, t=${nested(table_.data, table_.shape)}` : ''})\nEND\n` +
            shell(['relpos', 'explain', '--input', 'three.npz', '--query', query, ...option, '--scale', Math.SQRT1_2]) + '\n',
          Python: `import numpy as np, relpos\nx = np.array(${nested(x, shape)})\nterm = relpos.${facts.terms[name].class}(${
              [...(table_ ? [`np.array(${nested(table_.data, table_.shape)})`] : []), ...rest].join(
                ', ')})\nprint(relpos.explain(x, x, x, query=${query}, scale=${Math.SQRT1_2}, ${keyword}=term))\n`,
          C: program({
            desc: [1, 1, n, n, wide ? 4 : width],
            settings: ['dtype = RP_F64', `scale = ${Math.SQRT1_2}`],
            terms: [text],
            qkv: {q: {shape, data: x}, k: {shape, data: x}},
            arrays: table_ ? [{term: 0, index: 0, name: 'table', ...table_}] : [],
            call: [
              `double score[${n}];`, 'rp_row row = {.score = score};',
              `if (rp_attend_row(plan, &t, 0, 0, ${query}, &row) != RP_OK)`, '    return puts(rp_last_error()), 1;',
              `for (int j = 0; j < ${n}; j++)`, '    printf("%.4f ", score[j]);', 'puts("");'
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
        'Three tokens, [1, 0], [0, 1] and [1, 1], with four kinds of position terms: scores before the softmax, and weights. Shaded cells differ from the notes that the example is from, whose numbers there are wrong (docs/errata.md). At strength 1 the numbers are those of the example; a stronger table, vector or slope overrides the content.',
      formula:
        'additive: ⟨q, k⟩ / √2 + b[r]    Shaw: ⟨q, k + a[r]⟩ / √2    rotary: ⟨R(i) q, R(j) k⟩ / √2    linear: ⟨q, k⟩ / √2 + slope · r      r = j − i'
    });
  },
};
