// export.js -- what leaves the page: PNG, SVG, CSV. SPDX-License-Identifier: Apache-2.0
import {colour, download, h} from './ui.js';

/** A copy of an SVG element that means the same outside the page: colours as numbers, a background, a size. */
function standalone(svg) {
  const text = new XMLSerializer().serializeToString(svg).replace(/var\(--([a-z0-9]+)\)/g, (_, name) => colour(name));
  const copy = new DOMParser().parseFromString(text, 'image/svg+xml').documentElement;
  const [, , width, height] = copy.getAttribute('viewBox').split(' ').map(Number);
  copy.setAttribute('width', width), copy.setAttribute('height', height);
  copy.setAttribute('font-family', 'sans-serif'), copy.setAttribute('font-size', 12);
  if (!copy.querySelector('rect[fill]:first-child')) {
    const back = h('rect', {width, height, fill: colour('bg')});
    copy.insertBefore(copy.ownerDocument.importNode(back, true), copy.firstChild);
  }
  return {text: new XMLSerializer().serializeToString(copy), width, height};
}

async function pngOf(figure) {
  if (figure.picture) return new Promise(done => figure.picture().toBlob(done));
  const {text, width, height} = standalone(figure.svg()), image = new Image();
  image.src = 'data:image/svg+xml;charset=utf-8,' + encodeURIComponent(text);
  await image.decode();
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [width * 2, height * 2];
  canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise(done => canvas.toBlob(done));
}

/** Buttons for what `of()` gives: {name, figure: {svg(), picture()?}, csv() -> rows}. */
export function exporter(of) {
  const button = (text, call) => h('button', {type: 'button', onclick: call}, text);
  return h('div', {class: 'row', role: 'group', 'aria-label': 'Save'}, 'Save as ', button('PNG', async () => {
    const {name, figure} = of();
    download(`${name}.png`, await pngOf(figure));
  }), button('SVG', () => {
    const {name, figure} = of();
    download(`${name}.svg`, new Blob([standalone(figure.svg()).text], {type: 'image/svg+xml'}));
  }), button('CSV', () => {
    const {name, csv} = of(), cell = x => /[",\n]/.test(x) ? `"${String(x).replaceAll('"', '""')}"` : x;
    download(`${name}.csv`, new Blob([csv().map(row => row.map(cell).join(',') + '\n').join('')], {type: 'text/csv'}));
  }));
}

/** The chart's SVG inside a figure, as exporter wants it. */
export const ofChart = figure => ({svg: () => figure.querySelector('svg')});
