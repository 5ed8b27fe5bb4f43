// length.js -- the view of trained models on a longer and longer text: their perplexity by position. Small models, each
// trained with its own positions, or one model with the positions it was trained with and with others.
// SPDX-License-Identifier: Apache-2.0
import {chart} from '../chart.js';
import {shell} from '../code.js';
import {ofChart} from '../export.js';
import {frame} from '../frame.js';
import {Reader} from '../reader.js';
import {doubling, player} from '../story/step.js';
import {allModels, modelFile, Trained} from '../trained.js';
import {controls, count, download, extent, fileField, fixed, folded, h, table} from '../ui.js';

const min = 64, max = 8192, trainedAt = 256;
const textFile = 'relpos-text.txt';
const untrained = `The model was trained with T5, on texts of ${
  trainedAt} bytes; the other positions get its weights without more training.`;
const trainedTerms = 't5,bidirectional=0';

/** Return a line of the chart. m: the number of its model in trained.js; position: its terms; limit: how many bytes it
 * can read; file: the name under which the page saves the model; option: of relpos lab eval. */
const own = (m, position, name, of, limit = Infinity) => ({m, position, name, file: `relpos-${of}.safetensors`, limit});
const other = (position, name) => ({m: 0, position, name, file: modelFile, limit: Infinity, option: position});
const sets = {
  own: [
    own(1, trainedTerms, 'T5', 't5'), own(2, 'none', 'no positions', 'none'), own(3, 'alibi', 'ALiBi', 'alibi'),
    own(4, 'rope', 'RoPE', 'rope'), own(5, 'learned', 'a learned table', 'learned', trainedAt)
  ],
  swapped: [
    {...other(trainedTerms, 'T5'), option: ''}, other('none', 'no positions'), other('alibi', 'ALiBi'),
    other('rope', 'RoPE')
  ]
};

/** Return the ranges [from, to) of positions that `relpos lab eval` prints for n bytes: up to 64, and then twice as
 * many each time. */
function rangesOf(n) {
  const ranges = [];
  for (let from = 0, to = 64; from < n; from = to, to *= 2) ranges.push([from, Math.min(to, n)]);
  return ranges;
}

/** Return the part of the held-out text that comes with the page, in the form of a text that Reader has read with the
 * lines of a set: each byte has the mean loss of its range of `part` bytes. web/lengths.py measured these losses. */
function measured({text, lengths}, set) {
  const each = means => Float64Array.from({length: max}, (_, n) => means[Math.floor(n / lengths.part)] ?? NaN);
  return {
    read: max,
    tokens: new TextEncoder().encode(text),
    all: sets[set],
    losses: sets[set].map(({position}) => each(lengths[set][position]))
  };
}

const perplexity = (loss, [from, to]) => Math.exp(loss.subarray(from, to).reduce((sum, x) => sum + x, 0) / (to - from));

const bytes = ([from, to]) => `${count(from)} to ${count(to - 1)}`;

const bytesOf = (text, facts) => new TextEncoder().encode(text || facts.text).subarray(0, max + 1);

/** Return the range of perplexities of each set in the stored numbers. */
const limitsOf = stored => Object.fromEntries(Object.entries(stored).map(([set, {all, losses}]) => {
  const [low, high] = extent(
    all.map(({limit}, k) => rangesOf(max).filter(([, to]) => to <= limit).map(range => perplexity(losses[k], range))));
  return [set, {low: 0.9 * low, high: 1.1 * high}];
}));

/** Return the smallest distance in T5's last bucket. */
function lastBucket(core) {
  const t5 = {buckets: 32, maxDistance: 128, bidirectional: false, strategy: 0};  // the defaults of trainedTerms
  let distance = 0;
  while (core.bucket(-distance, t5) !== t5.buckets - 1) distance++;
  return distance;
}

/** The text that is shown with the losses of each line. It is the part that comes with the page, or one that a worker
 * reads. */
