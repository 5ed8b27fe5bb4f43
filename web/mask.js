// mask.js -- masks that need no array: their text, their controls, and their code. The library lists them. Masks with
// an array are left out, because the page has no arrays for them. SPDX-License-Identifier: Apache-2.0
import {control, h} from './ui.js';

const largest = 1e9;  // max value of a parameter on the page

export const plainMasks = core => core.masks.filter(mask => !mask.axes);

/** Parse a text such as "causal+window=40,3" into the masks of a problem: [{kind, name, values, ...}]. Throw an Error
 * if it is not valid. */
export function readMasks(core, text) {
  return text.split('+').filter(Boolean).map(part => {
    const [name, ...rest] = part.split('='), known = plainMasks(core), mask = known.find(mask => mask.name === name);
    if (!mask) throw new Error(`no mask is called ${name}: ${known.map(mask => mask.name).join(', ')}`);
    const values =
      rest.length ? rest.join('=').split(',').map(x => x.trim() === '' ? NaN : +x) : mask.params.map(p => p.value);
    const wrong = values.length !== mask.params.length ||
      mask.params.find(
        ({min, max}, n) => !(Number.isInteger(values[n]) && values[n] >= min && values[n] <= Math.min(max, largest)));
    if (wrong)
      throw new Error(`mask ${part}: the parameters of ${name} are ${
        mask.params.map(({key, min}) => `${key}, ${min} to ${largest}`).join('; ') || 'none'}`);
    return {...mask, values};
  });
}

const written = ({name, values}) => [name, ...(values.length ? [values.join()] : [])].join('=');

/** Return the text with one mask set to these values; null removes the mask. */
const withMask = (core, text, name,
  values) => [...readMasks(core, text).filter(mask => mask.name !== name), ...(values ? [{name, values}] : [])]
               .map(written)
               .join('+');

const optionName = ({name}) => `--${name.replaceAll('_', '-')}`;

/** Return masks as command-line options. */
export const maskOptions = masks =>
  masks.flatMap(mask => [optionName(mask), ...(mask.values.length ? [mask.values.join()] : [])]);

/** Return the text of the mask that a command-line option sets, or null if the option is no mask. value() reads the
 * word after the option. */
export function maskOfOption(core, option, value) {
  const mask = plainMasks(core).find(mask => optionName(mask) === option);
  return mask ? written({name: mask.name, values: mask.params.length ? [value()] : []}) : null;
}

/** Return masks as keyword arguments of the Python functions. */
export const maskKeywords = masks =>
  masks.map(({name, values}) => `${name}=${values.length ? `(${values.join(', ')})` : 'True'}`);

/** Return the C lines that set the masks of desc. */
export const maskLines = masks => masks.length ?
  [
    `rp_mask mask[] = {${masks.map(({constant}) => `rp_mask_init(${constant})`).join(', ')}};`,
    ...masks.flatMap(({constant, values}, n) =>
                       values.map((x, k) => `rp_mask_set(&mask[${n}], rp_mask_param_of(${constant}, ${k}), ${x});`)),
    `desc.masks = mask, desc.n_masks = ${masks.length};`
  ] :
  [];

/** Return the controls for state[key], a text of masks. */
export function maskEditor({core, key, change}) {
  let text = '';
  const made = plainMasks(core).map(({name, text: said, params}) => {
    const set = values => change(key, withMask(core, text, name, values));
    const on = control({key: `mask-${name}`, label: `${name}: ${said.replace('-1', '−1')}`, type: 'check'},
      (_, yes) => set(yes ? params.map(p => p.value) : null));
    let values = [];
    const numbers = params.map(
      ({key: label, min, max}, n) => control(
        {key: `mask-${name}-${label}`, label, type: 'range', min, max: 64, lower: min, upper: Math.min(max, largest)},
        (_, x) => set(values.map((y, m) => m === n ? x : y))));
    const box = h('div', {}, numbers.map(number => number.element));
    return {
      element: [on.element, box],
      set(masks) {
        const mask = masks.find(mask => mask.name === name);
        on.set(!!mask);
        box.hidden = !mask;
        values = mask?.values ?? [];
        values.forEach((x, n) => numbers[n].set(x));
      }
    };
  });
  return {
    element: h('fieldset', {}, h('legend', {}, 'Masks'), made.map(one => one.element)),
    set(state) {
      const masks = readMasks(core, text = state[key]);
      made.forEach(one => one.set(masks));
    }
  };
}
