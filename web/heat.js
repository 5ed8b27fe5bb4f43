// heat.js -- a heat map of a matrix on a canvas, with a cursor that the mouse and the arrow keys move.
// SPDX-License-Identifier: Apache-2.0
import {ticks} from './chart.js';
import {colour, extent, fixed, h, minus, scheme, valueText} from './ui.js';

// The colours of each scale differ in lightness, for readers who cannot distinguish red and green: cividis, and blue to
// brown.
const rising = ['#00204c', '#213d6b', '#555b6c', '#7b7a77', '#a59c74', '#d3c064', '#ffe945'];
// The middle of the diverging scale is close to the page's background. Its ends are dark on a light page and light on a
// dark page.
const divergingStops = {
  light: ['#053061', '#2166ac', '#67a9cf', null, '#f4a261', '#b35806', '#5f2c03'],
  dark: ['#d3eaff', '#7cbcf0', '#2f78b5', null, '#a65310', '#f0a050', '#ffe6c4']
};

const rgb = text => [1, 3, 5].map(at => parseInt(text.slice(at, at + 2), 16));

const ramps = new Map();

/** Return the 256 colours of a scale as 32-bit pixels for an image. */
function ramp(diverging) {
  const key = `${scheme()} ${diverging}`;
  if (!ramps.has(key)) ramps.set(key, makeRamp(diverging));
  return ramps.get(key);
}

function makeRamp(diverging) {
  const stops = (diverging ? divergingStops[scheme()] : rising).map(stop => rgb(stop ?? colour('mid'))),
        last = stops.length - 1;
  return Uint32Array.from({length: 256}, (_, n) => {
    const at = n / 255 * last, low = Math.min(Math.floor(at), last - 1), fraction = at - low;
    const [r, g, b] = stops[low].map((x, c) => Math.round(x + fraction * (stops[low + 1][c] - x)));
    return (255 << 24 | b << 16 | g << 8 | r) >>> 0;
  });
}

/** Return the 256 colours of a rising scale as 32-bit pixels. */
export const colours = () => ramp(false);

/** Paint the colours of a scale on a canvas of 256 × 1 pixels. */
export function paintScale(canvas, colours) {
  const brush = canvas.getContext('2d'), strip = brush.createImageData(256, 1);
  new Uint32Array(strip.data.buffer).set(colours);
  brush.putImageData(strip, 0, 0);
}

export const axisWidth = 40;  // in pixels: the least space at the left of a map whose axes have names

const least = 14, widest = 60;  // in pixels: the smallest cell that has a label, and the widest label
const pen = document.createElement('canvas').getContext('2d');
pen.font = '12px system-ui, sans-serif';
const widthOf = texts => Math.max(0, ...texts.map(text => pen.measureText(text).width));

/** Return a text that is cut to the width of the widest label. */
function cut(text) {
  if (widthOf([text]) <= widest) return text;
  let end = text.length;
  while (end > 1 && widthOf([text.slice(0, end) + '…']) > widest) end--;
  return text.slice(0, end) + '…';
}

/** Return the labels of an axis, [text, place]. values: the word or the number of each place; each: the pixels of a
 * place; need(texts): the pixels that a number needs. Write all words or whole numbers if there is space, otherwise
 * some round numbers; for words, these are indices. */
function labelsOf(values, each, need) {
  const words = typeof values[0] === 'string';
  if (words && each >= least) return values.map((word, at) => [cut(word), at]);
  const numbers = words ? [...values.keys()] : values, first = numbers[0], last = numbers.at(-1),
        text = x => minus(+x.toFixed(4));
  const long = need(numbers.map(text)), step = (last - first) / (numbers.length - 1) || 1;
  if (each >= long && Number.isInteger(step)) return numbers.map((x, at) => [text(x), at]);
  const pixels = values.length * each;
  return ticks(first, last, Math.min(pixels / (long + 16), Math.max(pixels / 80, 8)))
    .map(x => [text(x), (x - first) / step])
    .filter(([,
      at]) => step > 1 || Math.abs(at - Math.round(at)) < 1e-6);  // a place of a step above 1 contains several numbers
}