class Reading {
  /** current(): the state; isShown(): whether the view is on the page; onread(): more of the text was read. */
  constructor(core, facts, change, current, isShown, onread) {
    Object.assign(this, {facts, current, run: null, refused: null, part: facts.lengths.part});  // run: what is shown
    this.stored = {own: measured(facts, 'own'), swapped: measured(facts, 'swapped')};
    this.limits = limitsOf(this.stored);
    this.reader = new Reader(core, () => isShown() && !this.ready() ? onread() : this.reader.want(0), (why, text) => {
      this.refused = {id: text.of, why};
      change({});
    });
  }

  /** Return the largest length that a state can have. */
  longest({text}) { return Math.max(min, bytesOf(text, this.facts).length - 1); }

  alone() { return this.current().models === 'swapped'; }

  also() { return this.alone() ? this.current().also.trim() : ''; }

  /** Return what the reader has to read, to recognize it. */
  wanted() { return JSON.stringify([this.current().text, this.current().models, this.also()]); }

  /** Return true if the text and the lines are those of the stored numbers. */
  given() { return !this.current().text && !this.also(); }

  /** Return the number of bytes that the stored numbers cover: whole ranges of `part`. */
  whole() { return this.current().length - this.current().length % this.part; }

  /** Return true if nothing has to be read. */
  ready() { return this.given() && this.whole() === this.current().length; }

  isStored() { return this.run === this.stored[this.current().models]; }

  /** Return how many bytes of the wanted length are shown. */
  shown() { return this.isStored() ? this.whole() : Math.min(this.run.read, this.current().length); }

  /** Choose the stored numbers, or what has been read of another text. Return false before its first bytes: then the
   * picture of the text before stays. */
  choose() {
    const {text} = this.reader;
    if (this.ready() || this.given() && !(text?.of === this.wanted() && text.read > this.whole()))
      this.run = this.stored[this.current().models];
    else if (!this.run || text.read) this.run = text;
    else return false;
    return true;
  }

  /** Let the worker read the first n bytes. Return whether it has still to read. */
  read(of, tokens, all, n) {
    const {reader} = this, {text} = reader;
    if (text?.of !== of || text.capacity < n)
      Object.assign(reader.begin(tokens, all, n <= 1024 ? 1024 : max), {of, all});
    if (reader.text.read < n) reader.want(n);
    return reader.text.read < n;
  }

  /** Return the perplexity of each line in a range, [[name, number]], the lowest first, of those that can read it. */
  ranked(range) {
    return this.run.all.map(({name, limit}, k) => [name, perplexity(this.run.losses[k], range), limit])
      .filter(([, , limit]) => range[1] <= limit)
      .sort((a, b) => a[1] - b[1]);
  }

  /** Return the rows of the table that is saved: the mean losses in ranges [from, to) of positions. A text that was
   * read has a row for each byte. */
  rows() {
    const step = this.isStored() ? this.part : 1;
    return Array.from({length: this.shown() / step},
      (_, n) => [n * step, (n + 1) * step,
        ...this.run.losses.map(loss => Number.isNaN(loss[n * step]) ? '' : loss[n * step])]);
  }

  /** Return the perplexities of each line in the ranges of positions that are shown, by the line's name. */
  perplexities() {
    return Object.fromEntries(this.run.all.map(
      ({name, limit}, k) => [name,
        rangesOf(this.shown()).filter(([, to]) => to <= limit).map(range => perplexity(this.run.losses[k], range))]));
  }
}

/** Return the perplexities in a range in words, such as "5.0 with T5 and 6.1 with ALiBi", the lowest first. */
function listed(reading, range) {
  const found =
    reading.ranked(range).map(([name, x], k) => [h(k ? 'span' : 'strong', {}, fixed(x, 1)), ` with ${name}`]);
  return found.flatMap((text, k) => [!k ? '' : k === found.length - 1 ? ' and ' : ', ', ...text]);
}

/** Return the perplexities of the first n bytes as a sentence: those in the last long range, or of all bytes if few are
 * beyond training. */
function finding(reading, n) {
  if (n < trainedAt + 64) return [`Perplexity in the first ${count(n)} bytes is `, ...listed(reading, [0, n]), '.'];
  const far = rangesOf(n).findLast(([from, to]) => to - from >= 64),
        near = reading.ranked([0, trainedAt]).map(([, x]) => fixed(x, 1));
  return [
    `In bytes ${bytes(far)}, perplexity is `, ...listed(reading, far),
    reading.alone() ? '.' : '; the learned table has no entry there.',
    ` In the first ${trainedAt} bytes, the length in training, it is between ${near[0]} and ${near.at(-1)}.`
  ];
}

