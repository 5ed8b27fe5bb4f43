// byte_model.js -- the last step: a trained byte model reads the text of the user. All heads, one row of attention
// split into content and position, the next byte, and the loss at each byte. SPDX-License-Identifier: Apache-2.0
import {ticks} from '../chart.js';
import {shell} from '../code.js';
import {colours, paintScale} from '../heat.js';
import {modelFile, probabilities, Trained} from '../trained.js';
import {arrows, colour, controls, count, download, fixed, followChosen, h, minus, viewLink} from '../ui.js';

import {frac, i, math, named, o, root, row, sub, words} from './mathml.js';
import {heightOf, paper, player, step, widthOf} from './step.js';

const example = 'The cursor is moved to the next line. The cur', most = 256, likeliest = 7, guessing = Math.log(256),
      writes = 40;
const samples = {
  'Vim’s help': 'Move the cursor to the end of the line. Move the cur',
  'a novel': 'It was the best of times, it was the worst of times, it was',
  code: 'for (int i = 0; i < n; i++) sum += x[i];',
  repetition: 'See the option list. See the option list. See the option list. See the opt'
};
const layers = 4, perLayer = 4;  // of the model in lab/model
const schemes = [  // the value of the setting, a name, and the text of the choice
  ['', 'T5, as trained', 'T5 positions'], ['none', 'none', 'no positions'], ['alibi', 'ALiBi', 'ALiBi positions'],
  ['rope', 'RoPE', 'RoPE positions']
];

/** Return the text that the model reads: the last `most` bytes in whole characters, or the example if there is no text.
 * */
function textOf(text) {
  const bytes = new TextEncoder().encode(text);
  let from = Math.max(bytes.length - most, 0);
  while (bytes[from] >> 6 === 2) from++;  // not within a character
  return new TextDecoder('utf-8', {ignoreBOM: true}).decode(bytes.subarray(from)) || example;
}

/** Return a printable name of a byte. */
const nameOf = byte => byte === 32 ? '␣' :
  byte === 10                      ? '⏎' :
  byte === 9                       ? '⇥' :
  byte > 32 && byte < 127          ? String.fromCharCode(byte) :
                                     byte.toString(16).padStart(2, '0');
const perplexity = loss => Math.exp(loss.reduce((a, b) => a + b, 0) / loss.length);
/** Return a round number that is not below x > 0, by at most a half more. */
const roundUp = x => {
  const power = 10 ** Math.floor(Math.log10(x));
  return [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].find(step => step * power >= x * 0.9999) * power;
};
const digits = x => x < 1e4 ? fixed(x, 2) : x.toExponential(1);

/** The bytes of the text, each under a bar of its loss. Tab reaches the chosen one, and the arrow keys move. */
class Strip {
  constructor(onpick) {
    this.onpick = onpick;
    this.element = h('div', {
      class: 'bytes',
      role: 'slider',
      tabindex: 0,
      'aria-label': 'Byte whose attention is shown',
      'aria-valuemin': 0,
      onkeydown: event => {
        const to = arrows(event, this.chosen, this.cells.length);
        if (to !== null) onpick(this.chosen = to);  // another key may come before the next frame
      },
      onclick: event => this.pick(event),
      onpointermove: event => event.buttons & 1 && this.pick(event)  // along the text, as on a slider
    });
    this.legend = h('p', {class: 'note surprise'});
    this.cells = [];
    this.follow = followChosen(this.element);
  }

  pick({clientX, clientY}) {
    const at = this.cells.indexOf(document.elementFromPoint(clientX, clientY)?.closest('.byte'));
    if (at >= 0 && at !== this.chosen) this.onpick(this.chosen = at);
  }