/** Return true for the name of an axis that counts from 0. */
const counted = name => ['query', 'key', 'head', 'token', 'channel', 'position of the key'].includes(name);

export class HeatMap {
  /** Call onpick(row, column) when the cursor moves, and onlook(row, column) when the mouse moves. axes: draw names and
   * ticks at the axes.
   */
  constructor({
    title,
    rows = 'query',
    columns = 'key',
    value = 'bias',
    onpick = () => {},
    onlook = () => {},
    ratio,
    axes = false
  }) {
    this.title = title;
    this.value = value;
    this.onpick = onpick;
    this.onlook = onlook;
    this.ratio = ratio;
    this.names = {rows, columns};
    this.sisters = [this];
    this.cross = h('span', {class: 'cross', hidden: true});
    this.small = document.createElement('canvas');
    this.canvas = h('canvas', {
      tabindex: 0,
      role: 'img',
      onkeydown: event => this.key(event),
      onclick: event => this.point(event),
      onpointermove: event => this.point(event, true),
      onpointerleave: () => this.same().forEach(map => map.leave())
    });
    this.caption = h('figcaption', {}, title);
    this.readout = h('div', {class: 'readout', 'aria-live': 'polite'});
    this.head = h('span'), this.low = h('span'), this.high = h('span');
    this.bar = h('canvas', {width: 256, height: 1, 'aria-hidden': 'true'});
    this.axis = h('span', {}, `${rows} ↓   ${columns} →`);
    this.axes = axes;
    this.across = h('svg', {'aria-hidden': 'true'});
    this.down = h('svg', {'aria-hidden': 'true'});
    this.frame = h('div', {class: 'framed'}, this.down, this.canvas, this.across);
    this.element = h('figure', {}, this.caption, this.frame,
      axes ? null : h('div', {class: 'axis'}, this.axis, h('span', {}, 'arrow keys move the cursor')), this.readout,
      h('div', {class: 'scale'}, this.head, this.low, this.bar, this.high), this.cross);
    this.cursor = [0, 0];
    new ResizeObserver(([{contentRect}]) => {
      this.width = contentRect.width;
      if (!this.data || !this.width) return;
      this.paint();
      this.frameMap();
    }).observe(this.canvas);
  }

  /** Show data [rows * columns]. label(row, column, value) returns the text of the readout. places: {rows, columns},
   * the words or the numbers of the rows and of the columns; default: their indices. named: {row, column, text}, a row
   * to mark, and a column with the text to write below it. */
  show({
    data,
    rows,
    columns,
    title,
    low,
    high,
    diverging,
    cursor,
    label,
    value,
    across,
    named,
    places = {},
    ratio = this.ratio
  }) {
    Object.assign(this, {data, rows, columns, named, places, label: label ?? this.label});
    this.shape = ratio ?? Math.min(Math.max(columns / rows, 0.5), 8);
    this.value = value ?? this.value;
    if (across) this.axis.textContent = `query ↓   ${this.names.columns = across} →`;
    if (title) this.title = this.caption.textContent = title;
    if (cursor) this.cursor = cursor;
    this.cursor = [Math.min(this.cursor[0], rows - 1), Math.min(this.cursor[1], columns - 1)];
    const [min, max] = extent([data]);
    if (low === undefined) low = min, high = max;
    this.diverging = diverging ?? (low < 0 && high > 0);
    if (this.diverging) high = Math.max(-low, high), low = -high;
    [this.min, this.max] = [low, high];
    // if colours end before some values do, the labels say so
    [this.from, this.to] =
      [minus(fixed(low)) + (min < low ? ' or less' : ''), minus(fixed(high)) + (max > high ? ' or more' : '')];
    this.paint();
    this.frameMap();
  }

