// words.js -- a row of words that the user can drag. Arcs and bars show the attention of one of the words.
// SPDX-License-Identifier: Apache-2.0
import {count, fixed, h, minus} from '../ui.js';

import {heightOf, roomy} from './step.js';

export const example = 'only she told him she loved him';
export const maxWords = 12;
const maxLetters = 60;

const split = text => (text.trim() || example).split(/\s+/);

/** Return the last words of a text, or of the example if it is empty: at most twelve. A long word is cut. */
export const lastWords = text =>
  split(text).slice(-maxWords).map(word => word.length > 16 ? `${word.slice(0, 15)}…` : word);

/** Return the words of a text, or of the example if it is empty; if they are too many or too long, the last words that
 * fit. */
export function wordsOf(text) {
  const all = split(text), letters = words => words.join('').length;
  if (all.length <= maxWords && letters(all) <= maxLetters) return all;
  const words = lastWords(text);
  while (letters(words) > maxLetters) words.shift();
  return words;
}

/** Return a sentence that says which words of a text are shown, or '' if all are. */
export function cutOf(text) {
  const all = split(text).length, shown = wordsOf(text).length;
  return all > shown ? `Your text has ${count(all)} words; there is space for the last ${shown}.` : '';
}

/** Return a background that is darker for a larger share, 0 to 1. */
export const shade = share => `color-mix(in srgb, var(--s1) ${Math.round(40 * share)}%, var(--bg))`;

const still = matchMedia('(prefers-reduced-motion: reduce)');
const widest = 5;  // space between two words in pixels

/** Sizes in pixels, for small and for large screens. */
const sizes = [
  {letters: 20, small: 12, arcs: 96, chip: 40, bars: 56, biases: 66},
  {letters: 26, small: 15, arcs: 200, chip: 54, bars: 110, biases: 116}
];

/** Parse an order of n words such as "2.0.1". Return the original order if the text is invalid. */
export function readOrder(text, n) {
  const order = text === '' ? [] : text.split('.').map(Number);
  return order.length === n && [...order].sort((a, b) => a - b).every((x, k) => x === k) ? order : [...Array(n).keys()];
}

/** Return a random order that is not `order`. */
export function shuffled(order) {
  const next = [...order];
  do
    for (let k = next.length - 1; k > 0; k--) {
      const other = Math.floor(Math.random() * (k + 1));
      [next[k], next[other]] = [next[other], next[k]];
    }
  while (next.length > 1 && next.every((x, k) => x === order[k]));
  return next;
}

export class Words {
  /** Call onorder(order) when a word is moved, and onpick(word) when it is chosen. */
  constructor({onorder, onpick}) {
    Object.assign(this, {onorder, onpick, at: [], items: [], frame: 0, drag: null});
    this.arcs = h('svg', {'aria-hidden': 'true'});
    this.lane = h('div', {class: 'lane'}, this.arcs);
    this.element = h('figure', {class: 'words-figure'}, this.lane);
    new ResizeObserver(() => this.words && this.place(true)).observe(this.element);
  }

  /** Show the words. weights [word]: weights of the chosen word; ghosts [word]: weights to compare with; biases
   * [place]. */
  show({words, order, chosen, weights, ghosts, biases}) {
    const key = words.join(' '), fresh = key !== this.key;
    Object.assign(this, {words, order, chosen, weights, ghosts, biases, key});
    if (fresh) this.build();
    const max = Math.max(...weights, ...(ghosts ?? []));
    this.items.forEach(({button, bar, ghost, number}, n) => {
      const fraction = weights[n] / max;
      button.setAttribute('aria-pressed', n === chosen);
      button.setAttribute('aria-label',
        `${words[n]}, place ${order.indexOf(n) + 1} of ${words.length}, weight ${fixed(weights[n], 2)}${
          n === chosen ? ', the query' : ''}`);
      bar.style.height = `${Math.max(1, 100 * fraction)}%`;
      number.textContent = fixed(weights[n], 2);
      ghost.hidden = !ghosts;
      if (ghosts) ghost.style.height = `${100 * ghosts[n] / max}%`;
    });
    this.place(fresh);
  }

