// mathml.js -- builds formulas in MathML: math(i('s'), o('='), frac(a, b)).
// SPDX-License-Identifier: Apache-2.0

const element = (tag, ...children) => {
  const made = document.createElementNS('http://www.w3.org/1998/Math/MathML', tag);
  made.append(...children);
  return made;
};

/** Create a name (i), a number (n), an operator (o) or words. */
export const i = text => element('mi', text);
export const n = text => element('mn', text);
export const o = text => {
  const made = element('mo', text);
  made.setAttribute('stretchy', 'false');  // keep parentheses as high as a letter
  return made;
};
export const words = text => element('mtext', text);
export const row = (...children) => element('mrow', ...children);
export const sub = (base, below) => element('msub', base, below);
export const sup = (base, above) => element('msup', base, above);
export const frac = (above, below) => element('mfrac', above, below);
export const root = of => element('msqrt', of);
/** Create the name of a function, with a space before its argument if that has no parentheses. */
export const named = (text, argument) => {
  const gap = element('mspace');
  gap.setAttribute('width', '.17em');
  return row(i(text), gap, argument);
};
export const math = (...children) => element('math', ...children);
