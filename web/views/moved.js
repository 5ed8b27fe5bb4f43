// moved.js -- the part of the view of images in which an object moves: absolute against relative positions.
// SPDX-License-Identifier: Apache-2.0
import {HeatMap} from '../heat.js';
import {differenceOf, fixed, h, minus, table} from '../ui.js';

const image = {
  grid: 8,
  object: 2,
  window: 4,
  seed: 1
},
      {grid, object, window} = image;

/** The largest shift that keeps the object inside the grid. */
export const furthest = grid - object;

/** Return the path of lines between rows and columns of the grid at these places. */
const lines = places => places.map(at => `M0 ${at}H${grid}M${at} 0V${grid}`).join('');

/** Draw the grid with its windows, and the object after a shift. */
function sceneOf(by) {
  const all = [...Array(grid + 1).keys()], edges = all.filter(at => at % window === 0),
        shifted = all.filter(at => (at + window / 2) % window === 0);
  const path = (at, width, more) =>
    h('path', {d: lines(at), fill: 'none', stroke: 'var(--soft)', 'stroke-width': width, ...more});
  return [
    h('rect', {x: by, y: by, width: object, height: object, fill: 'var(--s0)'}), path(all, 0.02), path(edges, 0.1),
    path(shifted, 0.08, {'stroke-dasharray': '0.2 0.2'})
  ];
}

/** Return the part of the view. form: the control of the shift. {element, show(by), rows: of the table, maps}. */
export function movedObject(core, form) {
  const shifts = [...Array(furthest + 1).keys()].map(by => core.shift(image, by)), cells = object * object,
        most = Math.max(...shifts.map(([absolute]) => absolute.change));
  const rows = shifts.map(([absolute, relative, ...windows],
                            by) => [by, absolute.change, relative.change, ...windows.map(({pairs}) => pairs)]);
  const maps = HeatMap.link(['Absolute', 'Relative'].map(
    name => new HeatMap({title: `${name}: change of each score`, value: 'change', ratio: 1})));
  const scene = h('svg', {viewBox: `-0.1 -0.1 ${grid + 0.2} ${grid + 0.2}`, width: 240, height: 240, role: 'img'}),
        said = h('p', {role: 'status'}), numbers = h('div'), command = h('code');
  const names = [...Array(cells).keys()].map(n => `(${Math.floor(n / object)},${n % object})`);
  const show = by => {
    const [absolute, relative, inside, shifted] = shifts[by], pairs = cells * cells;
    scene.replaceChildren(...sceneOf(by));
    scene.setAttribute('aria-label',
      `A grid of ${grid} × ${grid} patches. The object has the rows and columns ${by} to ${by + object - 1}.`);
    maps.forEach((map, n) => {
      const {before, after} = shifts[by][n];
      map.show({
        data: after.map((x, at) => x - before[at]),
        rows: cells,
        columns: cells,
        low: -most,
        high: most,
        diverging: true,
        places: {rows: names, columns: names},
        label: (r, c) => `${names[r]} → ${names[c]}: ${differenceOf(after[r * cells + c], before[r * cells + c])}`
      });
    });
    said.textContent = `Moved by ${by}: the scores among the object’s patches change by up to ${
      fixed(absolute.change)} with absolute positions, and by ${
      fixed(relative.change)} with a table of offsets. With windows (thick lines), ${inside.pairs} of ${
      pairs} pairs attend in only one of the two places; with shifted windows (dashed), ${shifted.pairs}.`;
    numbers.replaceChildren(table(['moved by', 'absolute', 'relative', 'windows', 'shifted windows'],
      rows.map(([at, ...all]) => [String(at), ...all.map((x, n) => n < 2 ? x : String(x))]),
      {caption: 'Largest change of a score; pairs that attend in only one place', mark: r => r === by ? 'mark' : ''}));
    command.textContent =
      ['relpos shift', ...Object.entries({...image, by}).map(pair => '--' + pair.join(' '))].join(' ');
  };
  const element = h('div', {}, h('h3', {}, 'An object moves: absolute against relative'),
    h('div', {class: 'panels'}, h('div', {}, scene, form, said), maps.map(map => map.element)), numbers,
    h('p', {class: 'note'}, 'The same numbers with the command: ', command));
  return {element, show, rows, maps};
}
