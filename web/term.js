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

/** Return the initial text of a term: the text used for its picture, or its first sample. If the term does nothing
 * without arrays, the text names them. */
export function startText(core, facts, name) {
  const {picture, samples} = facts.terms[name];
  if (picture) return picture.split(' ')[0];
  const text = samples[0] ? `${name},${samples[0]}`.replace(/grid=\d+x\d+/, 'grid=4x4') : name,
        learned = core.kindOf[name].arrays.filter(a => a.learned).map(a => `,${a.name}=${a.name}`).join('');
  try {
    core.problem({lenQ: 16, lenK: 16, dimK: 1, terms: [text]}).rows('scores', 0, 0, 1);
    return text;
  } catch { return text + learned; }
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

/** Return the terms that need no arrays to be computed on a sentence. */
export function plainTerms(core, facts) {
  const works = name => {
    try {
      core.problem({lenQ: 2, lenK: 2, dimK: 8, terms: [startText(core, facts, name)], ...core.words(['a', 'b'])});
      return true;
    } catch { return false; }
  };
  return core.kinds.filter(kind => kind.arrays.every(a => a.optional) && works(kind.name)).map(kind => kind.name);
}

/** Return the text with one parameter set. Omit the parameter if it has its default and is not required. */
function withParameter(text, known, key, value, required) {
  const map = given(text);
  if (String(value) === String(known.defaults[key]) && !required) map.delete(key);
  else map.set(key, value);
  return [nameOf(text), ...[...map].map(([k, v]) => `${k}=${v}`)].join(',');
}

/** Return a fieldset of controls for state[key], the text of a term. none: offer "no term" as a choice. */
export function termEditor(
  {core, facts, key, legend, names, none = false, change, start = name => startText(core, facts, name)}) {
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
    let shown = null, made = [];
    return {
      element,
      set(state) {
        const written = state[key], name = nameOf(written), term = facts.terms[name], known = core.kindOf[name];
        text.set(written);
        select.value = names.includes(name) ? name : '';
        text.element.hidden = !written;
        if (shown !== name) {
          shown = name;
          const set = (parameter, required) => (_, value) => change(key,
            withParameter(select.dataset.text, known, parameter,
              value === true    ? 1 :
                value === false ? 0 :
                                  value,
              required));
          made = !term ? [] : term.parameters.map(p => {
            const start = +(given(startText(core, facts, name)).get(p.key) ?? known.defaults[p.key]),
                  integer = p.type === 'int';
            const spec = {key: p.key, label: p.key.replaceAll('_', ' ')};
            if (p.type === 'flag') return [p, control({...spec, type: 'check'}, set(p.key, p.required))];
            if (p.type === 'choice')
              return [p, control({...spec, type: 'select', options: p.choices}, set(p.key, p.required))];
            if (p.type === 'sign')
              return [p, control({...spec, type: 'select', options: ['-1', '1']}, set(p.key, p.required))];
            if (p.type === 'grid')
              return [p, control({...spec, label: 'grid, rows x columns', type: 'text'}, set(p.key, p.required))];
            const max = Math.min(integer ? Math.max(4, start * 4) : start < 1 ? 1 : start * 2, p.max ?? Infinity);
            return [
              p,
              control(
                {...spec,
                  type: 'range',
                  min: 0,
                  max,
                  step: integer               ? 1 :
                    start < 1e-3 && start > 0 ? 'any' :
                                                0.01},
                set(p.key, p.required))
            ];
          });
          box.replaceChildren(...made.map(([, c]) => c.element));
        }
        select.dataset.text = written;
        const values = given(written);
        for (const [p, c] of made) {
          const value = values.get(p.key) ?? known.defaults[p.key];
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
