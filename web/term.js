// term.js -- the controls of a term, generated from the list of parameters and defaults in the library.
// SPDX-License-Identifier: Apache-2.0
import {control, h} from './ui.js';

export const nameOf = text => text.split(',')[0];
const given = text => new Map(text.split(',').slice(1).filter(Boolean).map(parameter => {
  const [key, ...value] = parameter.split('=');
  return [key, value.join('=')];
}));

/** Return the grid that a term's text gives: {rows, columns, extra, tokens}, or null. */
export function gridOf(text) {
  const size = /(?:^|,)grid=(\d+)x(\d+)(?:,|$)/.exec(text), extra = /(?:^|,)extra=1(?:,|$)/.test(text) ? 1 : 0;
  return size ? {rows: +size[1], columns: +size[2], extra, tokens: size[1] * size[2] + extra} : null;
}

/** Return true if a call throws no error. */
export function works(call) {
  try {
    call();
    return true;
  } catch { return false; }
}

/** Return true if the library accepts a term, for as many tokens as its grid has. */
export const accepts = (core, term) => works(() => {
  const n = gridOf(term.text ?? term)?.tokens ?? 16;
  core.problem({lenQ: n, lenK: n, dimK: 8, terms: [term]}).workSize();
});

/** Return the initial text of a term: the text used for its picture, or its first sample. If the term does nothing
 * without arrays, the text names them. */
export function startText(core, facts, name) {
  const {picture, samples} = facts.terms[name];
  if (picture) return picture.split(' ')[0];
  const text = samples[0] ? `${name},${samples[0]}`.replace(/grid=\d+x\d+/, 'grid=4x4') : name,
        learned = core.kindOf[name].arrays.filter(a => a.learned).map(a => `,${a.name}=${a.name}`).join('');
  return works(() => core.problem({lenQ: 16, lenK: 16, dimK: 1, terms: [text]}).rows('scores', 0, 0, 1)) ?
    text :
    text + learned;
}

/** Return a term's text with these names for its arrays. names: {array: NAME}. */
export const withNames = (text,
  names) => [nameOf(text), ...[...new Map([...given(text), ...Object.entries(names)])].map(([k, v]) => `${k}=${v}`)]
              .join(',');

/** Return the names that a text gives to arrays of the term: {array: NAME}. */
export const namesIn = (core, text) => {
  const map = given(text);
  return Object.fromEntries(
    core.kindOf[nameOf(text)].arrays.filter(a => map.has(a.name)).map(a => [a.name, map.get(a.name)]));
};

/** What the arrays are that the library fills, by Core.meaning. */
export const filledWith = {
  entry: 'Without a table, entry c is the number c',
  bucket: 'Without a table, the entry of bucket c is the number c',
  random: 'Without arrays, the numbers are random, and the same each time'
};

/** Return the arrays of the terms in core's problem, given or filled, and the terms with the names of these arrays:
 * {made: for each term [{index, array, name, shape, data}], named}. terms: [{text, arrays}]. A filled array without a
 * name gets one that is not in `others`. */
export function namedArrays(core, terms, others = {}) {
  const used = new Set(Object.keys(others));
  const free = (name, array) => {
    let n = '';
    while (used.has(`${name}${n}.${array}`)) n = (n || 1) + 1;
    return `${name}${n}.${array}`;
  };
  const made = terms.map(({text, arrays = {}}, n) => core.kindOf[nameOf(text)].arrays.flatMap(({name}, index) => {
    const array = arrays[name] ?? core.filled(n, index), own = namesIn(core, text)[name];
    if (!array) return [];
    const called = own && (arrays[name] || !used.has(own)) ? own : free(nameOf(text), name);
    used.add(called);
    return [{...array, index, array: name, name: called}];
  }));
  const named =
    terms.map(({text}, n) => withNames(text, Object.fromEntries(made[n].map(({array, name}) => [array, name]))));
  return {made, named};
}

/** Return the terms that need no arrays to be computed on a sentence. */
export function plainTerms(core, facts) {
  const plain = name => works(
    () => core.problem({lenQ: 2, lenK: 2, dimK: 8, terms: [startText(core, facts, name)], ...core.words(['a', 'b'])}));
  return core.kinds.filter(kind => kind.arrays.every(a => a.optional) && plain(kind.name)).map(kind => kind.name);
}

/** Return the text with one parameter set. Omit the parameter if it has its default and is not required. */
function withParameter(text, known, key, value, required) {
  const map = given(text);
  if (String(value) === String(known.defaults[key]) && !required) map.delete(key);
  else map.set(key, value);
  return [nameOf(text), ...[...map].map(([k, v]) => `${k}=${v}`)].join(',');
}

/** Return the text without names of arrays. */
function withoutNames(core, text) {
  const map = given(text);
  for (const name of Object.keys(namesIn(core, text))) map.delete(name);
  return [nameOf(text), ...[...map].map(([k, v]) => `${k}=${v}`)].join(',');
}