  build() {
    this.items = this.words.map((word, n) => {
      const button = h('button', {
        type: 'button',
        onpointerdown: event => this.grab(event, n),
        onpointermove: event => this.pull(event, n),
        onpointerup: () => this.drop(n),
        onpointercancel: () => this.drop(n),
        onclick: () => this.moved ? this.moved = false : this.onpick(n),
        onkeydown: event => {
          const step = {ArrowLeft: -1, ArrowRight: 1}[event.key], from = this.order.indexOf(n);
          if (!step || !(from + step in this.order)) return;
          event.preventDefault();
          this.swap(from, from + step);
        }
      },
        word);
      const bar = h('span', {class: 'weight'}), ghost = h('span', {class: 'ghost'}),
            number = h('span', {class: 'number'});
      return {
        button,
        bar,
        ghost,
        number,
        element: h('div', {class: 'word'}, button, h('div', {class: 'hang'}, ghost, bar), number)
      };
    });
    this.lane.replaceChildren(this.arcs, ...this.items.map(item => item.element));
  }

  /** Move the word at place `from` to place `to`. */
  swap(from, to) {
    const order = [...this.order];
    order.splice(to, 0, ...order.splice(from, 1));
    this.order = order;
    this.onorder(order);
    this.place();
  }

  /** Compute the place of each word, using the largest letters with which all words fit. now: move the words without
   * animation. */
  place(now = false) {
    const room = this.element.clientWidth;
    if (!room) return;
    const size = {...sizes[+roomy(this.element)]}, {chip: names} = size,
          within = Math.min(heightOf(this.element) - 20, room),
          scale = (within - names - 28) / (size.arcs + size.bars + (this.biases ? size.biases : 0));
    if (roomy(this.element) && scale > 1)
      for (const part of ['arcs', 'bars', 'biases']) size[part] = Math.round(scale * size[part]);
    this.lane.style.setProperty('--bars', `${size.bars}px`);
    this.lane.style.setProperty('--small', `${size.small}px`);
    let gap = widest;
    const measure = letters => {
      this.lane.style.fontSize = `${letters}px`;
      this.widths = this.items.map(item => item.element.offsetWidth);
      this.total = this.widths.reduce((sum, w) => sum + w + gap, -gap);
      return this.total <= room;
    };
    this.lane.classList.remove('upright');
    let {letters} = size, {chip} = size;
    while (!measure(letters) && letters > 11) letters--;
    if (this.total > room) {  // turn the words
      this.lane.classList.add('upright');
      this.lane.style.removeProperty('--tall');
      gap = 1;
      measure(letters = 12);
      gap = Math.min(widest, Math.max(1, Math.floor((room - this.total) / this.items.length)));
      measure(letters);
      chip = Math.max(...this.items.map(item => item.button.offsetHeight));
      this.lane.style.setProperty('--tall', `${chip}px`);
      chip += 14;
    }
    this.size = {...size, chip};
    const wide = Math.max(room, this.total),
          spread = Math.max(0,
            Math.min(roomy(this.element) ? 2 * letters : letters,
              (wide - this.total - (roomy(this.element) ? 120 : 0)) / (this.items.length + 1)));
    let x = (wide - this.total - spread * (this.items.length - 1)) / 2;
    this.goal = [];
    for (const n of this.order) this.goal[n] = x + this.widths[n] / 2, x += this.widths[n] + gap + spread;
    Object.assign(this.lane.style,
      {width: `${wide}px`, height: `${size.arcs + chip + size.bars + 28 + (this.biases ? size.biases : 0)}px`});
    this.arcs.setAttribute('viewBox', `0 0 ${wide} ${parseFloat(this.lane.style.height)}`);
    if (now || still.matches || this.at.length !== this.goal.length) this.at = [...this.goal];
    if (!this.frame) this.draw();
  }