  paint() {
    const {data, rows, columns, canvas, min, max} = this;
    const colours = ramp(this.diverging), scale = max > min ? 255 / (max - min) : 0,
          base = max > min ? 0 :
      this.diverging       ? 128 :
      min < 0              ? 0 :
                             128;
    if (this.small.width !== columns || this.small.height !== rows)
      [this.small.width, this.small.height] = [columns, rows];
    const brush = this.small.getContext('2d');
    if (this.image?.width !== columns || this.image.height !== rows) {
      this.image = brush.createImageData(columns, rows);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
    const {image, pixels} = this;
    const [masked, none] = ['line', 'bad'].map(name => {
      const [r, g, b] = rgb(colour(name));
      return (255 << 24 | b << 16 | g << 8 | r) >>> 0;
    });
    for (let n = 0; n < pixels.length; n++) {
      const x = data[n], at = base + (x - min) * scale + 0.5 | 0;
      pixels[n] = x > -Infinity ? colours[at < 0 ? 0 : at > 255 ? 255 : at] : x === -Infinity ? masked : none;
    }
    brush.putImageData(image, 0, 0);
    const {shape: ratio} = this;
    canvas.style.aspectRatio = ratio;
    this.element.style.setProperty('--ratio', ratio);  // the style limits the height of a map to that of the screen
    const width = Math.max(1, Math.round((this.width ||= canvas.clientWidth) * devicePixelRatio)),
          height = Math.max(1, Math.round(width / ratio));
    if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
    const to = canvas.getContext('2d');
    to.imageSmoothingEnabled = columns > width && !this.axes;  // axes name the rows, so these stay distinct
    to.drawImage(this.small, 0, 0, width, height);
    const [r, c] = this.cursor, w = width / columns, t = height / rows;
    if (Math.min(w, 2 * t) >= 44 * devicePixelRatio) this.writeNumbers(to, w, t, pixels);
    to.lineWidth = 2 * devicePixelRatio;
    for (const [style, grow] of [['#000', 0], ['#fff', to.lineWidth]]) {
      to.strokeStyle = style;
      to.strokeRect(c * w - grow / 2, r * t - grow / 2, Math.max(w, 3) + grow, Math.max(t, 3) + grow);
    }
    this.head.textContent = this.value, this.low.textContent = this.from, this.high.textContent = this.to;
    paintScale(this.bar, colours);
    canvas.setAttribute('aria-label',
      `${this.title}: ${rows} by ${columns}, ${this.value} from ${this.from} to ${
        this.to}. Arrow keys move the cursor.`);
    this.read(r, c);
  }

  /** Write the number of each cell, in black or white. pixels: the colours of the cells. */
  writeNumbers(to, wide, tall, pixels) {
    to.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
    to.textAlign = 'center', to.textBaseline = 'middle';
    const whole = this.data.every(x => !Number.isFinite(x) || Number.isInteger(x));
    this.data.forEach((x, n) => {
      if (!Number.isFinite(x)) return;
      const colour = pixels[n],
            light = 0.299 * (colour & 255) + 0.587 * (colour >> 8 & 255) + 0.114 * (colour >> 16 & 255);
      to.fillStyle = light > 140 ? '#000' : '#fff';
      to.fillText(minus(whole ? String(x) : fixed(x, 2)), (n % this.columns + 0.5) * wide,
        (Math.floor(n / this.columns) + 0.5) * tall);
    });
  }

  /** Return what is written beside and below a map of `wide` by `tall` pixels: SVG elements, and the pixels that they
   * need. names: of the rows and of the columns, if the axes show them; then they have ticks too. The space at the left
   * does not depend on which labels have space, because the width of the map depends on it. */
  sides(wide, tall, names) {
    const of = name => this.places[name] ?? (counted(this.names[name]) ? [...Array(this[name]).keys()] : []);
    const rows = of('rows'), columns = of('columns'), {named} = this, each = wide / this.columns, soft = 'var(--soft)',
          ink = 'var(--ink)';
    const most = 38 * 16 / least;  // more rows than these never have space for words
    const texts = rows.map((x, at) => typeof x !== 'string' ? minus(+x.toFixed(4)) :
        rows.length > most                                  ? String(at) :
                                                              cut(x));
    const need = rows.length ? Math.ceil(widthOf(texts)) + 6 : 0, left = names ? Math.max(need + 20, axisWidth) : need;
    const beside = labelsOf(rows, tall / this.rows, () => least),
          under = labelsOf(columns, each, all => widthOf(all) + 4), long = widthOf(under.map(([text]) => text)),
          upright = typeof columns[0] === 'string' && long > each - 4 && under.length === columns.length;
    const tick = names ? 5 : 0,
          end = tick +
      (upright         ? Math.ceil(long) + 6 :
          under.length ? 16 :
                         0),
          below = end + (names ? 19 : 0);
    const x = column => left + (column + 0.5) * each, half = named ? 3.5 * named.text.length : 0,
          middle = named && Math.min(x(named.column), left + wide - half),
          free = under.filter(([, at]) => !named || Math.abs(x(at) - middle) > half + 16);
    const text = (content, x, y, more) => h('text', {x, y, fill: soft, 'text-anchor': 'middle', ...more}, content),
          line = (at, more) => h('line', {x1: x(at), x2: x(at), y1: 0, y2: tick, stroke: soft, ...more});
    return {
      left,
      below,
      down: h('g', {},
        beside.map(([content, at]) => text(content, left - 4, (at + 0.5) / this.rows * tall + 4,
                     {'text-anchor': 'end', fill: at === named?.row ? ink : soft})),
        names && text(names[0], 12, tall / 2, {transform: `rotate(-90 12 ${tall / 2})`})),
      across: h('g', {}, names && under.map(([, at]) => line(at)),
        free.map(([content, at]) => upright ?
            text(content, 0, 0, {'text-anchor': 'start', transform: `translate(${x(at) - 4} ${tick + 3}) rotate(90)`}) :
            text(content, x(at), tick + 13)),
        named &&
          [line(named.column, {stroke: ink, 'stroke-width': 2}), text(named.text, middle, tick + 13, {fill: ink})],
        names && text(names[1], left + wide / 2, end + 14))
    };
  }

  /** Write labels beside and below the map. */
  frameMap() {
    const {width: wide, rows, columns, places, named, names, axes} = this, tall = wide / this.shape,
                                                             key = JSON.stringify(
                                                               [wide, tall, rows, columns, places, named, names]);
    if (this.written === key) return;
    this.written = key;
    const {left, below, down, across} = this.sides(wide, tall, axes ? [names.rows, names.columns] : null);
    this.element.style.setProperty('--left', `${left}px`);
    this.down.setAttribute('viewBox', `0 0 ${left} ${tall}`);
    this.down.replaceChildren(down);
    this.across.setAttribute('viewBox', `0 0 ${left + wide} ${below}`);
    this.across.style.width = `${left + wide}px`;
    this.across.replaceChildren(across);
  }

  read(r, c) {
    if (!this.data) return;
    const x = this.data[r * this.columns + c];
    const text =
      this.label ? this.label(r, c, x) : minus(`query ${r}, key ${c}, offset ${c - r}: ${this.value} ${valueText(x)}`);
    if (this.readout.textContent !== text) this.readout.textContent = text;
  }

  /** Move the cursor without calling onpick. */
  mark(r, c) {
    this.cursor = [Math.min(Math.max(r, 0), this.rows - 1), Math.min(Math.max(c, 0), this.columns - 1)];
    this.paint();
  }

  move(r, c) {
    this.same().forEach(map => map.mark(r, c));
    this.onpick(...this.cursor);
  }

  /** Let the cursor of each map move in the others too. */
  static link(maps) {
    for (const map of maps) map.sisters = maps;
    return maps;
  }

  /** Return the visible maps that are linked and have the same size, including this one. */
  same() {
    return this.sisters.filter(
      map => map === this || !map.element.hidden && map.rows === this.rows && map.columns === this.columns);
  }

  /** Show the value at a place where the mouse is in another map. */
  look(r, c) {
    const {canvas, cross} = this, w = canvas.clientWidth / this.columns, t = canvas.clientHeight / this.rows;
    this.read(r, c);
    cross.hidden = false;
    Object.assign(cross.style, {
      left: `${canvas.offsetLeft + c * w}px`,
      top: `${canvas.offsetTop + r * t}px`,
      width: `${Math.max(w, 6)}px`,
      height: `${Math.max(t, 6)}px`
    });
  }

  leave() {
    this.cross.hidden = true;
    this.read(...this.cursor);
  }

  key(event) {
    const step = event.shiftKey ? 8 : 1, [r, c] = this.cursor;
    const to = {
      ArrowLeft: [r, c - step],
      ArrowRight: [r, c + step],
      ArrowUp: [r - step, c],
      ArrowDown: [r + step, c],
      Home: [r, 0],
      End: [r, this.columns - 1],
      PageUp: [0, c],
      PageDown: [this.rows - 1, c]
    }[event.key];
    if (!to || !this.data) return;
    event.preventDefault();
    this.move(...to);
  }

  point(event, look = false) {
    const box = this.canvas.getBoundingClientRect();
    const r = Math.floor((event.clientY - box.top) / box.height * this.rows),
          c = Math.floor((event.clientX - box.left) / box.width * this.columns);
    if (!this.data || r < 0 || c < 0 || r >= this.rows || c >= this.columns) return;
    if (look) this.read(r, c), this.same().forEach(map => map === this || map.look(r, c)), this.onlook(r, c);
    else this.move(r, c);
  }

  /** Return the map without axes; each value takes several pixels. */
  picture() {
    const scale = Math.max(1, Math.round(1024 / Math.max(this.rows, this.columns))),
          big = document.createElement('canvas');
    [big.width, big.height] = [this.columns * scale, this.rows * scale];
    const brush = big.getContext('2d');
    brush.imageSmoothingEnabled = false;
    brush.drawImage(this.small, 0, 0, big.width, big.height);
    return big;
  }

  /** Return an SVG with the title, the map as an image, the axes and the scale. */
  svg() {
    const top = 32, wide = 640, tall = Math.round(wide / this.shape), {rows, columns} = this.names,
          {left, below, down, across} = this.sides(wide, tall, [`← ${rows}`, `${columns} →`]), width = left + wide + 12,
          end = top + tall + below, height = end + 36;
    const text = (x, y, content, more) => h('text', {x, y, fill: colour('ink'), ...more}, content),
          middle = {'text-anchor': 'middle'};
    return h('svg', {xmlns: 'http://www.w3.org/2000/svg', viewBox: `0 0 ${width} ${height}`},
      h('rect', {width, height, fill: colour('bg')}), text(4, 18, this.title, {'font-size': 14, 'font-weight': 600}),
      h('image',
        {x: left, y: top, width: wide, height: tall, href: this.picture().toDataURL(), preserveAspectRatio: 'none'}),
      h('g', {transform: `translate(0 ${top})`}, down), h('g', {transform: `translate(0 ${top + tall})`}, across),
      h('image', {
        x: left + wide / 4,
        y: end + 2,
        width: wide / 2,
        height: 10,
        href: this.bar.toDataURL(),
        preserveAspectRatio: 'none'
      }),
      text(left + wide / 2, end + 28, this.value, middle), text(left + wide / 4, end + 28, this.from, middle),
      text(left + wide * 3 / 4, end + 28, this.to, middle));
  }
}