/** Return the reasons for what `finding` says. constant: see `lastBucket`. */
const reasons = (alone, constant) => [alone ?
    `The model has learned to use T5’s biases, so with other positions it is worse even within the trained ` +
      `length. From distance ${constant} on, all keys share one bias of T5, and a longer text has more of them.` :
    `Beyond the trained length, T5’s bias stays the same (from distance ${
      constant} on), and ALiBi’s penalty grows, so far bytes count less and less. RoPE’s slow pairs reach ` +
      `angles that did not occur in training. Without positions, the model sees more keys than in training.`,
  'Each range is a different part of the text, and some parts are harder to predict: compare the lines within a ' +
    'range, not one line from range to range.']
                                       .map(text => h('p', {}, text));

/** Return the chart of n bytes of at most `end`; found: the perplexity of each line in each range. */
function chartOf(reading, n, end, ranges, found) {
  const first = n > min ? min / 2 : 1,  // the first range has no lower end on a logarithmic axis
    stored = reading.isStored(), rangeAt = x => ranges.find(([, to]) => x < to) ?? ranges.at(-1);
  return chart({
    title: 'Perplexity by position in the text, lower is better',
    xLabel: 'position in the text, in bytes',
    yLabel: 'perplexity',
    logX: true,
    logY: true,
    span: [first, Math.max(stored ? max : end, 2 * trainedAt)],
    ...(stored ? reading.limits[reading.current().models] : {}),  // Play then moves no axis
    named: x => `bytes ${bytes(rangeAt(x))}`,
    series: reading.run.all.map(({name, limit}, k) => {
      // the mean of a few bytes would only be a spike at the end
      const own = ranges.filter(([from, to]) => to <= limit && (to - from >= 16 || !from));
      return {
        name,
        line: k ? 2 : 3,
        steps: true,
        ends: limit < n,
        x: own.flatMap(([from, to]) => [Math.max(from, first), to - 1]),
        y: own.flatMap((_, r) => [found[k][r], found[k][r]])
      };
    }),
    zones: [
      {from: first, to: trainedAt - 0.5, text: 'as in training', shade: true},
      {from: trainedAt - 0.5, to: 2 * max, text: stored || n > 2 * trainedAt ? 'beyond training' : '', shade: false}
    ]
  });
}

/** Draw what a reading has. Return the chart. */
function draw(reading, {picture, said, why, numbers, constant}) {
  const n = reading.shown(), ranges = rangesOf(n), {all, losses, tokens} = reading.run, {length} = reading.current(),
        end = Math.min(length, tokens.length - 1),
        found = losses.map(loss => ranges.map(range => perplexity(loss, range)));
  const figure = chartOf(reading, n, end, ranges, found);
  picture.replaceChildren(figure);
  const whole = end < length ?
    `Your text has ${count(tokens.length)} bytes; all but the first are predicted, from those before. ` :
    '';
  said.replaceChildren(...(n ?
      [
        whole, ...finding(reading, n), reading.alone() ? ` ${untrained}` : '',
        n < end ? ` Reading: ${count(n)} of ${count(end)} bytes …` : ''
      ] :
                  ['Reading …']));
  why.replaceChildren(...reasons(reading.alone(), constant));
  numbers.replaceChildren(...(n ?
      [table(['bytes', ...all.map(({name}) => name)],
        ranges.map((range, r) => [bytes(range), ...found.map(of => Number.isNaN(of[r]) ? 'no entry' : of[r])]),
        {digits: 3, caption: 'Perplexity of each range: exp of the mean loss. Guessing among all bytes has 256.'})] :
      []));
  return figure;
}

/** Read the beginning of a text file, if the view is still on the page then. */
async function openFile(file, picture, change) {
  const text = new TextDecoder().decode(await file.slice(0, max + 1).arrayBuffer(), {stream: true});
  if (!picture.isConnected) return;  // the user has gone to another view
  change({text});
  if (file.size > max + 1)
    picture.dispatchEvent(new CustomEvent('refused', {
      bubbles: true,
      detail: `${file.name} has ${count(file.size)} bytes: the models read at most its first ${count(max + 1)}.`
    }));
}

