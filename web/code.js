// code.js -- writes commands, Python code and C code that reproduce the numbers of a view.
// SPDX-License-Identifier: Apache-2.0
import {maskLines} from './mask.js';

const quote = word => /^[\w@%+=:,./-]+$/.test(word) ? word : `'${String(word).replaceAll('\'', '\'\\\'\'')}'`;

/** Return a text as a string literal, which is valid in Python and in C. */
export const pythonString = text => JSON.stringify(text);
export const cString = text => `"${
  text.replace(/["\\?]/g, '\\$&')
    .replace(/[\0-\x1f\x7f]/g, c => '\\' + c.charCodeAt(0).toString(8).padStart(3, '0'))}"`;

/** Return a finite number as a float literal, which is valid in Python and in C. */
export const real = x => /^-?\d+$/.test(x) ? `${x}.0` : String(x);

/** Return a command line made of these words. Words that are null are omitted. */
export const shell = words => words.filter(word => word !== null && word !== undefined).map(quote).join(' ');

/** Return an array with this shape as nested Python lists. */
export function nested(data, shape) {
  if (shape.length === 1) return `[${[...data].map(real).join(', ')}]`;
  const step = data.length / shape[0];
  return `[${
    Array.from({length: shape[0]}, (_, n) => nested(data.slice(n * step, (n + 1) * step), shape.slice(1)))
      .join(', ')}]`;
}

const parameters = text => text.split(',').slice(1).map(parameter => parameter.split('='));

/** Return the required arrays of a term that its text does not name. */
const needed = (core, text) =>
  core.kindOf[text.split(',')[0]].arrays.filter(a => !a.optional && !new RegExp(`,${a.name}=`).test(text));

/** Return a term as a call of its Python class. The problem in `core` must contain the term. arrays: {name: Python},
 * either for all arrays of the term or for none. */
export function pythonTerm(core, facts, text, arrays = {}) {
  const name = text.split(',')[0], words = Object.entries(arrays).map(([array, python]) => `${array}=${python}`);
  if (!words.length)
    for (const {name: array} of needed(core, text)) {
      const shape = core.shape(text, array);
      words.push(array === 'table' ?
          `np.arange(${shape.reduce((a, b) => a * b, 1)}.0).reshape(${shape.join(', ')})` :
          `np.random.default_rng(0).standard_normal((${shape.join(', ')}${shape.length === 1 ? ',' : ''}))`);
    }
  const known = core.kindOf[name].arrays.map(a => a.name);
  for (const [key, value] of parameters(text))
    if (!known.includes(key))
      words.push(`${key === 'lambda' ? 'lambda_' : key}=${
        value.trim() && Number.isFinite(+value) ? +value : pythonString(value)}`);
  return `relpos.${facts.terms[name].class}(${words.join(', ')})`;
}

/** Return terms with names for their arrays, as returned by namedArrays, with the arrays in Python. */
export const inFile = ({made, named}) => named.map(
  (text, n) =>
    ({text, arrays: Object.fromEntries(made[n].map(({array, name}) => [array, `file[${pythonString(name)}]`]))}));

/** Return terms as keyword arguments of Python's functions. terms: [{text, arrays: {name: Python}}] */
export function pythonOptions(core, facts, terms) {
  const options = new Map();
  for (const {text, arrays} of terms) {
    const key = facts.terms[text.split(',')[0]].keyword, term = pythonTerm(core, facts, text, arrays);
    options.set(key, options.has(key) ? `${options.get(key)} + ${term}` : term);
  }
  return [...options].map(([key, value]) => `${key}=${value}`);
}

/** Return the command-line option for a term: --bias, or the option that has the term's name. */
export const optionOf = (core, text) => {
  const [name, ...rest] = text.split(','), {bias, arrays} = core.kindOf[name];
  const onlyName = arrays.length === 1 && arrays[0].name === name;  // --sink NAME; its shape gives the parameters
  const value = onlyName ? Object.fromEntries(parameters(text))[name] : rest.join(',');
  return bias ? ['--bias', text] : [`--${name}`, value || null];
};

