// chart.js -- charts of lines, bars and dots in SVG. SPDX-License-Identifier: Apache-2.0
import {extent, fixed, h, minus, narrow} from './ui.js';

const bandOpacity = 0.3;
const dashes =
  ['', '7 3', '2 3', '9 3 2 3', '4 4', '12 3', '1 5', '6 2 1 2'];  // dash patterns distinguish lines without colours

/** Return about n round numbers that cover low to high. */
export function ticks(low, high, n) {
  if (!(high > low)) return [low];
  const raw = (high - low) / n, power = 10 ** Math.floor(Math.log10(raw)),
        step = [1, 2, 5, 10].find(s => s * power >= raw * 0.999) * power;
  const result = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) result.push(k * step);
  return result;
}

/** Return ticks for a logarithmic axis: 1, 2 and 5 times powers of ten; if that is too many, only powers of ten. A
 * short axis has linear ticks. */
function logTicks(low, high, n) {
  const all = steps => {
    const r = [];
    for (let p = Math.floor(low); p <= high; p++)
      for (const s of steps) {
        const x = p + Math.log10(s);
        if (x >= low - 1e-9 && x <= high + 1e-9) r.push(x);
      }
    return r;
  };
  const fine = all([1, 2, 5]), tens = all([1]), skip = Math.ceil(tens.length / (n * 1.5));
  if (fine.length < 2)
    return ticks(10 ** low, 10 ** high, n).filter(x => x > 0).map(Math.log10);  // less than a factor of 2
  return fine.length <= n * 1.5 ? fine : tens.filter((_, k) => k % skip === 0);
}

const short = x => {
  const [by, unit] = Math.abs(x) >= 1e12 ? [1e12, 'T'] :
    Math.abs(x) >= 1e9                   ? [1e9, 'G'] :
    Math.abs(x) >= 1e6                   ? [1e6, 'M'] :
                                           [1, ''];
  const value = +(x / by).toPrecision(6);
  return (Math.abs(value) >= 1000 ? value.toLocaleString('en') : value) + unit;
};

/** Return the heads that a chart shows, at most one for each dash pattern: all heads, or heads at equal steps that
 * include `head`. Also return a note for the title. */
export function someHeads(heads, head) {
  const max = dashes.length;
  if (heads <= max) return {shown: [...Array(heads).keys()], note: ''};
  const shown = [...Array(max).keys()].map(n => Math.round(n * (heads - 1) / (max - 1)));
  const nearest = shown.reduce((best, n, at) => Math.abs(n - head) < Math.abs(shown[best] - head) ? at : best, 0);
  shown[nearest] = head;
  return {shown, note: `, ${max} of ${heads} heads`};
}

/** Return an SVG path through points. Points closer than a twentieth of a pixel to the line are omitted; NaN interrupts
 * the line. */
function outline(x, y) {
  const at = k => `${x[k].toFixed(1)} ${y[k].toFixed(1)}`;
  let path = '', last = -1, wait = -1, slope = 0;
  for (let k = 0; k < x.length; k++) {
    const fine = !Number.isNaN(y[k]),
          straight = wait >= 0 && Math.abs(y[last] + slope * (x[k] - x[last]) - y[k]) < 0.05;
    if (wait >= 0 && !straight) path += `L${at(last = wait)}`;
    if (!fine) last = wait = -1;
    else if (last < 0) path += `M${at(last = k)}`;
    else {
      if (!straight) slope = (y[k] - y[last]) / (x[k] - x[last]);
      wait = k;
    }
  }
  return wait >= 0 ? path + `L${at(wait)}` : path;
}

/** Return a line of numbers between low and high: {x, y, leaves}. Where it leaves this range, it gets a point on the
 * edge and a pause. leaves: [[x, y, up]], the points on the edges, at least 8 pixels apart; up: above `high`. px(x) is
 * in pixels. */
function clipped(x, y, low, high, px) {
  const found = {x: [], y: [], leaves: []}, add = (at, value) => (found.x.push(at), found.y.push(value));
  const beyond = value => value > high ? high :
    value < low                        ? low :
                                         null;  // the edge that a number is behind; NaN is behind none
  for (let k = 0; k < x.length; k++) {
    const edges = k ? [beyond(y[k - 1]), beyond(y[k])] : [null, null], edge = edges[0] ?? edges[1];
    if ((edges[0] === null) !== (edges[1] === null) && Number.isFinite(y[k - 1]) && Number.isFinite(y[k])) {
      const at = px(x[k - 1]) + (edge - y[k - 1]) / (y[k] - y[k - 1]) * (px(x[k]) - px(x[k - 1])),
            last = found.leaves.at(-1);
      add(at, edge);
      if (!last || last[1] !== edge || Math.abs(at - last[0]) > 8) found.leaves.push([at, edge, edge === high]);
    }
    add(px(x[k]), beyond(y[k]) === null ? y[k] : NaN);
  }
  return found;
}

