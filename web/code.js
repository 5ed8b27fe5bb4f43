// code.js -- the state of a view as a command, as Python and as C. SPDX-License-Identifier: Apache-2.0

const quote = word => /^[\w@%+=:,./-]+$/.test(word) ? word : `'${String(word).replaceAll('\'', '\'\\\'\'')}'`;

/** A command line; words that are null are left out. */
export const shell = words => words.filter(word => word !== null && word !== undefined).map(quote).join(' ');

/** Rows of numbers as Python's nested lists; strides of `shape`. */
export function nested(data, shape) {
  if (shape.length === 1) return `[${[...data].map(x => Number.isInteger(x) ? `${x}.0` : String(x)).join(', ')}]`;
  const step = data.length / shape[0];
  return `[${Array.from({length: shape[0]}, (_, n) => nested(data.slice(n * step, (n + 1) * step), shape.slice(1))).join(', ')}]`;
}

const parameters = text => text.split(',').slice(1).map(part => part.split('='));

/** Arrays that a term needs and its text does not name. */
const needed = (core, text) =>
  core.kindOf[text.split(',')[0]].arrays.filter(a => !a.optional && !new RegExp(`,${a.name}=`).test(text));

/** A term as relpos's Python class. The problem that core holds has it; arrays: name -> Python for those that are there. */
export function pythonTerm(core, facts, text, arrays = {}) {
  const name = text.split(',')[0], words = [];
  for (const {name: array} of needed(core, text)) {
    const shape = arrays[array] ? null : core.shape(text, array);
    words.push(arrays[array] ??
      (array === 'table' ? `np.arange(${shape.reduce((a, b) => a * b, 1)}.0).reshape(${shape.join(', ')})` :
                           `np.random.default_rng(0).standard_normal((${shape.join(', ')}${shape.length === 1 ? ',' : ''}))`));
  }
  const known = core.kindOf[name].arrays.map(a => a.name);
  for (const [key, value] of parameters(text))
    if (!known.includes(key))
      words.push(`${key === 'lambda' ? 'lambda_' : key}=${/ ^[-+\d.e] + $ /.test(value) ? value : `"${value}"`}`);
  return `relpos.${facts.terms[name].python}(${words.join(', ')})`;
}

/** Whether a term's arrays on the screen are random, so that other code has other numbers. */
export const randomArrays = (core, text) => needed(core, text).some(a => a.name !== 'table');

const literal = (data, shape) => shape.length === 0 ? '' : `{${[...data].map(x => String(x)).join(', ')}}`;

/** A C program around `call`, which may use desc, plan, t and n. arrays: [{term, index, name, shape, data}], data absent: 0, 1, 2, ...;
 * qkv: {q: {shape, data}, ...}. */
export function program({desc, settings = [], terms = [], arrays = [], qkv = {}, causal = false, call}) {
  const lines = [
    '#include <relpos/relpos.h>', '#include <stdio.h>', '', 'int main(void)', '{',
    `    rp_desc desc = rp_desc_init(${desc.join(', ')});`
  ];
  if (terms.length) {
    lines.push(`    rp_term term[${terms.length}];`, '    char names[RP_MAX_ARRAYS][RP_NAME_MAX];');
    terms.forEach((text, n) => lines.push(`    if (rp_term_parse("${text}", &term[${n}], names) != RP_OK)`,
                    '        return puts(rp_last_error()), 1;'));
    lines.push(`    desc.terms = term, desc.n_terms = ${terms.length};`);
  }
  if (causal) lines.push('    rp_mask mask = {.kind = RP_MASK_CAUSAL};', '    desc.masks = &mask, desc.n_masks = 1;');
  lines.push(...settings.map(s => `    desc.${s};`), '    rp_tensors t = rp_tensors_init();');
  const put = (to, name, {shape, data}) => {
    const n = shape.reduce((a, b) => a * b, 1);
    lines.push(data ? `    static double ${name}[] = ${literal(data, shape)};` : `    static double ${name}[${n}];`);
    if (!data) lines.push(`    for (int n = 0; n < ${n}; n++)`, `        ${name}[n] = n;`);
    lines.push(`    ${to} = rp_array_of(${name}, RP_F64, ${shape.length}, (int64_t[]){${shape.join(', ')}});`);
  };
  for (const [name, array] of Object.entries(qkv)) put(`t.${name}`, name, array);
  for (const a of arrays) put(`t.term[${a.term}][${a.index}]`, `${a.name}${a.term}`, a);
  lines.push('    rp_plan *plan;', '    if (rp_plan_create(&plan, &desc) != RP_OK)', '        return puts(rp_last_error()), 1;',
    ...call.map(line => '    ' + line), '    rp_plan_destroy(plan);', '    return 0;', '}');
  return lines.join('\n') + '\n';
}

/** The arrays that the terms of core's problem need, as `program` wants them: tables count 0, 1, 2, ..., others are yours to give. */
export function cArrays(core, terms) {
  return terms.flatMap((text, term) => needed(core, text).map(({name}) => ({
    term,
    index: core.kindOf[text.split(',')[0]].arrays.findIndex(a => a.name === name),
    name,
    shape: core.shape(text, name)
  })));
}
