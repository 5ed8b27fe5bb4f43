// export.js -- saves figures and numbers as PNG, SVG and CSV.
// SPDX-License-Identifier: Apache-2.0
import {colour, copyButton, download, h} from './ui.js';

/** Copy an SVG element in a form that does not depend on the page: replace colour names by numbers, and set a size and
 * a font. */
function standalone(svg) {
  const text =
    new XMLSerializer().serializeToString(svg).replace(/var\(--([a-z0-9]+)\)/g, (name, key) => colour(key) || name);
  const copy = new DOMParser().parseFromString(text, 'image/svg+xml').documentElement;
  const [, , width, height] = copy.getAttribute('viewBox').split(' ').map(Number);
  copy.setAttribute('width', width), copy.setAttribute('height', height);
  copy.setAttribute('font-family', 'sans-serif');
  copy.setAttribute('font-size', copy.querySelector('foreignObject') ? 16 : 12);  // rem in the style of HTML
  return {text: new XMLSerializer().serializeToString(copy), width, height};
}

/** Return the address of what is saved; without the folder if the page is a file on this computer. */
const address = () => location.protocol === 'file:' ? `relpos explorer ${location.hash}` : location.href;

/** Return a figure's SVG with the address of the page below it. */
function withAddress(figure) {
  const svg = figure.svg(), [, , width, height] = svg.getAttribute('viewBox').split(' ').map(Number),
        each = Math.floor((width - 8) / 6.5);
  const lines = decodeURIComponent(address()).match(new RegExp(`.{1,${each}}`, 'gu')),
        tall = height + 6 + 14 * lines.length;
  svg.setAttribute('viewBox', `0 0 ${width} ${tall}`);
  svg.prepend(h('rect', {width, height: tall, fill: colour('bg')}));
  svg.append(
    ...lines.map((line, n) => h('text', {x: 4, y: height + 12 + 14 * n, fill: colour('soft'), 'font-size': 11}, line)));
  return standalone(svg);
}

async function pngOf(figure) {
  const {text, width, height} = withAddress(figure), image = new Image();
  image.src = 'data:image/svg+xml;charset=utf-8,' + encodeURIComponent(text);
  await image.decode();
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [width * 2, height * 2];
  canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise(done => canvas.toBlob(done));
}

const maxLines = 2 ** 22;  // max lines of a table