/** Return the corners of a line of steps: each value holds from halfway after the point before to halfway before the
 * next, where it jumps. */
function corners(x, y) {
  return [
    Array.from(x).flatMap((at, k) => [(at + (x[k - 1] ?? at)) / 2, (at + (x[k + 1] ?? at)) / 2]),
    Array.from(y).flatMap(value => [value, value])
  ];
}

let measured = 0;  // width of the page: to read it after a change makes the browser compute the layout
new ResizeObserver(([{contentRect}]) => measured = contentRect.width).observe(document.getElementById('main'));

/** Return the width of a chart in a view; on a wide page, the settings are beside it. */
export const usualWidth = () => {
  const page = measured || document.getElementById('main').clientWidth;
  return Math.min(1152, Math.max(300, page - (narrow.matches ? 8 : 376)));
};

/** Return the position of the number in a rising array that is the closest to x. */
function closest(xs, x) {
  let low = 0, high = xs.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low > 0 && x - xs[low - 1] < xs[low] - x ? low - 1 : low;
}

/** Return the text of a value in a chart. */
const exact = x => minus(Math.abs(x) < 1e4 ? fixed(x) : short(x));

/** Return the legend of a chart for some of its series. */
export const legendOf = series => h('div', {class: 'legend'},
  series.map((s, n) => h('span', {}, h('svg', {viewBox: '0 0 28 8', 'aria-hidden': 'true'}, h('line', {
    x1: 0,
    x2: 28,
    y1: 4,
    y2: 4,
    stroke: `var(--s${(s.colour ?? n) % 8})`,
    'stroke-opacity': s.style === 'band' ? s.opacity ?? bandOpacity : undefined,
    'stroke-width': s.style ? 8 : 3,
    'stroke-dasharray': s.style || series.length < 2 ? '' : dashes[(s.colour ?? n) % 8]
  })),
               s.name)));

/** Return the plane of a chart: its size and margins, the ranges of its axes, and {px(x), py(y): places in pixels,
 * level(y): that of a y on the axis, which is its logarithm if logY, valueAt(place): x}. See `chart`. */
function planeOf({series, xLabel, yLabel, low, high, span, logX, logY, zones, width, height}) {
  const left = yLabel ? 58 : 36, right = 12, top = zones.some(zone => zone.text) ? 24 : 10, bottom = xLabel ? 40 : 24,
        fx = logX ? Math.log10 : x => x, fy = logY ? Math.log10 : y => y;
  const [loX, hiX] = extent([span, ...series.map(s => s.x)], logX ? 0 : undefined).map(fx),
              bars = series.some(s => s.style === 'bars'),
              [min, max] = extent(series.map(s => s.y), logY ? 0 : undefined);
  let lo = fy(low ?? min), hi = fy(high ?? max);
  if (!Number.isFinite(hi - lo)) lo = 0, hi = 1;
  if (bars && !logY) lo = Math.min(lo, 0), hi = Math.max(hi, 0);
  if (lo === hi) lo -= 0.5, hi += 0.5;
  const half = bars ? 0.5 : 0,
        placeOf = x => left + (x - loX + half) / (hiX - loX + 2 * half || 1) * (width - left - right);
  // keep lines and bars away from the frame, but bars begin on it, and lines end near it where they leave the range
  const tall = height - top - bottom, above = high === undefined ? Math.max(8, 0.06 * tall) : 5,
        below = bars ? 0 : Math.max(8, 0.04 * tall),
        level = y => top + above + (hi - y) / (hi - lo) * (tall - above - below);
  const valueAt = at => {
    const value = (at - left) / (width - left - right) * (hiX - loX + 2 * half) + loX - half;
    return logX ? 10 ** value : value;
  };
  return {
    ...{left, right, top, bottom, width, height, logX, logY, loX, hiX, lo, hi, fx, fy, bars, placeOf, level, valueAt},
    px: x => placeOf(fx(x)),
    py: y => level(fy(y))
  };
}