/** Return the field for the reader's text. */
function textField(change) {
  const words = h('textarea', {
    id: 'long-text',
    rows: 4,
    maxlength: max + 1,
    spellcheck: 'false',
    'data-key': 'text',
    placeholder: 'empty: a part of Vim’s help that no model has seen',
    oninput: () => change({text: words.value})
  });
  return words;
}

/** Return the controls; longest(state): the largest length; words, input: fields for the reader's text. */
const settingsOf = (change, longest, part, words, input) => controls(
  [
    {
      key: 'models',
      label: 'Models',
      type: 'select',
      options: [['own', 'five, one for each scheme'], ['swapped', 'one, trained with T5']]
    },
    {
      key: 'length',
      label: 'Length of the text, in bytes',
      type: 'range',
      min,
      max,
      step: part,
      lower: min,
      upper: max,
      limit: longest
    },
    {key: 'also', label: 'Another term for the one model, such as log,lambda=0.3', type: 'text'},
    {key: 'text', type: 'text'}
  ],
  change, h('div', {class: 'field'}, h('label', {for: 'long-text'
  }, 'Your text'), h('div', {class: 'wide'}, words, input)));

const save = (text, of) => h('button', {type: 'button', onclick: of}, text);

/** Return buttons that save the models of each set. Each model has a button, because browsers ask before they save
 * several files after one press. */
function modelButtons(core) {
  const saveModel = async ({m, file}) => {
    const {head, bytes} = (await allModels())[m];
    download(file, (m ? new Trained(core, head, bytes, m) : await Trained.load(core)).file());
  };
  return Object.fromEntries(Object.entries(sets).map(([set, lines]) => {
    const own = lines.filter(({m}, k) => !k || m);
    return [
      set,
      h('div', {class: 'row', role: 'group', 'aria-label': 'Save the models'},
        own.length > 1 && h('span', {}, 'Save the model with '),
        own.map(line => save(own.length > 1 ? line.name : 'Save the model', () => saveModel(line))))
    ];
  }));
}

/** Return a button that saves the text that is shown. */
const textButton = reading => save('Save the text', () => {
  const {tokens} = reading.run;
  download(textFile, new Blob([tokens.subarray(0, Math.min(reading.current().length + 1, tokens.length))]));
});

const roundingNote = ({lengths}) => {
  const most = Math.max(...Object.values(lengths.rounding).map(([whole, rounded]) => 100 * (rounded / whole - 1)));
  return h('p', {class: 'note'},
    `The page comes with the numbers of the text that it opens with. It reads your own text, other terms and ` +
      `other lengths here, in your browser. The weights are rounded: at length 256, the perplexity on ${
        count(lengths.held_out)} held-out bytes rises by at most ${fixed(most, 1)} %.`);
};

/** Return the button that plays the length up to the last of `ends`. */
function playButton(current, change, ends, part) {
  const play = player({key: 'length', state: current, change, ends, next: doubling(max, part)});
  play.classList.add('main');
  return play;
}

/** Return the parts of the view. */
function viewOf({core, facts, change, current}) {
  const view = {core, facts, current, ends: [min, max], drawn: 0, figure: null, constant: lastBucket(core)};
  for (const name of ['picture', 'why']) view[name] = h('div');
  view.reading = new Reading(core, facts, change, current, () => view.picture.isConnected, () => progress(view));
  const {reading, picture} = view, {part} = reading;
  view.open = file => openFile(file, picture, change);
  view.words = textField(change);
  view.settings = settingsOf(change, state => reading.longest(state), part, view.words,
    fileField({accept: '.txt,text/plain', 'aria-label': 'Open a text file'}, view.open));
  view.said = h('p', {role: 'status'});
  view.numbers = h('div', {class: 'lines'});
  view.starts = h('p', {class: 'note'},
    'Each model is one of three starts of its training, at the best of three learning rates: ' +
      'lab/model/README.md in the source has the others.');
  view.play = playButton(current, change, view.ends, part);
  view.buttons = modelButtons(core);
  view.output =
    h('div', {}, h('div', {class: 'row play'}, view.play), picture, view.said, view.numbers, folded('Why?', view.why),
      roundingNote(facts), view.starts, Object.values(view.buttons), h('div', {class: 'row'}, textButton(reading)));
  return view;
}