/** Return the lowest and the highest value from low to high that a slider can have, and its step: fits(x) says whether
 * the library accepts x, and x fits from one end to the other in steps from `value`. */
function endsOf(fits, value, low, high, unit) {
  if (!fits(value)) return [low, high, unit];
  const at = n => +(value + n * unit).toPrecision(12),
        step = [1, 2, 3, 4, 5].find(n => fits(at(n)) || fits(at(-n))) ?? 1;
  const end = (limit, sign) => {
    let near = 0, far = Math.max(0, Math.floor((limit - value) * sign / unit / step + 1e-9));
    const to = n => at(sign * n * step);
    if (fits(to(far))) return to(far);
    while (far - near > 1) {
      const middle = (near + far) >> 1;
      if (fits(to(middle))) near = middle;
      else far = middle;
    }
    return to(near);
  };
  return [end(low, -1), end(high, 1), step * unit];
}

/** Create the control of a parameter, which is `start` in the first text of the term. Return [parameter, control, for a
 * slider its spec]. */
function parameterControl(p, start, set) {
  const spec = {key: p.key, label: p.key.replaceAll('_', ' ')}, integer = p.type === 'int';
  if (p.type === 'flag') return [p, control({...spec, type: 'check'}, set)];
  if (p.type === 'choice') return [p, control({...spec, type: 'select', options: p.choices}, set)];
  if (p.type === 'sign') return [p, control({...spec, type: 'select', options: ['-1', '1']}, set)];
  if (p.type === 'grid') return [p, control({...spec, label: 'grid, rows x columns', type: 'text'}, set)];
  const max = Math.min(integer ? Math.max(4, start * 4) : start < 1 ? 1 : start * 2, p.max ?? Infinity);
  const slider = {
    ...spec,
    type: 'range',
    min: Math.min(start, 0),
    max,
    step: integer               ? 1 :
      start < 1e-3 && start > 0 ? 'any' :
                                  0.01
  };
  return [p, control(slider, set), slider];
}

/** Return a fieldset of controls for state[key], the text of a term. none: offer "no term" as a choice. fits(text):
 * whether the view can show a term. */
export function termEditor({
  core,
  facts,
  key,
  legend,
  names,
  none = false,
  change,
  start = name => startText(core, facts, name),
  fits = text => accepts(core, text)
}) {
  const families = [...new Set(names.map(name => facts.terms[name].family))];
  const label = `${key}-kind`,
        select = h('select',
          {id: label, 'data-key': `${key}-kind`, onchange: () => change(key, select.value ? start(select.value) : '')},
          none ? h('option', {value: ''}, 'none') : null,
          families.map(family => h('optgroup', {label: family},
                         names.filter(name => facts.terms[name].family === family)
                           .map(name => h('option', {value: name}, `${name}: ${facts.terms[name].title}`)))));
  const text = control({key, label: 'As text', type: 'text'}, change), box = h('div');
  const labelled = h('label', {for: label, class: 'note'}, 'Term'),
        element = h('fieldset', {}, h('legend', {}, legend), labelled, select, box, text.element);
    let shown = null, made = [], measured = '';
    return {
      element,
      set(state) {
        const written = state[key], name = nameOf(written), term = facts.terms[name], known = core.kindOf[name];
        text.set(written);
        select.value = names.includes(name) ? name : '';
        text.element.hidden = !written;
        if (shown !== name) {
          shown = name;
          const set = (parameter, required) => (_, value) => {
            const text = withParameter(select.dataset.text, known, parameter,
              value === true    ? 1 :
                value === false ? 0 :
                                  value,
              required);
            change(key,
              fits(text) || !fits(withoutNames(core, text)) ?
                text :
                withoutNames(core, text));  // a table may have another size
          };
          made = !term ?
            [] :
            term.parameters.map(
              p => parameterControl(
                p, +(given(startText(core, facts, name)).get(p.key) ?? known.defaults[p.key]), set(p.key, p.required)));
          box.replaceChildren(...made.map(([, c]) => c.element));
        }
        select.dataset.text = written;
        const values = given(written);
        const now = `${state.source} ${written}`, anew = measured !== now;
        measured = now;
        for (const [p, c, slider] of made) {
          const value = values.get(p.key) ?? known.defaults[p.key];
          if (slider && anew) {
            const at = x => withParameter(written, known, p.key, x, p.required);
            c.ends(...endsOf(x => fits(at(x)) || fits(withoutNames(core, at(x))), +value, slider.min, slider.max,
              slider.step === 'any' ? slider.max / 256 : slider.step));
          }
          c.set(p.type === 'flag' ? value === '1' : p.type === 'int' || p.type === 'real' ? +value : value);
        }
      },
    };
}

/** Return the row of one query and one key that RoPE, `text`, rotates from their positions. */
export function rotatedRow(core, text, {q, k}, from, to) {
    const at = position => ({shape: [1], data: [position]});
    core.problem(
      {lenQ: 1, lenK: 1, dimK: q.length, terms: [{text, arrays: {q_positions: at(from), k_positions: at(to)}}], q, k});
    return core.row(0, 0);
}