/** Return the lines and numbers of the axis of y. */
const gridOf = ({left, right, width, height, logY, lo, hi, level}) =>
  (logY ? logTicks : ticks)(lo, hi, height < 160 ? 3 : 5).flatMap(y => {
    const at = level(y);
    return [
      h('line', {x1: left, x2: width - right, y1: at, y2: at, stroke: 'var(--line)', 'stroke-opacity': y ? 0.6 : 1}),
      h('text', {x: left - 6, y: at + 4, 'text-anchor': 'end', fill: 'var(--soft)'}, minus(short(logY ? 10 ** y : y)))
    ];
  });

/** Return the ticks and numbers of the axis of x. */
const axisOf = ({bottom, width, height, logX, loX, hiX, fx, bars, placeOf}, ticksX) =>
  (ticksX?.map(fx) ?? (logX ? logTicks : ticks)(loX, hiX, width / 80)).flatMap(x => {
    if (bars && !Number.isInteger(x)) return [];
    const at = placeOf(x), text = minus(short(logX ? 10 ** x : x));
    return [
      h('line', {x1: at, x2: at, y1: height - bottom, y2: height - bottom + 5, stroke: 'var(--soft)'}),
      h('text', {
        x: Math.min(at, width - 3.6 * text.length),
        y: height - bottom + 18,
        'text-anchor': 'middle',
        fill: 'var(--soft)'
      },
        text)
    ];
  });

/** Return the zones as {behind: their backgrounds, before: their ends and names}. */
function zonesOf({left, right, top, bottom, width, height, px}, zones) {
  const behind = [], before = [];
  zones.forEach(({from, to, text = '', shade}, n) => {
    const [x, end] = [from, to].map(at => Math.min(Math.max(px(at), left), width - right));
    behind.unshift(h('rect', {
      x,
      y: top,
      width: Math.max(end - x, 0),
      height: height - bottom - top,
      fill: shade ?? n % 2 ? 'var(--panel)' : 'none'
    }));
    if (end < width - right)
      before.push(h('line',
        {class: 'zone', x1: end, x2: end, y1: top, y2: height - bottom, stroke: 'var(--soft)', 'stroke-width': 1.5}));
    before.push(h('text', {x: (x + end) / 2, y: 14, 'text-anchor': 'middle', fill: 'var(--ink)'}, text));
  });
  return {behind, before};
}

const outlined = {
  stroke: 'var(--bg)',
  'stroke-width': 4,
  'paint-order': 'stroke'
};  // a text on lines

/** Return the end of the values and the text beyond it. */
function restOf({right, top, bottom, width, height, px}, {from, free = from, text}, zones) {
  const elements = [], x = px(from), begin = px(free), wide = width - right - begin, long = 6.2 * text.length,
        upright = wide < long, at = [begin + wide / 2 + 4 * upright, (top + height - bottom) / 2 + 4 * !upright];
  if (!zones.some(zone => Math.abs(px(zone.to) - x) < 2))
    elements.push(h('line',
      {class: 'rest', x1: x, x2: x, y1: top, y2: height - bottom, stroke: 'var(--soft)', 'stroke-dasharray': '2 3'}));
  if (wide > 16 && (!upright || long < height - top - bottom))
    elements.push(h('text', {
      class: 'rest',
      x: at[0],
      y: at[1],
      'text-anchor': 'middle',
      fill: 'var(--soft)',
      ...outlined,
      transform: upright ? `rotate(-90 ${at.join(' ')})` : undefined
    },
      text));
  return elements;
}

const marksOf = ({left, top, bottom, width, height, px}, marks) => marks.flatMap(
  ({
    x,
    text
  }) => [h('line',
           {x1: px(x), x2: px(x), y1: top + 15, y2: height - bottom, stroke: 'var(--ink)', 'stroke-dasharray': '2 3'}),
    h('text', {
      x: px(x),
      y: top + 10,
      'text-anchor': px(x) > width - 40  ? 'end' :
        px(x) - left < 3.5 * text.length ? 'start' :
                                           'middle',
      fill: 'var(--ink)',
      ...outlined
    },
      text)]);

/** Return the bars of series n of `many`. */
function barsOf({left, right, width, loX, hiX, px, py}, s, fill, n, many) {
  const w = (width - left - right) / (hiX - loX + 1), each = w * 0.8 / many;
  return [...s.x].flatMap((x, k) => {
    if (!Number.isFinite(s.y[k])) return [];
    const y = py(s.y[k]), zero = py(0);
    return h('rect', {
      x: px(x) - w * 0.4 + n * each,
      width: Math.max(each, 0.5),
      y: Math.min(y, zero),
      height: Math.max(Math.abs(zero - y), 0.5),
      fill
    });
  });
}