/** Draw the text, if something of it is known. */
function show(view) {
  if (!view.reading.choose()) return;
  view.figure = draw(view.reading, view);
  view.drawn = performance.now();
}

/** Show what has been read, but not more often than ten times in a second. */
function progress(view) {
  const {read, tokens} = view.reading.reader.text, done = read >= Math.min(view.current().length, tokens.length - 1);
  if (done || performance.now() - view.drawn > 100) show(view);
  if (done) view.picture.removeAttribute('aria-busy');
}

/** Show the settings and the buttons that a state needs. */
function showSettings({reading, settings, starts, play, ends, buttons, words}, state) {
  const longest = reading.longest(state), short = longest <= min;
  settings.set({...state, length: Math.min(state.length, longest)});
  settings.of('also').element.hidden = !reading.alone();
  starts.hidden = reading.alone();
  settings.of('length').element.hidden = play.hidden = short;
  ends[1] = longest;
  play.rest = `Play: 64 to ${count(longest)}`;
  if (play.getAttribute('aria-pressed') === 'false') play.textContent = play.rest;
  for (const [set, row] of Object.entries(buttons)) row.hidden = set !== state.models;
  if (words.value !== state.text) words.value = state.text;
}

/** Return the command that prints the perplexities of a line for n bytes. */
const evalOf = ({file, option, limit}, n) => shell([
  'relpos', 'lab', 'eval', file, '--text', textFile, '--lengths', Math.min(n, limit),
  ...(limit < n ? ['--bytes', limit] : []), ...(option ? ['--position', option] : [])
]);

/** Show a state in the view. Return what the page saves. */
function compute(view, state) {
  const {core, reading, picture} = view;
  showSettings(view, state);
  const tokens = bytesOf(state.text, view.facts), term = reading.also(), of = reading.wanted(),
        n = Math.min(state.length, tokens.length - 1),
        all = [...sets[state.models], ...(term ? [other(term, term)] : [])];
  if (tokens.length <= 2) throw new Error('the text is too short: write at least three bytes');
  if (term) core.problem({lenQ: 2, lenK: 2, dimK: 8, terms: [term]});
  const {refused} = reading, failed = !reading.ready() && refused?.id === of,
        busy = !reading.ready() && !failed && reading.read(of, tokens, all, n);
  if (busy) picture.setAttribute('aria-busy', true);
  else picture.removeAttribute('aria-busy');
  if (failed) throw new Error(refused.why);
  show(view);
  return {
    name: 'length',
    figure: {svg: () => ofChart(view.figure).svg()},
    docs: ['t5', 'alibi', 'rope'],
    numbers: {get read() { return reading.shown(); }, get perplexity() { return reading.perplexities(); }},
    csv: () => [['from', 'to', ...reading.run.all.map(({name}) => `loss ${name}`)], ...reading.rows()],
    code: {
      CLI:
        `# the buttons below the table save the models and the text\n${all.map(line => evalOf(line, n)).join('\n')}\n`
    }
  };
}

export const length = {
  id: 'length',
  opens: ({name, type}) => type.startsWith('text/') || /\.(txt|md)$/i.test(name),
  title: 'Length: trained models on a longer and longer text',
  name: 'Length',
  defaults: {models: 'own', length: max, also: '', text: ''},

  make({core, facts, change, state: current}) {
    const view = viewOf({core, facts, change, current});
    const page = frame({
      title: this.title,
      facts,
      compute: state => compute(view, state),
      output: view.output,
      settings: view.settings,
      about:
        'Small models, trained on texts of 256 bytes, read a text that is up to 32 times as long. Each of the five ' +
        'was trained with its own positions. Perplexity is low where a model predicts the next byte well: 1 if it ' +
        'is always sure and right, 256 for a guess among all bytes.',
      formula: 'perplexity = exp(mean of −log p(next byte))'
    });
    return {...page, open: view.open};
  }
};