  show({tokens, loss, other, chosen, weights, follow, letter, wide}) {
    this.chosen = chosen;
    this.element.style.setProperty('--letter', `${letter}px`);
    while (this.cells.length < tokens.length) {
      const cell = h('span', {class: 'byte'}, h('i', {}), h('b', {}), h('span', {}));
      this.cells.push(cell);
      this.element.append(cell);
    }
    while (this.cells.length > tokens.length) this.cells.pop().remove();
    const full = 1.5 * guessing, draw = (bar, x) => {  // its height is a share of --bar
      bar.style.setProperty('--part', Math.min(x / full, 1));
      bar.classList.toggle('over', x > full);
    };
    this.cells.forEach((cell, n) => {
      const [bar, ghost, text] = cell.children;
      text.textContent = nameOf(tokens[n]);
      draw(bar, n ? loss[n - 1] : 0);
      ghost.hidden = !other || !n;
      if (other && n) draw(ghost, other[n - 1]);
      cell.classList.toggle('wide', text.textContent.length > 1);
      cell.classList.toggle('query', n === chosen);
      text.style.setProperty('--weight', `${Math.round(100 * (weights[n] ?? 0) ** 0.5)}%`);
      cell.title = n ? `“${nameOf(tokens[n])}”: loss ${fixed(loss[n - 1], 2)}` : 'the first byte is not predicted';
    });
    const mean = fixed(loss.reduce((a, b) => a + b, 0) / loss.length, 2);
    this.legend.replaceChildren(h('span', {class: 'swatch'}),
      wide ? `Surprise at each byte, on average ${mean} nats; grey line: guessing, ${fixed(guessing, 2)}.` :
             `Surprise, mean ${mean} nats; grey: guessing.`,
      other ? ' Short lines: with T5.' : '',
      loss.some(x => x > full) ? ` Pointed bars: more than ${fixed(full, 2)}.` : '');
    this.element.setAttribute('aria-valuemax', tokens.length - 1);
    this.element.setAttribute('aria-valuenow', chosen);
    this.element.setAttribute('aria-valuetext', `byte ${chosen}, “${nameOf(tokens[chosen])}”`);
    if (follow) this.follow();
  }
}

/** Return the sizes of the picture for n bytes. all: its width; screen: the height that is left for it on the first
 * screen; wide: the next bytes are beside the row; low: the maps are in one row; plain: there is a second legend.
 * Return {letter, bar, across, height, hidden}: the width of a letter and the width of the maps in pixels, the height
 * of the bars of surprise in rem, that of the row in pixels, and whether lines are hidden. */
function layout({n, all, screen, wide, low, plain}) {
  const room = all - 4, lines = Math.ceil(n * 13 / room), seen = wide ? lines : Math.min(lines, 4),
        letter = Math.min(Math.floor(10 * room / Math.ceil(n / lines)) / 10, 20);  // all lines are full
  const barOf = () => {
    if (low) return 1;
    if (!wide) return 1.2;
    return screen > 740 && lines < 3 ? [3.6, 2.8][lines - 1] : lines > 2 ? 1.3 : screen > 680 ? 2.1 : 1.5;
  };
  const bar = barOf(), strips = (24.4 + 16 * bar) * seen, good = 170;  // a height of the row that shows its bars well
  const rest = screen - strips - (!wide ? 328 + (plain ? 17 : 0) : low ? 160 : 243);  // for maps and row
  const across = low ? all :
    wide             ? Math.min(Math.max(4 * (rest - good), (screen < 620 ? 0.7 : 0.92) * all), all) :
                       Math.min(all, 416),
        [least, highest] = wide ? [110, 400] : [low ? 130 : 114, 240],
        height = Math.min(Math.max(rest - across / (low && wide ? 16 : 4), least), highest);
  return {letter, bar, across, height, hidden: lines > seen};
}

/** Return what a head mostly attends to, as a sentence without its subject, from its weights [n][n] at data[from]: the
 * means over all queries but the first few, for which all keys are near. */
function habit(data, from, n) {
  const least = 4, queries = n - least,
        sums = [0, 0, 0, 0, 0];  // of the weights at distance 0 to 3, and of the first byte
  let width = 0;
  for (let i = least; i < n; i++) {
    let entropy = 0;
    const row = from + i * n;
    for (let back = 0; back < 4; back++) sums[back] += data[row + i - back];
    sums[4] += data[row];
    for (let x = row; x <= row + i; x++) entropy -= data[x] > 0 ? data[x] * Math.log(data[x]) : 0;
    width += Math.exp(entropy);
  }
  const most = Math.max(...sums),
        what = ['the byte itself', 'the byte before', 'two bytes before', 'three bytes before', 'the first byte'];
  if (queries < 4) return '';
  return most > 0.3 * queries ?
    `gives ${Math.round(100 * most / queries)} % of its weight to ${what[sums.indexOf(most)]}` :
    `spreads its weight over about ${Math.round(width / queries)} bytes`;
}