function bandOf({lo, hi, fy, px, level}, s, fill) {
  const [above, below] = [s.y, s.under].map(y => Array.from(y, value => level(Math.min(Math.max(fy(value), lo), hi)))),
                xs = Array.from(s.x, px);
  return h('path', {
    class: 'band',
    d: `${outline(xs, above)}${outline(xs.reverse(), below.reverse()).replace('M', 'L')}Z`,
    fill,
    'fill-opacity': s.opacity ?? bandOpacity
  });
}

/** Return a line, with an arrow where it leaves the range. */
function lineOf({top, bottom, height, lo, hi, fy, px, level}, s, stroke, dash) {
  const [xs, ys] = s.steps ? corners(s.x, s.y) : [s.x, s.y],
             {x, y, leaves} = clipped(xs, Array.from(ys, fy), lo, hi, px);
  const elements = [h('path',
    {d: outline(x, y.map(level)), fill: 'none', stroke, 'stroke-width': s.line ?? 2, 'stroke-dasharray': dash})];
  if (s.ends && y.length)
    elements.push(h('circle', {class: 'end', cx: x.at(-1), cy: level(y.at(-1)), r: 4, fill: stroke}));
  for (const [x, , up] of leaves) {
    const tip = up ? top : height - bottom, base = tip + (up ? 8 : -8);
    elements.push(h('path', {class: 'leaves', d: `M${x - 4.5} ${base}H${x + 4.5}L${x} ${tip}Z`, fill: stroke}));
  }
  return elements;
}

const seriesOf = (plane, series) => series.flatMap((s, n) => {
  const number = s.colour ?? n, stroke = `var(--s${number % 8})`, {px, py} = plane;
  if (s.style === 'bars') return barsOf(plane, s, stroke, n, series.length);
  if (s.style === 'band') return bandOf(plane, s, stroke);
  if (s.style === 'dots') return [...s.x].map((x, k) => h('circle', {cx: px(x), cy: py(s.y[k]), r: 3.5, fill: stroke}));
  return lineOf(plane, s, stroke, series.length > 1 ? dashes[number % 8] : '');
});

/** Return everything in the plane of a chart, from the back to the front. */
function drawing(plane, {series, ticksX, zones, rest, marks}) {
  const {behind, before} = zonesOf(plane, zones);
  return [
    behind, gridOf(plane), axisOf(plane, ticksX), before, rest ? restOf(plane, rest, zones) : [], marksOf(plane, marks),
    seriesOf(plane, series)
  ];
}

/** Return the SVG element of a chart. */
function svgOf(plane, options, guide) {
  const {left, right, top, bottom, width, height} = plane, {title, series, xLabel, yLabel} = options;
  return h('svg', {
    class: 'chart',
    viewBox: `0 0 ${width} ${height}`,
    role: 'img',
    tabindex: 0,
    'aria-label': `${title}: ${[...new Set(series.map(s => s.name))].join(', ')}. Arrow keys show values.`
  },
    drawing(plane, options), guide,
    h('text', {x: (left + width - right) / 2, y: height - 4, 'text-anchor': 'middle', fill: 'var(--soft)'}, xLabel),
    h('text', {
      x: 14,
      y: (top + height - bottom) / 2,
      'text-anchor': 'middle',
      fill: 'var(--soft)',
      transform: `rotate(-90 14 ${(top + height - bottom) / 2})`
    },
      yLabel));
}

/** Return the values of the series at x, each on a line. */
const valuesAt = (x, drawn, {series, yLabel}) => drawn.flatMap(s => {
  const k = closest(s.x, x);
  return s.x[k] !== x || Number.isNaN(s.y[k]) ?
    [] :
    h('div', {}, h('span', {class: 'swatch', style: `background: var(--s${(s.colour ?? series.indexOf(s)) % 8})`}),
      `${s.name || yLabel} ${s.under ? `${exact(s.under[k])} to ` : ''}${exact(s.y[k])}`);
});