/** Return the rows of csv() as a file. Pause every 40 ms, so the page stays responsive. */
async function csvOf({csv, lines = 0}) {
  if (lines > maxLines)
    throw new Error(`the table has ${lines} lines, at most ${
      maxLines} are possible here: choose smaller lengths or fewer heads, or use relpos bias -o FILE`);
  const cell = x => typeof x === 'string' && /[",\n]/.test(x) ? `"${x.replaceAll('"', '""')}"` : x, blocks = [];
  let text = '', since = performance.now();
  for (const row of csv()) {
    text += row.map(cell).join(',') + '\n';
    if (text.length < 1 << 16) continue;
    blocks.push(text);
    text = '';
    if (performance.now() - since > 40) {
      await new Promise(done => setTimeout(done));
      since = performance.now();
    }
  }
  return new Blob([...blocks, text], {type: 'text/csv'});
}

/** Return buttons that save the result of of(): {name, figure: {svg()}, csv() -> rows, lines: the number of rows, if it
 * may be too large}. choice: a control that selects one of several figures, or undefined. more: other buttons that save
 * something. */
export function exporter(of, choice, more) {
  const status = h('span', {class: 'note', role: 'status'});
  const button = (text, make) => h('button', {
    type: 'button',
    onclick: async () => {
      try {
        const {name, ...what} = of();
        status.textContent = 'writing …';
        download(`${name}.${text.toLowerCase()}`, await make(what));
        status.textContent = '';
      } catch (error) { status.textContent = error.message; }
    }
  },
    text);
  const link = copyButton('Copy link', () => location.href, status, 'use the address bar');
  return h('div', {class: 'row', role: 'group', 'aria-label': 'Save'}, link, choice, 'Save as ',
    button('PNG', ({figure}) => pngOf(figure)),
    button('SVG', ({figure}) => new Blob([withAddress(figure).text], {type: 'image/svg+xml'})), button('CSV', csvOf),
    more, status);
}

/** Convert a figure of chart() for exporter: one SVG with title, chart and legend, as on the page. */
export const ofChart = figure => ({
  svg() {
    const chart = figure.querySelector('svg.chart').cloneNode(true),
          [, , wide, high] = chart.getAttribute('viewBox').split(' ').map(Number),
          title = figure.querySelector('figcaption').textContent, width = Math.max(wide, 16 + 8 * title.length),
          legend = [];
    let x = 8, y = high + 44;
    for (const entry of figure.querySelectorAll('.legend span')) {
      const long = 44 + 7 * entry.textContent.length, key = entry.querySelector('svg').cloneNode(true);
      if (x > 8 && x + long > width) x = 8, y += 20;
      for (const [name, value] of Object.entries({x, y: y - 8, width: 28, height: 8})) key.setAttribute(name, value);
      legend.push(key, h('text', {x: x + 34, y, fill: 'var(--ink)'}, entry.textContent));
      x += long;
    }
    for (const [name, value] of Object.entries({x: 0, y: 26, width: wide, height: high}))
      chart.setAttribute(name, value);
    const height = legend.length ? y + 12 : high + 30;
    return h('svg', {xmlns: 'http://www.w3.org/2000/svg', viewBox: `0 0 ${width} ${height}`},
      h('rect', {width, height, fill: 'var(--bg)'}),
      h('text', {x: 8, y: 18, fill: 'var(--ink)', 'font-size': 14, 'font-weight': 600}, title), chart, legend);
  }
});

/** Return the rules of the page's style that apply now. */
const rules = list => [...list]
                        .map(rule => !rule.media                     ? rule.cssText :
                            matchMedia(rule.media.mediaText).matches ? rules(rule.cssRules) :
                                                                       '')
                        .join('\n');

/** Convert an element of a step for exporter: an SVG with the title and a copy of the element in HTML, without a cover
 * and parts with data-unsaved. */
export const ofElement = (element, title) => ({
  svg() {
    const {width, height} = element.getBoundingClientRect(), copy = element.cloneNode(true), top = 30;
    copy.querySelectorAll('.cover, [data-unsaved]').forEach(part => part.remove());
    copy.style.margin = 0;  // the size does not include it
    copy.style.borderColor = 'transparent';
    copy.style.boxShadow = 'none';
    const canvases = element.querySelectorAll('canvas'), inputs = element.querySelectorAll('input');
    copy.querySelectorAll('canvas').forEach((canvas, n) => {
      const {width, height} = canvases[n].getBoundingClientRect(),
                    {backgroundColor, imageRendering} = getComputedStyle(canvases[n]);
      const style = `display: block; width: ${width}px; height: ${height}px; background: ${
        backgroundColor}; image-rendering: ${imageRendering}`;
      canvas.replaceWith(h('img', {src: canvases[n].toDataURL(), style}));
    });
    const chosen = element.querySelectorAll('select');
    copy.querySelectorAll('select').forEach(
      (select, n) => select.replaceWith(h('b', {}, chosen[n].selectedOptions[0].text)));
    copy.querySelectorAll('input').forEach(
      (input, n) => input.setAttribute('value', inputs[n].value || inputs[n].placeholder));
    const applied = [...document.styleSheets].filter(sheet => matchMedia(sheet.media.mediaText).matches);
    const inside = document.createElementNS('http://www.w3.org/2000/svg', 'foreignObject');
    for (const [key, value] of Object.entries({x: 8, y: top, width, height})) inside.setAttribute(key, value);
    inside.append(h('div', {
      class: 'story',
      style: `display: block; width: ${width}px; font: 16px/1.5 system-ui, sans-serif; color: ${colour('ink')}`
    },
      h('style', {}, rules(applied.flatMap(sheet => [...sheet.cssRules]))), copy));
    return h('svg',
      {xmlns: 'http://www.w3.org/2000/svg', viewBox: `0 0 ${Math.ceil(width + 16)} ${Math.ceil(height + top + 8)}`},
      h('text', {x: 8, y: 20, fill: colour('ink'), style: 'font: 600 16px system-ui, sans-serif'}, title), inside);
  }
});