/** The attention maps of all heads. Tab reaches the chosen head, and the arrow keys move. */
class Heads {
  constructor(onpick) {
    this.buttons = Array.from({length: layers * perLayer}, (_, n) => {
      const canvas = h('canvas', {'aria-hidden': 'true'});
      return h('button', {
        type: 'button',
        onclick: () => onpick(n),
        onkeydown: event => {
          const to = arrows(event, n, layers * perLayer);
          if (to !== null) onpick(to), this.buttons[to].focus();
        }
      },
        canvas, h('span', {}, `${Math.floor(n / perLayer)}.${n % perLayer}`));
    });
    this.bar = h('canvas', {width: 256, height: 1, 'aria-hidden': 'true'});
    this.middle = h('span');
    this.said = h('span', {class: 'habit'});
    this.element = h('div', {class: 'maps', role: 'group', 'aria-label': 'Attention of every head'}, this.buttons,
      h('div', {class: 'scale'}, h('span', {}, 'weight 0'), this.bar, this.middle, this.said));
  }

  show({maps, habits}, n, chosen) {
    const ramp = colours(), keys = Math.max(n, 4),
          power = Math.log(4) / Math.log(keys);  // equal weights have a quarter of the scale in texts of every length
    paintScale(this.bar, ramp);
    this.middle.textContent = `1, in the middle ${fixed(1 / Math.sqrt(keys), 2)}`;
    this.element.classList.toggle('fine', n > 100);
    this.said.textContent = habits[chosen] && `On average, head ${this.buttons[chosen].textContent} ${habits[chosen]}.`;
    this.buttons.forEach((button, at) => {
      const canvas = button.firstChild, data = maps[Math.floor(at / perLayer)], from = at % perLayer * n * n;
      button.setAttribute('aria-pressed', at === chosen);
      button.tabIndex = at === chosen ? 0 : -1;
      button.setAttribute('aria-label', `layer ${Math.floor(at / perLayer)}, head ${at % perLayer}`);
      button.title = habits[at] && `On average, this head ${habits[at]}`;
      if (canvas.width !== n) [canvas.width, canvas.height] = [n, n];
      const brush = canvas.getContext('2d'), image = brush.createImageData(n, n),
            pixels = new Uint32Array(image.data.buffer);
      for (let r = 0; r < n; r++)
        for (let c = 0; c <= r; c++) pixels[r * n + c] = ramp[Math.round(255 * data[from + r * n + c] ** power)];
      brush.putImageData(image, 0, 0);
    });
  }
}

/** One row of attention: for each key bars of content and position, their sum, and the weight below. */
class Row {
  constructor(onpick) {
    this.onpick = onpick;
    this.svg = h('svg', {
      class: 'chart',
      tabindex: 0,
      role: 'img',
      onkeydown: event => {
        const to = arrows(event, this.key, this.n);
        if (to !== null) onpick(this.key = to);
      },
      onclick: event => this.point(event, true),
      onpointermove: event => this.point(event),
      onpointerleave: () => this.read(this.key)
    });
    this.caption = h('figcaption');
    this.readout = h('p', {class: 'readout', 'aria-live': 'polite'});
    this.element = h('figure', {class: 'sums'}, this.caption, this.svg,
      h('div', {class: 'legend'}, ...[['content', 0], ['position', 1], ['score', 5], ['weight', 2]].map(([name,
        n]) => h('span', {}, h('span', {class: 'swatch', style: `background: var(--s${n})`}), name))),
      this.readout);
  }

  point(event, pick = false) {
    const box = this.svg.getBoundingClientRect(),
          at = Math.floor(((event.clientX - box.left) * this.width / box.width - this.left) / this.each);
    if (!(at >= 0 && at < this.n)) return;
    if (pick) this.onpick(at);
    else this.read(at);
  }

  read(j) {
    this.mark.setAttribute('x', this.left + j * this.each);
    const {content, score, weights} = this.row, position = score[j] - content[j],
                           [c, p, s] = [content[j], position, score[j]].map(x => fixed(x, 2));
    const sign = p.startsWith('-') ? '−' : '+';
    this.readout.replaceChildren(`“${nameOf(this.tokens[j])}”, distance ${this.i - j}: `,
      h('span', {class: 'content'}, minus(c)), ` ${sign} `, h('span', {class: 'position'}, p.replace('-', '')),
      ` = ${minus(s)} → weight `, h('span', {class: 'share-text'}, fixed(weights[j], 3)));
  }

