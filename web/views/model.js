// model.js -- heads of a trained model on its text, or of a file of one's own; terms change where they look. SPDX-License-Identifier: Apache-2.0
import {chart} from '../chart.js';
import {optionOf, shell} from '../code.js';
import {CAUSAL} from '../core.js';
import {readArrays, safetensorsOf} from '../files.js';
import {frame} from '../frame.js';
import {HeatMap} from '../heat.js';
import {nameOf, plainTerms, startText, termEditor} from '../term.js';
import {controls, download, fixed, h, table} from '../ui.js';

const most = 1024;  // tokens: the maps have their square

export const model = {
  id: 'model',
  title: 'A real model: its heads, and what a term does to them',
  name: 'Model',
  defaults: {a: 't5,table=t5_table', head: 3, query: 17, causal: false},

  make({core, facts, change, state: current}) {
    const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
    const own = () => {
      const arrays = new Map(['q', 'k', 't5_table'].map(
        name => [name, {shape: facts.model[name].shape, type: 'f16', bytes: bytes(facts.model[name].f16)}]));
      return take({arrays, tokens: facts.model.tokens}, 'all-MiniLM-L6-v2 on the Gettysburg Address, layer 3');
    };
    /** The first batch entry of a file's q and k as doubles, and its other arrays. */
    const take = ({arrays, tokens}, title) => {
      const [q, k] = ['q', 'k'].map(name => arrays.get(name) ?? (() => {
        throw new Error(`the file was not taken: it has no array ${name} (it has ${
            [...arrays.keys()].join(', ') || 'none of floating numbers'})`);
      })());
      for (const [name, x] of [['q', q], ['k', k]])
        if (x.shape.length !== 4 || x.shape.some(n => n < 1))
          throw new Error(
            `the file was not taken: ${name} has the shape ${x.shape.join('×')}; batch, heads, length, width are needed`);
      const [, heads, lenQ, dim] = q.shape, [, kvHeads, lenK, dimK] = k.shape;
      if (dim !== dimK || heads % kvHeads)
        throw new Error(`the file was not taken: q is ${q.shape.join('×')} and k ${
          k.shape.join('×')}; widths are equal and heads of k divide those of q`);
      if (lenQ > most || lenK > most)
        throw new Error(`the file was not taken: ${Math.max(lenQ, lenK)} tokens, this page shows ${most}`);
      const data = (x, n) => core.doubles(x.bytes, x.type, n), others = {};
      for (const [name, x] of arrays)
        if (name !== 'q' && name !== 'k' && name !== 'v' && x.shape.length <= 4)
          others[name] = {shape: x.shape, data: data(x, x.shape.reduce((a, b) => a * b, 1))};
      const names = tokens?.length === lenK ? tokens : [...Array(lenK).keys()].map(String);
      return {
        title,
        heads,
        kvHeads,
        lenQ,
        lenK,
        dim,
        q: data(q, heads * lenQ * dim),
        k: data(k, kvHeads * lenK * dim),
        others,
        tokens: names
      };
    };
    let source = own();
    const plainNames = plainTerms(core, facts);
    const tabled = core.kinds.filter(kind => kind.bias && kind.arrays[0]?.name === 'table' && 'buckets' in kind.defaults)
                     .map(kind => kind.name);
    const editor = termEditor({
      core,
      facts,
      key: 'a',
      legend: 'Term',
      names: [...plainNames, ...tabled],
      none: true,
      change,
      start: name => startText(core, facts, name) + (tabled.includes(name) ? ',table=t5_table' : '')
    });
    const problem = h('p', {class: 'problem', role: 'alert'}), title = h('p', {class: 'note', role: 'status'});
    const open = async file => {
      try {
        const found = take(await readArrays(file), file.name);  // what fails leaves the page as it was
        source = found;
        problem.textContent = '';
        change({
          head: 0,
          query: Math.min(current().query, source.lenQ - 1),
          a: current().a.includes('=t5_table') && !found.others.t5_table ? '' : current().a
        });
      } catch (error) {
        problem.textContent =
          error instanceof RangeError ? 'the file was not taken: a number in it points outside of it' : error.message;
      }
    };
    const input = h('input', {
      type: 'file',
      accept: '.safetensors,.npz',
      id: 'file',
      onchange: () => {
        if (input.files[0]) open(input.files[0]);
        input.value = '';
      }
    });
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
        'Your own heads: drop a .safetensors or .npz file with q and k (batch, heads, length, width). It stays on this machine. A term as written may name its arrays: relkey,table=NAME,left=8,right=8.'),
      input, problem,
      h('div', {class: 'row'},
        h('button', {
          type: 'button',
          onclick: () => {
            source = own();
            problem.textContent = '';
            change({...model.defaults});
          }
        },
          'Back to the model'),
        h('button', {type: 'button', onclick: () => download('relpos-heads.safetensors', file())}, 'Save the arrays')));
    const file = () => safetensorsOf({
      q: {shape: [1, source.heads, source.lenQ, source.dim], data: source.q},
      k: {shape: [1, source.kvHeads, source.lenK, source.dim], data: source.k},
      v: {shape: [1, source.kvHeads, source.lenK, source.dim], data: source.k},
      ...source.others
    },
      source.tokens);
    const settings = controls(
      [
        {key: 'head', label: 'Head', type: 'range', min: 0, max: 11, least: 0},
        {key: 'query', label: 'Query word', type: 'range', min: 0, max: 330, least: 0},
        {key: 'causal', label: 'causal: no key after the query', type: 'check'},
      ],
      change, editor.element, drop);
    const words = h('div', {class: 'words', role: 'group', 'aria-label': 'Words; darker: more weight. Choose the query'}),
          heavy = h('div'), profile = h('div');
    const maps = ['Without a term', 'With the term', 'Difference'].map(
      name => new HeatMap({title: name, value: 'weight', onpick: r => change({query: r})}));
    const output = h('div', {}, title, words, heavy, profile, h('div', {class: 'panels'}, maps.map(map => map.element)));
    let drawn = null, found = null;

    const compute = state => {
      const {heads, kvHeads, lenQ, lenK, dim, q, k, others, tokens} = source, head = Math.min(state.head, heads - 1),
                                                            query = Math.min(Math.max(0, state.query), lenQ - 1), {a} = state;
      settings.set({...state, head, query});
      editor.set(state);
      settings.of('head').limit(heads - 1);
      settings.of('query').limit(lenQ - 1);
      const arraysOf = text => Object.fromEntries(core.kindOf[nameOf(text)]?.arrays.flatMap(({name, optional}) => {
        const named = new RegExp(`,${name}=([^,]+)`).exec(text)?.[1];
        if (!named && optional) return [];
        if (!named)
          throw new Error(`${nameOf(text)} needs an array: write ,${name}=NAME with one of the file's (${
            Object.keys(others).join(', ') || 'it has none'})`);
        if (!Object.hasOwn(others, named))
          throw new Error(`no array of the file is called ${named} (there are: ${Object.keys(others).join(', ') || 'none'})`);
        return [[name, others[named]]];
      }) ??
        []);
      const of = (terms) => {
        core.problem({heads, kvHeads, lenQ, lenK, dimK: dim, terms, masks: state.causal ? [CAUSAL] : [], q, k});
        const all = new Float64Array(lenQ * lenK);
        for (let i = 0; i < lenQ; i++) {
          const row = core.row(head, i);
          for (let j = 0; j < lenK; j++) all[i * lenK + j] = row.score[j] === -Infinity ? -Infinity : row.weights[j];
        }
        return all;
      };
      const key = JSON.stringify([source.title, source.lenQ, head, a, state.causal]);
      if (key !== drawn) {  // another query needs no new weights
        const fresh = {plain: of([]), with: a ? of([{text: a, arrays: arraysOf(a)}]) : null};
        found = fresh, drawn = key;
      }
      const weights = found.with ?? found.plain, zero = x => x === -Infinity ? 0 : x,
            row = weights.subarray(query * lenK, (query + 1) * lenK).map(zero),
            plain = found.plain.subarray(query * lenK, (query + 1) * lenK).map(zero);
      title.textContent =
        `${source.title}: ${heads} heads, ${lenK} tokens. Query ${query}: “${tokens[lenQ === lenK ? query : 0] ?? query}”.`;
      const top = Math.max(...row) || 1;
      if (words.children.length !== lenK || words.source !== source) {
        words.source = source;
        words.replaceChildren(...tokens.map(
          (word, j) => h('button', {type: 'button', onclick: () => change({query: Math.min(j, source.lenQ - 1)})}, word)));
      }
      [...words.children].forEach((button, j) => {
        button.style.background = `color-mix(in srgb, var(--s1) ${Math.round(55 * Math.sqrt(row[j] / top))}%, var(--bg))`;
        button.style.color = '';
        button.title = `${tokens[j]}: ${fixed(row[j])}, without a term ${fixed(plain[j])}`;
        button.setAttribute('aria-pressed', j === query);
        if (j === query) button.style.background = 'var(--accent)', button.style.color = 'var(--on-accent)';
      });
      const order = data => [...data.keys()].sort((x, y) => data[y] - data[x]).slice(0, 8), before = order(plain),
            after = order(row);
      heavy.replaceChildren(h('h3', {}, 'The heaviest keys'),
        table(['', 'without a term', 'offset', 'weight', a ? `with ${nameOf(a)}` : '', 'offset', 'weight'],
          before.map((j, n) => [String(n + 1), tokens[j], String(j - query), fixed(plain[j]), tokens[after[n]],
                       String(after[n] - query), fixed(row[after[n]])])));
      const x = Float64Array.from({length: lenK}, (_, j) => j - query), figure = chart({
        title: `Weights of query ${query} over the offset`,
        xLabel: 'offset = key − query',
        yLabel: 'weight',
        low: 0,
        series: [{name: 'without a term', x, y: plain}, ...(found.with ? [{name: a, x, y: row}] : [])]
      });
      profile.replaceChildren(figure);
      const cap = data => {
        const some = [...data].filter(y => y > 0).sort((y, z) => y - z);
        return some[Math.floor(some.length * 0.99)] || 1;
      }, label = (r, c, y) => `“${tokens[r] ?? r}” → “${tokens[c]}”, offset ${c - r}: ${y > -Infinity ? fixed(y) : 'masked'}`;
      if (maps.drawn !== found) {
        maps.drawn = found;
        const high = Math.max(cap(found.plain), cap(weights)),
              difference = weights.map((w, n) => w === -Infinity ? w : w - found.plain[n]), far = cap(difference.map(Math.abs));
        [found.plain, weights, difference].forEach((data, n) => {
          maps[n].element.hidden = n > 0 && !found.with;
          maps[n].show({
            data,
            rows: lenQ,
            columns: lenK,
            cursor: [query, maps[n].cursor[1]],
            label,
            ...(n < 2 ? {low: 0, high, diverging: false} : {low: -far, high: far, diverging: true})
          });
        });
      } else {
        maps.forEach(map => {
          map.cursor = [query, map.cursor[1]];
          map.paint();
        });
      }
      const option = a ? optionOf(core, a) : ['--no-bias'], arrays = a ? Object.entries(arraysOf(a)) : [];
      const words_ = text =>
        text.split(',').slice(1).map(p => p.split('=')).filter(([k2]) => !arrays.some(([name]) => name === k2)).map(([k2,
          v]) => `${k2 === 'lambda' ? 'lambda_' : k2}=${Number.isNaN(+v) ? `"${v}"` : v}`);
      const keyword = a && !core.kindOf[nameOf(a)].bias ? nameOf(a) : 'bias';
      return {
        name: 'model',
        figure: maps[found.with ? 1 : 0],
        docs: a ? [nameOf(a)] : [],
        numbers: {row: [...row], plain: [...plain], weights: () => [...weights], file},
        csv: () => [
          ['key', 'word', 'offset', 'without', 'with'], ...tokens.map((word, j) => [j, word, j - query, plain[j], row[j]])],
        code: {
          CLI: `# “Save the arrays” writes relpos-heads.safetensors; v is k again there: only weights are looked at\n${shell([
            'relpos', 'explain', '--input', 'relpos-heads.safetensors', '--head', head, '--query', query, ...option,
            state.causal ? '--causal' : null, '--brief'
          ])}\n`,
          Python:
            `import relpos\nfrom safetensors.numpy import load_file\nfile = load_file("relpos-heads.safetensors")\nprint(relpos.explain(file["q"], file["k"], file["v"], query=${
              query}, head=${head}${state.causal ? ', causal=True' : ''}` +
            (a ? `,\n    ${keyword}=relpos.${facts.terms[nameOf(a)].python}(${
                     [...arrays.map(([name]) => `file["${new RegExp(`,${name}=([^,]+)`).exec(a)[1]}"]`), ...words_(a)].join(
                       ', ')})` :
                 '') +
            '))\n',
          C: `#include <relpos/relpos.h>\n\n/* weights [${lenK}] of query ${query}, head ${head}; q [1][${heads}][${lenQ}][${
               dim}], k [1][${kvHeads}][${lenK}][${dim}]${
               arrays.map(([name, x]) => `, ${name} [${x.shape.join('][')}]`).join('')} */\n` +
            `rp_status look(const double *q, const double *k, ${
              arrays.map(([name]) => `const double *${name}, `)
                .join('')}double *weights)\n{\n    rp_desc desc = rp_desc_init(1, ${heads}, ${lenQ}, ${lenK}, ${
              dim});\n    rp_tensors t = rp_tensors_init();\n    rp_row row = {.weights = weights};\n    rp_plan *plan;\n` +
            `    desc.dtype = RP_F64, desc.kv_heads = ${kvHeads};\n${
              state.causal ? '    rp_mask mask = {.kind = RP_MASK_CAUSAL};\n    desc.masks = &mask, desc.n_masks = 1;\n' : ''}` +
            (a ?
                `    rp_term term;\n    char names[RP_MAX_ARRAYS][RP_NAME_MAX];\n    rp_status status = rp_term_parse("${
                  a}", &term, names);\n    if (status != RP_OK)\n        return status;\n    desc.terms = &term, desc.n_terms = 1;\n` :
                '    rp_status status;\n') +
            `    t.q = rp_array_of(q, RP_F64, 4, (int64_t[]){1, ${heads}, ${lenQ}, ${
              dim}});\n    t.k = rp_array_of(k, RP_F64, 4, (int64_t[]){1, ${kvHeads}, ${lenK}, ${dim}});\n` +
            arrays
              .map(
                ([name, x]) => `    t.term[0][${core.kindOf[nameOf(a)].arrays.findIndex(y => y.name === name)}] = rp_array_of(${
                  name}, RP_F64, ${x.shape.length}, (int64_t[]){${x.shape.join(', ')}});\n`)
              .join('') +
            `    status = rp_plan_create(&plan, &desc);\n    if (status == RP_OK) {\n        status = rp_attend_row(plan, &t, 0, ${
              head}, ${query}, &row);\n        rp_plan_destroy(plan);\n    }\n    return status;\n}\n`,
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
        'Queries and keys of a trained sentence encoder on the Gettysburg Address, rounded to 16 bits. It has no position term in its attention. Add one and see where its heads then look; the table here is made up, in the shape of T5’s.',
      formula: 'w = softmax(Q Kᵀ / √d + B)'
    });
  },
};
