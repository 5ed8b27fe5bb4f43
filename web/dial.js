// dial.js -- draws a pair of rotary channels as a dial, with query and key as its two hands. SPDX-License-Identifier:
// Apache-2.0
import {h, minus, signed} from './ui.js';

/** Draw a dial. hands: [[x, y, angle, dash, colour]], vectors that are rotated by their angles; a vector of length
 * `longest` reaches the rim. between: fill the angle between the two hands. */
export function dial({hands, label, longest = 1, between = false}) {
  const ends = hands.map(([x, y, angle]) => [50 / longest * (x * Math.cos(angle) - y * Math.sin(angle)),
                           50 / longest * (x * Math.sin(angle) + y * Math.cos(angle))]);
  const sector = () => {
    const [from, to] = ends.map(([x, y]) => Math.atan2(y, x)),
                 turn = Math.atan2(Math.sin(to - from), Math.cos(to - from)),
                 at = (angle, r) => `${(60 + r * Math.cos(angle)).toFixed(2)} ${(60 - r * Math.sin(angle)).toFixed(2)}`;
    return h('path', {
      d: `M60 60L${at(from, 24)}A24 24 0 0 ${turn > 0 ? 0 : 1} ${at(from + turn, 24)}Z`,
      fill: 'var(--s2)',
      'fill-opacity': 0.5
    });
  };
  return h('svg', {viewBox: '0 0 120 124', role: 'img', 'aria-label': label},
    h('circle', {cx: 60, cy: 60, r: 50, fill: 'none', stroke: 'var(--line)'}), between ? sector() : null,
    hands.map(([, , , dash, colour], n) => h('line', {
      x1: 60,
      y1: 60,
      x2: 60 + ends[n][0],
      y2: 60 - ends[n][1],
      stroke: `var(--s${colour})`,
      'stroke-width': 3,
      'stroke-dasharray': dash,
      'stroke-linecap': 'round'
    })));
}

/** Draw signed parts one above the other, from 0 to their sum, which is the last bar. */
export function sums({parts, sum, names, width, height}) {
  const ends = parts.reduce((all, part) => [...all, all.at(-1) + part], [0]), low = Math.min(...ends),
        high = Math.max(...ends), each = width / names.length;
  const py = y => 22 + (high - y) / (high - low || 1) * (height - 60), wide = Math.min(each * 0.6, 90);
  const bar = (n, from, to) => {
    const x = (n + 0.5) * each, [top, bottom] = [from, to].map(py).sort((a, b) => a - b), last = n === parts.length;
    return [
      h('rect',
        {x: x - wide / 2, width: wide, y: top, height: Math.max(bottom - top, 1), fill: `var(--s${last ? 5 : 2})`}),
      h('text', {x, y: to < from ? bottom + 13 : top - 4, 'text-anchor': 'middle', fill: 'var(--ink)'},
        minus(signed(last ? sum : parts[n], 3))),
      h('text', {x, y: height - 4, 'text-anchor': 'middle', fill: 'var(--soft)'}, names[n]), last ? null : h('line', {
        x1: x + wide / 2,
        x2: x + each - wide / 2,
        y1: py(to),
        y2: py(to),
        stroke: 'var(--soft)',
        'stroke-dasharray': '2 3'
      })
    ];
  };
  return h('svg', {
    class: 'chart',
    viewBox: `0 0 ${width} ${height}`,
    role: 'img',
    'aria-label': names.map((name, n) => `${name} ${minus(signed(parts[n] ?? sum, 3))}`).join(', ')
  },
    h('line', {x1: 0, x2: width, y1: py(0), y2: py(0), stroke: 'var(--line)'}),
    parts.map((_, n) => bar(n, ends[n], ends[n + 1])), bar(parts.length, 0, sum));
}