  show({tokens, row, i, key, width, height, title}) {
    const n = i + 1, named = width > 370, left = named ? 48 : 30, each = (width - left) / n,
          {content, score, weights} = row, below = height * 0.3, top = 6;
    Object.assign(this, {tokens, row, i, n, key, width, left, each});
    this.caption.textContent = title;
    const position = Array.from(score, (x, j) => x - content[j]);
    let low = 0, high = 0;
    for (let j = 0; j < n; j++) {
      const pair = [content[j], position[j]];
      low = Math.min(low, pair.reduce((sum, x) => sum + Math.min(x, 0), 0)),
      high = Math.max(high, pair.reduce((sum, x) => sum + Math.max(x, 0), 0));
    }
    const room = height - below - 20 - top, py = y => top + (high - y) / (high - low || 1) * room, base = height - 18,
          most = Math.max(...weights.subarray(0, n)) || 1, full = roundUp(most),
          bar = Math.max(Math.min(each - 1, 16), 0.8),
          parts = [this.mark = h('rect', {width: each, y: 0, height, fill: 'var(--panel)', class: 'mark'})];
    const box = (x, from, to, fill, name) => parts.push(h('rect', {
      x,
      width: bar,
      y: Math.min(from, to),
      height: Math.max(Math.abs(to - from), 0.4),
      fill: `var(--s${fill})`,
      class: name
    }));
    const letters =
      [];  // the centres of those that are written: where there is little space, those of the largest weights
    for (let j = 0; j < n; j++) {
      const x = left + (j + 0.5) * each - bar / 2, [c, p] = [content[j], position[j]], start = c * p > 0 ? c : 0;
      box(x, py(0), py(c), 0, 'content'), box(x, py(start), py(start + p), 1, 'position');
      parts.push(
        h('rect', {x: x - 0.5, width: bar + 1, y: py(score[j]) - 1, height: 2, fill: 'var(--s5)', class: 'score'}));
      box(x, base, base - weights[j] / full * (below - 14), 2, 'share-bar');
    }
    const heavy =
      [...Array(n).keys()].filter(j => each >= 7 || weights[j] > 0.1 * most).sort((a, b) => weights[b] - weights[a]);
    for (const j of heavy) {
      const x = left + (j + 0.5) * each;
      if (each < 7 && letters.some(other => Math.abs(other - x) < 8)) continue;
      letters.push(x);
      parts.push(
        h('text', {x, y: height - 4, 'text-anchor': 'middle', fill: 'var(--ink)', class: 'letter'}, nameOf(tokens[j])));
    }
    parts.push(h('line', {x1: left, x2: width, y1: py(0), y2: py(0), stroke: 'var(--line)'}),
      h('line', {x1: left, x2: width, y1: base, y2: base, stroke: 'var(--line)'}));
    const axis = (name, values, y) => {
      for (const x of values)
        parts.push(h('text', {x: left - 5, y: y(x) + 4, 'text-anchor': 'end', fill: 'var(--soft)', class: 'tick'},
          minus(+x.toPrecision(3))));
      const middle = (y(values[0]) + y(values.at(-1))) / 2;
      if (named)
        parts.push(h('text',
          {x: 11, y: middle, 'text-anchor': 'middle', fill: 'var(--soft)', transform: `rotate(-90 11 ${middle})`},
          name));
    };
    let marks = [0], steps = room / 30;  // before the model is loaded, all scores are 0
    while (marks.length < (room > 45 ? 3 : 2) && high > low) marks = ticks(low, high, steps++);
    if (room < 20 * (marks.length - 1)) marks = [...new Set([marks[0], 0, marks.at(-1)])];
    axis('score', marks, py);
    axis('weight', [0, full], x => base - x / full * (below - 14));
    this.svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    this.svg.setAttribute('aria-label', `${title}. Arrow keys move to other bytes.`);
    this.svg.replaceChildren(...parts);
    this.read(key);
  }
}

