// number.js -- a number in a sentence that the reader drags, or changes with the arrow keys: another control of a
// setting. SPDX-License-Identifier: Apache-2.0
import {fit, h} from '../ui.js';

const travel = 240;  // pixels from the lowest number to the highest

/** Create a number for the setting of `spec`, which has the limits min and max. text(value): how it is written. log:
 * dragging multiplies. Return {element, set(value)}. */
export function number(spec, change, {text = String, log = false} = {}) {
  const {key, label, min, max, step = 1} = spec, scale = log ? Math.log : x => x, back = log ? Math.exp : x => x;
  let now = min, from = null;
  const to = value => {
    const next = fit({...spec, lower: min, upper: max}, Math.round(value / step) * step);
    if (next !== now) change(key, now = +next.toFixed(6));  // now: another key may come before the next frame
  };
  const moved = n =>
    log ? (n > 0 ? Math.max(now * 1.1 ** n, now + 1) : Math.min(now * 1.1 ** n, now - 1)) : now + n * step;
  const element = h('span', {
    class: 'drag-number',
    role: 'slider',
    tabindex: 0,
    'aria-label': label,
    'aria-valuemin': min,
    'aria-valuemax': max,
    onpointerdown: event => {
      if (event.button) return;
      element.setPointerCapture(event.pointerId);
      from = {x: event.clientX, at: scale(now)};
    },
    onpointermove: event => from && to(back(from.at + (event.clientX - from.x) / travel * (scale(max) - scale(min)))),
    onpointerup: () => from = null,
    onpointercancel: () => from = null,
    onkeydown: event => {
      const by = {ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10}[event.key],
            end = {Home: min, End: max}[event.key];
      if (by === undefined && end === undefined) return;
      event.preventDefault();
      to(end ?? moved(by));
    }
  });
  const set = value => {
    now = value;
    element.textContent = text(value);
    element.setAttribute('aria-valuenow', value);
    element.setAttribute('aria-valuetext', text(value));
  };
  set(now);
  return {element, set};
}