/** Return true if an array of a term shown on the page is random; the code then gives other numbers. */
export const randomArrays = (core, text) => needed(core, text).some(a => a.name !== 'table');

const literal = (data, shape) => shape.length === 0 ? '' : `{${[...data].map(x => String(x)).join(', ')}}`;

/** Return lines of C that take sizes from arrays, where the text of a term does not give them. */
const openSizes = (terms, failed, answer) => [...new Set(terms)].flatMap(
  n => [`    if (${failed(`rp_term_sizes(&term[${n}], t.term[${n}])`)})`, `        return ${answer};`]);

/** Return a C program around the lines `call`, which may use desc, plan, t and n. arrays: [{term, index, name, shape,
 * data}]; without data, an array is filled with 0, 1, 2, ... qkv: {q: {shape, data}, ...}; masks: as returned by
 * readMasks. */
export function program({desc, settings = [], terms = [], arrays = [], qkv = {}, masks = [], call}) {
  const lines = [
    '#include <relpos/relpos.h>', '#include <stdio.h>', '', 'int main(void)', '{',
    `    rp_desc desc = rp_desc_init(${desc.join(', ')});`
  ];
  if (terms.length) {
    lines.push(`    rp_term term[${terms.length}];`, '    char names[RP_MAX_ARRAYS][RP_NAME_MAX];');
    terms.forEach((text, n) => lines.push(`    if (rp_term_parse(${cString(text)}, &term[${n}], names) != RP_OK)`,
                    '        return puts(rp_last_error()), 1;'));
    lines.push(`    desc.terms = term, desc.n_terms = ${terms.length};`);
  }
  lines.push(...maskLines(masks).map(line => `    ${line}`), ...settings.map(s => `    desc.${s};`),
    '    rp_tensors t = rp_tensors_init();');
  const put = (to, name, {shape, data}) => {
    const n = shape.reduce((a, b) => a * b, 1);
    lines.push(data ? `    static double ${name}[] = ${literal(data, shape)};` : `    static double ${name}[${n}];`);
    if (!data) lines.push(`    for (int n = 0; n < ${n}; n++)`, `        ${name}[n] = n;`);
    lines.push(`    ${to} = rp_array_of(${name}, RP_F64, ${shape.length}, (int64_t[]){${shape.join(', ')}});`);
  };
  for (const [name, array] of Object.entries(qkv)) put(`t.${name}`, name, array);
  for (const a of arrays) put(`t.term[${a.term}][${a.index}]`, `${a.name}${a.term}`, a);
  lines.push(...openSizes(arrays.map(a => a.term), call => `${call} != RP_OK`, 'puts(rp_last_error()), 1'));
  lines.push('    rp_plan *plan;', '    if (rp_plan_create(&plan, &desc) != RP_OK)',
    '        return puts(rp_last_error()), 1;', ...call.map(line => '    ' + line), '    rp_plan_destroy(plan);',
    '    return 0;', '}');
  return lines.join('\n') + '\n';
}

/** Return the required arrays of the terms in core's problem, without data, in the form that `program` accepts. */
export function cArrays(core, terms) {
  return terms.flatMap((text, term) => needed(core, text).map(({name}) => ({
    term,
    index: core.kindOf[text.split(',')[0]].arrays.findIndex(a => a.name === name),
    name,
    shape: core.shape(text, name)
  })));
}

/** Return lines for `program` that print the weights of a query over n keys. width: of the output, if it is computed
 * too. */
export const printedWeights = (query, n, width = 0) => [`double weights[${n}]${width ? `, out[${width}]` : ''};`,
  `rp_row row = {.weights = weights${width ? ', .out = out' : ''}};`,
  `if (rp_attend_row(plan, &t, 0, 0, ${query}, &row) != RP_OK)`, '    return puts(rp_last_error()), 1;',
  `for (int j = 0; j < ${n}; j++)`, '    printf("%.4f ", weights[j]);', 'puts("");'];