/** Show the likeliest next bytes. A click appends one to the text. write: a button that appends several. */
class Next {
  constructor(onpick, write) {
    this.caption = h('figcaption');
    this.list = h('div', {class: 'next-bytes'},
      Array.from({length: likeliest},
        (_, n) => h('button', {type: 'button', onclick: () => onpick(this.order[n])}, h('b', {}),
          h('span', {class: 'share'}), h('span', {}))));
    this.element = h('figure', {class: 'next-figure'}, this.caption, write, this.list);
  }

  /** Return one of the shown bytes that a text field can have, at random: each as often as the model expects it. */
  sample(p) {
    const able = this.order.filter(byte => byte > 31 && byte < 127), sum = able.reduce((sum, byte) => sum + p[byte], 0);
    let rest = Math.random() * sum;
    return able.find(byte => (rest -= p[byte]) < 0) ?? 32;
  }

  show(p, {said, append, few}) {
    this.order = [...p.keys()].sort((a, b) => p[b] - p[a]).slice(0, likeliest);
    this.caption.textContent = said;
    this.order.forEach((byte, n) => {
      const button = this.list.children[n], [name, share, number] = button.children;
      button.disabled = !append || byte > 126;
      name.textContent = nameOf(byte);
      button.hidden = few && n > 4;
      share.style.width = `${100 * p[byte]}%`;
      number.textContent = p[byte] < 5e-4 ? '< 0.001' : fixed(p[byte], 3);
      button.setAttribute('aria-label', `${nameOf(byte)}, probability ${number.textContent}`);
    });
  }
}

const bytesOf = text => [...new TextEncoder().encode(text)];

/** Return what recognizes the text and the positions that were read. */
const idOf = ({scheme, text}) => `${scheme} ${textOf(text)}`;

/** Return what is shown of n bytes before the model is loaded: zeros in the shapes of what a text gives. */
const blank = (tokens, n) => ({
  tokens,
  n,
  loss: new Float64Array(n - 1),
  maps: Array(layers).fill(new Float64Array(perLayer * n * n)),
  habits: Array(layers * perLayer).fill(''),
  rowOf: () => ({content: new Float64Array(n), score: new Float64Array(n), weights: new Float64Array(n)}),
  after: () => new Float64Array(256)
});

/** The trained model, once it is loaded, and the last text that it has read. */
class ByteModel {
  /** onload(): the model was loaded, or failed to load. */
  constructor(core, onload) {
    this.trained = this.failed = null;
    this.found = {};
    Trained.load(core).then(loaded => this.trained = loaded, error => this.failed = error).then(onload);
  }

  /** Run the model on a text, unless that was the last text. */
  read(text, scheme) {
    const {trained, found} = this, id = idOf({scheme, text}), tokens = bytesOf(text), n = tokens.length;
    if (!trained) return blank(tokens, n);
    if (found.id === id) return found;
    this.found = {};
    const plain = scheme && trained.run(tokens).loss, {loss, logits} = trained.run(tokens, scheme || trained.position);
    const maps = Array.from({length: layers}, (_, layer) => trained.maps(layer));
    return this.found = {
      id,
      tokens,
      n,
      plain,
      loss,
      maps,
      habits: maps.flatMap(data => Array.from({length: perLayer}, (_, head) => habit(data, head * n * n, n))),
      rowOf: (layer, head, at) => trained.row(layer, head, at),
      after: at => probabilities(logits, at)
    };
  }

  /** Return the perplexity of a text with the positions of each scheme. */
  perplexities(tokens) {
    const {trained} = this;
    this.found = {};  // the module then has the numbers of another run
    return schemes.map(([position]) => perplexity(trained.run(tokens, position || trained.position).loss));
  }
}

/** Return the controls; choose(scheme): called when the reader chooses positions. */
function settingsOf(change, choose) {
  const last = ({text}) => bytesOf(textOf(text)).length - 1;
  return controls(
    [
      {
        key: 'scheme',
        label: 'Positions',
        type: 'select',
        options: schemes.map(([value, , text]) => [value, text]),
        change: (_, scheme) => choose(scheme)
      },
      {key: 'text', type: 'text'}, {key: 'head', lower: 0, upper: 15},
      {key: 'at', lower: -1, upper: most - 1, limit: last}, {key: 'key', lower: -1, upper: most - 1, limit: last}
    ],
    change);
}