/** Show the values of all series at the mouse, and where the arrow keys move. parts: {svg, figure, guide, tip}. */
function readValues({svg, figure, guide, tip}, {px, width, valueAt}, options) {
  const {series, xLabel, named} = options, drawn = series.filter(s => s.x.length),
                         what = xLabel.split('=')[0].replace(/[^]*←|→[^]*/g, '').trim();
  let shown = null;
  /** Show the values of all series at their x that is the closest to a place in pixels, or hide them. */
  const show = at => {
    const value = at === null ? null : valueAt(at), all = drawn.map(s => s.x[closest(s.x, value)]);
    shown = at === null || !drawn.length ?
      null :
      all.reduce((best, x) => Math.abs(px(x) - at) < Math.abs(px(best) - at) ? x : best);
    guide.setAttribute('visibility', shown === null ? 'hidden' : 'visible');
    tip.hidden = shown === null;
    if (shown === null) return;
    guide.setAttribute('x1', px(shown)), guide.setAttribute('x2', px(shown));
    tip.replaceChildren(
      h('div', {}, named?.(shown) ?? `${what} ${minus(short(shown))}`), ...valuesAt(shown, drawn, options));
    const box = svg.getBoundingClientRect(), outer = figure.getBoundingClientRect(),
          x = box.left - outer.left + px(shown) / width * box.width;
    const beside = px(shown) > width / 2 ? x - tip.offsetWidth - 8 : x + 8;
    tip.style.left = `${Math.max(beside, 0)}px`, tip.style.top = `${box.top - outer.top + 4}px`;
  };
  svg.addEventListener('pointermove', event => show(placeIn(svg, event, width)));
  svg.addEventListener('pointerleave', () => show(null));
  svg.addEventListener('blur', () => show(null));
  svg.addEventListener('keydown', event => {
    const xs = drawn[0]?.x ?? [], now = shown === null ? -1 : closest(xs, shown);
    const to = {
      ArrowLeft: Math.max(now - 1, 0),
      ArrowRight: Math.min(now + 1, xs.length - 1),
      Home: 0,
      End: xs.length - 1
    }[event.key];
    if (to === undefined || !xs.length) return;
    event.preventDefault();
    show(px(xs[to]));
  });
}

/** Return the place of an event in the coordinates of a chart of this width. */
function placeIn(svg, event, width) {
  const box = svg.getBoundingClientRect();
  return (event.clientX - box.left) / box.width * width;
}

/** Call onpick(x) where the user clicks or drags in a chart. */
function pickable(svg, {width, valueAt}, onpick) {
  svg.style.cursor = 'crosshair';
  const pick = event => onpick(valueAt(placeIn(svg, event, width)));
  svg.addEventListener('click', pick);
  svg.addEventListener('pointermove', event => event.buttons & 1 && pick(event));
}

/** Draw a chart. The mouse and the arrow keys show the values at a place. series: [{name, x, y, style: bars|dots|band
 * (default: a line; a band is from `under` to y, with an opacity), steps: true (the line jumps from value to value),
 * line: width, ends: true (a dot at the end of the line)}], with rising x. logX, logY: use a logarithmic axis. zones:
 * [{from, to, text, shade}], ranges of x that are marked in the background; a line marks an end inside the chart. span:
 * [from, to], values of x that the axis must contain. ticksX: numbers that the axis of x shows; default: round ones.
 * low, high: the range of y; lines end there with an arrow, and the values beyond can still be read. rest: {from, free,
 * text}, a range without values at the right end, and what to write there, beyond `free`. width: in pixels; default:
 * the width of the page. legend: false to draw none. named(x): text of a place, for the values under the mouse.
 * onpick(x): called when the user clicks or drags in the chart. Return a figure element. */
export function chart({
  xLabel = '',
  yLabel = '',
  span = [],
  legend: listed = true,
  logX = false,
  logY = false,
  marks = [],
  zones = [],
  width = usualWidth(),
  height = Math.round(Math.max(260, Math.min(0.38 * width, innerHeight - 320))),
  ...given
}) {
  const options = {...given, xLabel, yLabel, span, logX, logY, marks, zones, width, height},
        {title, series, onpick} = given;
  const plane = planeOf(options), {top, bottom} = plane,
        guide = h('line', {y1: top, y2: height - bottom, stroke: 'var(--soft)', visibility: 'hidden'}),
        tip = h('div', {class: 'tip', 'aria-live': 'polite', hidden: true});
  const svg = svgOf(plane, options, guide);
  if (onpick) pickable(svg, plane, onpick);
  const legend = listed && (series.length > 1 || series[0]?.name) ? legendOf(series) : null;
  const figure = h('figure', {}, h('figcaption', {}, title), svg, legend, tip);
  readValues({svg, figure, guide, tip}, plane, options);
  return figure;
}