  draw() {
    this.frame = 0;
    let busy = false;
    this.goal.forEach((goal, n) => {
      if (this.drag?.n === n) return;
      const step = goal - this.at[n];
      this.at[n] = Math.abs(step) < 0.5 ? goal : this.at[n] + step * (still.matches ? 1 : 0.2);
      busy ||= this.at[n] !== goal;
    });
    this.items.forEach(({element}, n) => {
      element.style.transform = `translate(${this.at[n] - this.widths[n] / 2}px, ${this.size.arcs}px)`;
      element.classList.toggle('held', this.drag?.n === n);
    });
    this.arcs.replaceChildren(...this.paths(), ...this.hanging(), ...this.names());
    if (busy) this.frame = requestAnimationFrame(() => this.draw());
  }

  paths() {
    const from = this.at[this.chosen], max = Math.max(...this.weights), {arcs} = this.size, y = arcs - 3;
    const reach = Math.max(...this.at.map(to => Math.abs(to - from)), 1);
    return this.at.map((to, n) => {
      const fraction = this.weights[n] / max, high = 22 + (arcs - 34) * Math.abs(to - from) / reach;
      const thick = 0.7 + Math.min(arcs / 14, 20) * fraction, side = 20 + 2.6 * thick, end = 7 + thick / 3,
            own = 30 + 3 * thick;  // keep the loop from a word to itself open
      const d = n === this.chosen ?
        `M${from - end} ${y}C${from - side} ${y - own} ${from + side} ${y - own} ${from + end} ${y}` :
        `M${from} ${y}C${from} ${y - high * 1.25} ${to} ${y - high * 1.25} ${to} ${y}`;
      return h('path', {
        d,
        fill: 'none',
        stroke: 'var(--s0)',
        'stroke-width': thick.toFixed(2),
        'stroke-linecap': 'round',
        'stroke-opacity': (0.25 + 0.6 * fraction).toFixed(2)
      });
    });
  }

  /** Label the rows of bars if there is space next to them. */
  names() {
    const {arcs, chip, bars} = this.size, first = this.order[0];
    if (this.goal[first] - this.widths[first] / 2 < 60) return [];
    const name = (text, y) => h('text', {x: 0, y, fill: 'var(--soft)'}, text);
    return [name('weight', arcs + chip + 16), ...(this.biases ? [name('bias', arcs + chip + bars + 46)] : [])];
  }

  /** Draw the bars of the biases. They belong to places, not to words. */
  hanging() {
    if (!this.biases) return [];
    const {arcs, chip, bars, biases} = this.size, top = arcs + chip + bars + 34, least = Math.min(-1, ...this.biases),
                             room = biases - 26, narrow = this.lane.classList.contains('upright');
    return this.order.flatMap((n, place) => {
      const high = this.biases[place] / least * room, x = this.goal[n];
      return [
        h('rect', {x: x - 9, y: top, width: 18, height: Math.max(high, 1), fill: 'var(--s1)', rx: 2}),
        h('text', {x, y: top + high + 14, 'text-anchor': 'middle', fill: 'var(--ink)'},
          minus(fixed(this.biases[place], narrow ? 1 : 2)))
      ];
    });
  }

  grab(event, n) {
    if (event.button) return;
    event.currentTarget.setPointerCapture(event.pointerId);
    this.drag = {n, start: event.clientX, x: this.at[n]};
    this.moved = false;
  }

  pull(event, n) {
    if (this.drag?.n !== n) return;
    const by = event.clientX - this.drag.start;
    if (!this.moved && Math.abs(by) < 5) return;
    this.moved = true;
    this.at[n] =
      Math.min(Math.max(this.drag.x + by, this.widths[n] / 2), parseFloat(this.lane.style.width) - this.widths[n] / 2);
    const from = this.order.indexOf(n), passed = (other, sign) => sign * (this.at[n] - this.goal[other]) > 0;
    let to = from;
    while (to > 0 && passed(this.order[to - 1], -1)) to--;
    while (to < this.order.length - 1 && passed(this.order[to + 1], 1)) to++;
    if (to !== from) this.swap(from, to);
    else if (!this.frame) this.draw();
  }

  drop(n) {
    if (this.drag?.n !== n) return;
    this.drag = null;
    if (!this.frame) this.draw();
  }
}