/** Return the field for the reader's text. */
function textField(edit) {
  const input = h('input', {
    type: 'text',
    id: 'own-text',
    'aria-label': 'Your text',
    spellcheck: 'false',
    autocomplete: 'off',
    autocapitalize: 'off',
    placeholder: example,
    'data-key': 'text',
    oninput: () => edit({text: input.value})
  });
  return input;
}

/** Return buttons that replace the text by an example. */
const triesOf = edit =>
  h('div', {class: 'tries', role: 'group', 'aria-label': 'Example texts', 'data-unsaved': ''}, h('span', {}, 'Try:'),
    Object.entries(samples).map(([name, text]) => h('button', {type: 'button', onclick: () => edit({text})}, name)));

/** Return the button that appends bytes, each as often as the model expects it. appended(byte): the new text. */
function writeButton({state, change, edit, reader, appended, sample}) {
  let written = 0, rest = 0;  // bytes, and milliseconds since the last
  const write = player({
    key: 'text',
    state,
    change,
    text: 'Write on',
    next(text, ms) {
      const {found} = reader;
      if (written === writes) return null;
      if ((rest += ms) < 120 || found.id !== idOf(state())) return text;
      rest = 0, written++;
      return appended(sample(found.after(found.n - 1)));
    }
  });
  write.addEventListener('click', () => {
    written = 0;
    edit({});
  });
  write.dataset.unsaved = '';
  return write;
}

/** Return the parts of the step and what they work with. */
function viewOf({core, change, state}) {
  let guessed = false;  // the positions are those that a guess has shown: another text is read with T5 again
  const choose = (scheme, by = false) => {
    guessed = by;
    change({scheme});
  };
  const edit = patch => {
    change(guessed ? {...patch, scheme: ''} : patch);
    guessed = false;
  };
  const appended = byte => (state().text || example) + String.fromCharCode(byte);
  const settings = settingsOf(change, choose), input = textField(edit), tries = triesOf(edit),
        reader = new ByteModel(core, () => change({}));
  const write = writeButton({state, change, edit, reader, appended, sample: p => next.sample(p)});
  const strip = new Strip(at => change({at, key: -1})), sums = new Row(key => change({key})),
        next = new Next(byte => edit({text: appended(byte)}), write),
        heads = new Heads(head => change({head, key: -1}));
  const box = h('div', {class: 'live'}, h('div', {class: 'typing'}, input, settings.element, tries), strip.element,
    strip.legend, heads.element, h('div', {class: 'two'}, sums.element, next.element));
  return {settings, input, reader, strip, sums, next, heads, box, choose};
}

/** Return the question of the step. */
function guessOf({reader, choose}, state) {
  let all = [];  // the perplexity of each scheme
  return {
    ask: 'the model was trained with T5. With which other scheme does it read your text best?',
    choices: schemes.slice(1).map(([, name]) => name),
    right: () => {
      const tokens = bytesOf(textOf(state().text));
      if (!reader.trained || tokens.length < 2) return [];
      all = reader.perplexities(tokens);
      const [, ...others] = all.map(digits), best = digits(Math.min(...all.slice(1)));
      return [...others.keys()].filter(n => others[n] === best);
    },
    because: () =>
      `The perplexities of your text: ${schemes.map(([, name], n) => `${name} ${digits(all[n])}`).join(', ')}.`,
    reveal: ([best]) => choose(schemes[1 + best][0], true)
  };
}

/** Return the paragraphs of the step. */
const paragraphs =
  () => ['You see its surprise, its 16 heads (named layer.head), and the bytes that it expects; “Write on” appends ' +
      '40 of them, each as often as it expects it. Click a map to choose a head, and a letter to choose the ' +
      'query. Each score is a sum: what the two bytes are (content) and how far apart they are (position). The ' +
      'softmax turns the scores into weights.',
    [
      'Here it reads up to 256 bytes, the length in training: ', viewLink({id: 'length'}, 'read on to 8,192 bytes'), '.'
    ],
    'Take the positions away, or replace T5’s learned table by ALiBi or RoPE; the model is not trained again. ' +
      'It then reads texts like those of its training, Vim’s help, worse; it may read other texts better.'];