/** Return lines for `program` that print the biases of a head and a query. */
export const printedBiases = ({heads, lenQ, lenK, head, query}) => [`static double bias[${heads}][${lenQ}][${lenK}];`,
  `rp_array to = rp_array_of(bias, RP_F64, 3, (int64_t[]){${heads}, ${lenQ}, ${lenK}});`,
  'if (rp_bias(plan, &t, 0, &to) != RP_OK)', '    return puts(rp_last_error()), 1;',
  `for (int j = 0; j < ${lenK}; j++)`, `    printf("%.4f ", bias[${head}][${query}][j]);`, 'puts("");'];

/** Return a C function that computes scores and weights of one query from arrays that its caller provides. terms:
 * [{text, arrays: [{index, name, shape}]}]; a scale of NaN means 1/sqrt(width). */
export function rowFunction(
  {heads, kvHeads, lenQ, lenK, dim, head, query, terms, masks = [], scale = NaN, offset = 0}) {
  const called = [...new Set(terms.flatMap(term => term.arrays.map(array => array.name)))].map(
          name => [name, name.replace(/\W/g, '_')]),
        alike = name => called.filter(([, other]) => other === name).length > 1,
        // turn any name in the file into a valid and unique C name
    names = new Map(called.map(([name, plain], n) => [name, `array_${plain}${alike(plain) ? `_${n}` : ''}`])),
        c = name => names.get(name),
        arrays = terms.flatMap((term, n) => term.arrays.map(array => ({...array, term: n}))),
        sizes =
          [
            `q [1][${heads}][${lenQ}][${dim}]`, `k [1][${kvHeads}][${lenK}][${dim}]`,
            ...arrays.map(({name, shape}) => `${c(name)} [${shape.join('][')}]`)
          ],
        four = (...shape) => `RP_F64, ${shape.length}, (int64_t[]){${shape.join(', ')}}`;
  return [
    '#include <relpos/relpos.h>', '',
    `/* scores and weights [${lenK}] of query ${query}, head ${head}; ${sizes.join(', ')} */`,
    `rp_status look(${
        ['q', 'k', ...names.values()].map(name => `const double *${name}, `).join('')}double *scores, double *weights)`,
    '{', `    rp_desc desc = rp_desc_init(1, ${heads}, ${lenQ}, ${lenK}, ${dim});`,
    '    rp_tensors t = rp_tensors_init();', '    rp_row row = {.score = scores, .weights = weights};',
    '    rp_status status;', '    rp_plan *plan;', `    desc.dtype = RP_F64, desc.kv_heads = ${kvHeads};`,
    ...(Number.isNaN(scale) ? [] : [`    desc.scale = ${scale};`]),
    ...(offset ? [`    desc.q_offset = ${offset};`] : []), ...maskLines(masks).map(line => `    ${line}`),
    ...(terms.length ?
        [
          `    rp_term term[${terms.length}];`, '    char names[RP_MAX_ARRAYS][RP_NAME_MAX];',
          ...terms.flatMap(
            ({text}, n) => [`    if ((status = rp_term_parse(${cString(text)}, &term[${n}], names)) != RP_OK)`,
              '        return status;']),
          `    desc.terms = term, desc.n_terms = ${terms.length};`
        ] :
        []),
    `    t.q = rp_array_of(q, ${four(1, heads, lenQ, dim)});`,
    `    t.k = rp_array_of(k, ${four(1, kvHeads, lenK, dim)});`,
    ...arrays.map(
      ({term, index, name, shape}) => `    t.term[${term}][${index}] = rp_array_of(${c(name)}, ${four(...shape)});`),
    ...openSizes(arrays.map(a => a.term), call => `(status = ${call}) != RP_OK`, 'status'),
    '    status = rp_plan_create(&plan, &desc);', '    if (status == RP_OK) {',
    `        status = rp_attend_row(plan, &t, 0, ${head}, ${query}, &row);`, '        rp_plan_destroy(plan);', '    }',
    '    return status;', '}'
  ].join('\n') +
    '\n';
}