function formulaOf({scheme}) {
  const minus = (from, to) => [o('('), i(from), o('−'), i(to), o(')')],
        turned = (x, at) => scheme === 'rope' ? [sub(i('R'), i(at)), sub(i(x), i(at))] : [sub(i(x), i(at))];
  const position = {
    '': [o('+'), sub(words('table'), row(words('bucket'), ...minus('j', 'i'), o(','), i('h')))],
    alibi: [o('−'), sub(i('m'), i('h')), ...minus('i', 'j')]
  }[scheme] ??
    [];
  return [
    math(sub(i('s'), row(i('i'), i('j'))), o('='),
      frac(row(...turned('q', 'i'), o('·'), ...turned('k', 'j')), root(i('d'))), ...position),
    math(words('loss'), o('='), o('−'), named('log', i('p')), o('('), words('next byte'), o(')'))
  ];
}

function notesOf({lengths}) {
  const [whole, rounded] = lengths.rounding.vim.map(x => fixed(x, 3));
  return [
    `The model has 4 layers of 4 heads and 822,016 weights. It learned from a part of Vim’s help, so it expects ` +
      `that style. Its weights are rounded to 5 bits here, which raises the perplexity on the held-out text from ${
        whole} to ${rounded}. The laboratory’s own code runs the model in this page.`,
    'A map has a row for each query and a column for each key. Bright is large; the middle of the scale is 1/√n ' +
      'for n bytes, and equal weights have a quarter of it. The surprise is the loss, in nats; guessing among ' +
      '256 ' +
      'bytes has 5.55. With other positions, a short line marks the loss with T5.',
    '“Save the model” writes the file that the commands read.'
  ];
}

/** Return the title of the row, as long as the width allows. */
const rowTitle = (width, layer, head, at, byte) => width > 520 ?
  `Head ${layer}.${head} at byte ${at}, “${nameOf(byte)}”: content + position = score → weight` :
  width > 390 ? `Head ${layer}.${head}, “${nameOf(byte)}”: content + position → weight` :
                `Head ${layer}.${head} at byte ${at}`;

/** Return the perplexity of a text as a sentence: now, and old with the positions of the training. */
function sentence(chosen, n, now, old) {
  const predicted = n > 2 ? `the ${n - 1} bytes after the first` : 'the second byte',
        size = h('strong', {}, digits(now));
  if (!chosen) {
    const choices = now < 10 ? fixed(now, 1) : Math.round(now), rare = now > 12 ? ' It has seen little such text.' : '';
    return [
      `The perplexity of ${predicted} is `, size,
      now > 256 ? ': worse than guessing among all 256 bytes. The model does not know such text.' :
                  `: at each byte, the model is as unsure as among ${choices} equally likely bytes.${rare}`
    ];
  }
  const scheme = schemes.find(([value]) => value === chosen)[1], few = n < 32 ? ' A few bytes say little.' : '';
  return [
    `With ${scheme === 'none' ? 'no positions' : scheme}, the perplexity of ${predicted} is `, size,
    digits(now) === digits(old) ? ', the same as with T5, which the model was trained with.' :
      now < old ? `, lower than with T5 (${digits(old)}), although the model was trained with T5.${few}` :
                  `, with T5 it is ${digits(old)}: the model was trained with T5.`
  ];
}

const codeOf = ({text, scheme}, n, layer, head) => ({
  CLI: [
    `printf %s ${shell([text])} >text.txt`, shell([
      'relpos', 'lab', 'eval', modelFile, '--text', 'text.txt', '--lengths', n - 1,
      ...(scheme ? ['--position', scheme] : [])
    ]),
    ...(scheme ? [] : [shell([
      'relpos', 'explain', '--model', modelFile, '--text', text, '--layer', layer, '--head', head, '--json'
    ])])
  ].join('\n')
});

/** Show the settings and the reader's text in a box that is wide or low. */
function showText({box, settings, input}, state, wide, low) {
  box.classList.toggle('wide', wide), box.classList.toggle('low', low);
  settings.set(state);
  if (input.value !== state.text) {
    input.value = state.text;
    input.scrollLeft = input.scrollWidth;  // its end is in sight
  }
}

/** Show what the model has read in all figures: found, with the byte `at`, the head and the key of the state. Return
 * {layer, head, line: the row, p: the probabilities of the next byte}. */
function showRead({box, strip, heads, sums, next}, state, found, at, {all, screen, wide, low, width}) {
  const {tokens, n, plain, loss, maps, habits, rowOf, after} = found,
                                                      {letter, bar, across, height, hidden} =
                                                        layout({n, all, screen, wide, low, plain});
  heads.element.style.setProperty('--maps', `${across}px`);
  box.classList.toggle('brief', across < 0.9 * all);
  const layer = Math.floor(state.head / perLayer), head = state.head % perLayer, line = rowOf(layer, head, at),
        p = after(at), weights = line.weights.subarray(0, at + 1), heaviest = weights.indexOf(Math.max(...weights)),
        key = state.key < 0 ? heaviest : Math.min(state.key, at);
  strip.element.style.setProperty('--bar', `${bar}rem`);
  strip.show({tokens, loss, other: plain, chosen: at, weights, follow: hidden, letter, wide});
  heads.show({maps, habits}, n, state.head);
  sums.show({tokens, row: line, i: at, key, width, height, title: rowTitle(width, layer, head, at, tokens[at])});
  next.show(
    p, {said: at === n - 1 ? 'Next byte' : `After byte ${at}`, append: at === n - 1, few: wide && height < 165});
  return {layer, head, line, p};
}

/** Show a state in the view. Return what the page says and saves. */
function compute(view, state) {
  // before the page changes: later, the browser would compute the layout
  const {box, reader} = view, all = widthOf(box), wide = all > 560, screen = heightOf(box), low = screen < 500,
              width = all - (wide ? 214 : 0);
  showText(view, state, wide, low);
  if (reader.failed) throw reader.failed;
  const one = /^[\0-\x7f]$/.test(state.text);  // the first letter of a text that the reader begins to type
  box.classList.toggle('waiting', one);
  const nothing = {csv: () => [], code: {CLI: ''}, numbers: {}};
  if (one) return {said: 'Type on: the model predicts each byte from those before.', ...nothing};
  const start = performance.now(), text = textOf(state.text), whole = bytesOf(state.text).length,
        found = reader.read(text, state.scheme), {tokens, n, plain, loss, maps} = found,
        at = state.at < 0 ? n - 1 : Math.min(state.at, n - 1),
        {layer, head, line, p} = showRead(view, state, found, at, {all, screen, wide, low, width});
  const now = perplexity(loss), old = plain && perplexity(plain), ms = performance.now() - start;
  if (!reader.trained) return {said: 'The model is being unpacked …', ...nothing};
  return {
    said: sentence(state.scheme, n, now, old),
    cut: whole > n ? `Your text has ${count(whole)} bytes; these are the last ${n}.` : '',
    numbers: {
      perplexity: now,
      ms,
      get loss() { return [...loss]; },
      get probabilities() { return [...p]; },
      get maps() { return maps.map(map => [...map]); }
    },
    csv: () => [['byte', 'loss', 'content', 'score', 'weight'],
      ...tokens.map((byte, j) => [nameOf(byte), j ? loss[j - 1] : '',
                      ...j > at ? ['', '', ''] : [line.content[j], line.score[j], line.weights[j]]])],
    code: codeOf({text, scheme: state.scheme}, n, layer, head)
  };
}

export const model = {
  id: 'story-model',
  title: 'A model reads your text',
  name: 'A trained model',
  defaults: {text: '', scheme: '', head: 8, at: -1, key: -1},
  resets: ['at', 'key'],
  make({core, facts, change, state, story}) {
    const view = viewOf({core, change, state}), {reader} = view;
    return step(this, {
      story,
      settings: view.settings,
      state,
      change,
      figure: view.box,
      save: h('button', {type: 'button', onclick: () => reader.trained && download(modelFile, reader.trained.file())},
        'Save the model'),
      guess: guessOf(view, state),
      lead: [
        'Type a text. A model reads it.',
        h('span', {class: 'more'}, ' It is tiny: four layers of four heads, which have seen nothing but Vim’s help.')
      ],
      fold: 2,
      text: paragraphs(),
      formula: formulaOf,
      papers:
        [paper('Raffel et al. 2020, T5', '1910.10683'), paper('Cho et al. 2024, Transformer Explainer', '2408.04619')],
      workshop: viewLink({id: 'model'}, 'heads of other models'),
      notes: notesOf(facts),
      compute: state => compute(view, state)
    });
  }
};
