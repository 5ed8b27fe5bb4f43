// length.js -- the view of a trained model on a longer and longer text: its perplexity by position, with the positions it was trained with and
// with others. SPDX-License-Identifier: Apache-2.0
import {chart} from '../chart.js';
import {shell} from '../code.js';
import {ofChart} from '../export.js';
import {frame} from '../frame.js';
import {Reader} from '../reader.js';
import {doubling, player} from '../story/step.js';
import {modelFile, Trained} from '../trained.js';
import {controls, download, fixed, h, table} from '../ui.js';

const min = 64, max = 8192, trainedAt = 256;
const trainedTerms = 't5,bidirectional=0';  // of the model in lab/model
const schemes = [['', 'T5, as trained'], ['none', 'no positions'], ['alibi', 'ALiBi'], ['rope', 'RoPE']];
const textFile = 'relpos-text.txt';

/** Return the ranges [from, to) of positions that `relpos lab eval` prints for n bytes: up to 64, and then twice as many each time. */
function rangesOf(n) {
  const ranges = [];
  for (let from = 0, to = 64; from < n; from = to, to *= 2) ranges.push([from, Math.min(to, n)]);
  return ranges;
}

/** Return the part of the held-out text that comes with the page, in the form of a text that Reader has read: each byte has the mean loss of its
 * range of `part` bytes. web/lengths.py measured these losses. */
function measured({text, lengths: {part, losses}}) {
  const each = means => Float64Array.from({length: max}, (_, n) => means[Math.floor(n / part)]);
  return {
    read: max,
    tokens: new TextEncoder().encode(text),
    all: schemes,
    losses: schemes.map(([position]) => each(losses[position || trainedTerms]))
  };
}

const perplexity = (loss, [from, to]) => Math.exp(loss.subarray(from, to).reduce((sum, x) => sum + x, 0) / (to - from));
const count = n => n.toLocaleString('en');

export const length = {
  id: 'length',
  title: 'Length: a trained model on a longer and longer text',
  name: 'Length',
  defaults: {length: 1024, also: '', text: ''},

  make({core, facts, change, state: current}) {
    const stored = measured(facts), {part} = facts.lengths;
    let run = null, refused = null, drawn = 0, figure = null;  // run: the text that is shown, or null
    const reader = new Reader(core, () => picture.isConnected && !ready() ? progress() : reader.want(0), (why, text) => {
      refused = {id: text.of, why};
      change({});
    });
    const own = h('textarea', {
      id: 'long-text',
      rows: 4,
      maxlength: max + 1,
      spellcheck: 'false',
      'data-key': 'text',
      placeholder: 'empty: a part of Vim’s help that the model has not seen',
      oninput: () => change({text: own.value})
    });
    const open = h('input', {
      type: 'file',
      accept: '.txt,text/plain',
      'aria-label': 'Open a text file',
      onchange: async () => {
        const [file] = open.files;
        if (file) change({text: new TextDecoder().decode(await file.slice(0, max + 1).arrayBuffer())});
        open.value = '';
      }
    });
    const settings = controls(
      [
        {key: 'length', label: 'Length of the text, in bytes', type: 'range', min, max, step: part, lower: min, upper: max},
        {key: 'also', label: 'Another term to try, such as log,lambda=0.3', type: 'text'}, {key: 'text', type: 'text'}
      ],
      change, h('div', {class: 'field'}, h('label', {for: 'long-text'
      }, 'Your text'), h('div', {class: 'wide'}, own, open)));
    const
      picture = h('div'),
      said = h('p', {role: 'status'}), numbers = h('div'),
      note = h('p', {class: 'note'},
        'Each range is a different part of the text, and some parts are harder to predict: compare the lines within a range, not one line from range to range. The page comes with the numbers of the text that it opens with. It reads your own text, other terms and other lengths here, in your browser.');
    const play =
      player({key: 'length', state: current, change, text: 'Play: 64 to 8,192', ends: [min, max], next: doubling(max, part)});
    const save = (text, name, of) => h('button', {type: 'button', onclick: async () => download(name, await of ())}, text);
    const output = h('div', {}, picture, h('div', {class: 'row'}, play), said, note, numbers,
      h('div', {class: 'row'}, save('Save the model', modelFile, async () => (await Trained.load(core)).file()),
        save('Save the text', textFile,
          () => new Blob([run.tokens.subarray(0, Math.min(current().length + 1, run.tokens.length))]))));
    const bytesOf = text => new TextEncoder().encode(text || facts.text).subarray(0, max + 1);
    /** Return true if the text and the schemes are those of the stored numbers. */
    const given = () => !current().text && !current().also.trim();
    /** Return the number of bytes that the stored numbers cover: whole ranges of `part`. */
    const whole = () => current().length - current().length % part;
    /** Return true if nothing has to be read. */
    const ready = () => given() && whole() === current().length;
    /** Return how many bytes of the wanted length are shown. */
    const shown = () => run === stored ? whole() : Math.min(run.read, current().length);

    const t5 = {buckets: 32, maxDistance: 128, bidirectional: false, strategy: 0};  // the defaults of trainedTerms
    let constant = 0;                                                               // the smallest distance in T5's last bucket
    while (core.bucket(-constant, t5) !== t5.buckets - 1) constant++;
    /** Return the perplexities of the first n bytes in words: beyond the trained length, or of the last range if few bytes are beyond it. */
    const finding = n => {
      const few = n < trainedAt + 64, range = few ? rangesOf(n).at(-1) : [trainedAt, n],
            bytes = `${count(range[0])} to ${count(range[1] - 1)}`;
      const first = [0, trainedAt], of = range => run.losses.map(loss => perplexity(loss, range)), found = of(range),
            times = ([t5, , alibi]) => fixed(alibi / t5, 1);
      const listed = run.all.map(([, name], k) => `${fixed(found[k], 1)} with ${k ? name : 'T5'}`),
            list = `${listed.slice(0, -1).join(', ')} and ${listed.at(-1)}`;
      if (few) return `In bytes ${bytes}, perplexity is ${list}.`;
      return `Beyond the ${trainedAt} bytes of training, in bytes ${bytes}, perplexity is ${list}. With ALiBi it is ${
        times(found)} times that with T5; in the first ${trainedAt} bytes, where T5 has ${fixed(of(first)[0], 1)}, it is ${
        times(of(first))} times. T5’s bias stays the same from distance ${
        constant} on, ALiBi’s penalty keeps growing, and RoPE rotates its slow pairs by angles that ${
        trainedAt} bytes do not reach.`;
    };

    /** Return the rows of the table that is saved: the mean losses in ranges [from, to) of positions. A text that was read has a row for each byte. */
    const rows = () => {
      const step = run === stored ? part : 1;
      return Array.from(
        {length: shown() / step}, (_, n) => [n * step, (n + 1) * step, ...run.losses.map(loss => loss[n * step])]);
    };

    const draw = () => {
      const n = shown(), ranges = rangesOf(n), {all, losses, tokens} = run, end = Math.min(current().length, tokens.length - 1);
      const found = losses.map(loss => ranges.map(range => perplexity(loss, range)));
      const bytes = ([from, to]) => `${count(from)} to ${count(to - 1)}`,
            rangeAt = x => ranges.find(([, to]) => x < to) ?? ranges.at(-1);
      figure = chart({
        title: 'Perplexity by position in the text, lower is better',
        xLabel: 'position in the text, in bytes',
        yLabel: 'perplexity',
        logX: true,
        logY: true,
        span: [min / 2, Math.max(end, 2 * trainedAt)],
        named: x => `bytes ${bytes(rangeAt(x))}`,
        series: all.map(([, name], k) => ({
          name,
          line: k ? 2 : 3,
          steps: true,
          x: ranges.flatMap(([from, to]) => [Math.max(from, min / 2), to - 1]),
          y: ranges.flatMap((_, r) => [found[k][r], found[k][r]])
        })),
        zones: [{from: min / 2, to: trainedAt - 0.5, text: 'as in training', shade: true}]
      });
      picture.replaceChildren(figure);
      said.textContent = n ? `${finding(n)} The model was trained with T5, on texts of ${
                               trainedAt} bytes; the other schemes get its weights without more training.${
                               n < end ? ` Reading: ${count(n)} of ${count(end)} bytes …` : ''}` :
                             'Reading …';
      numbers.replaceChildren(
        ...(n ? [table(['bytes', ...ranges.map(bytes)], all.map(([, name], k) => [name, ...found[k]]),
                  {digits: 3, caption: 'Perplexity of each range: exp of the mean loss. Guessing among all bytes has 256.'})] :
                []));
    };

    /** Draw the stored numbers, or what has been read of another text. Before its first bytes, the picture of the text before stays. */
    const show = () => {
      if (ready() || given() && reader.text.read <= whole()) run = stored;
      else if (!run || reader.text.read) run = reader.text;
      else return;
      draw();
      drawn = performance.now();
    };

    /** Show what has been read, but not more often than ten times in a second. */
    const progress = () => {
      const {read, tokens} = reader.text, done = read >= Math.min(current().length, tokens.length - 1);
      if (done || performance.now() - drawn > 100) show();
      if (done) picture.removeAttribute('aria-busy');
    };

    /** Let the worker read the first n bytes. */
    const read = (of, tokens, all, n) => {
      const {text} = reader;
      if (text?.of !== of || text.capacity < n)
        Object.assign(reader.begin(tokens, all.map(([position]) => position || trainedTerms), n <= 1024 ? 1024 : max), {of, all});
      if (reader.text.read < n) reader.want(n);
      return reader.text.read < n;
    };

    const compute = state => {
      settings.set(state);
      if (own.value !== state.text) own.value = state.text;
      const tokens = bytesOf(state.text), also = state.also.trim(), of = JSON.stringify([state.text, also]),
            all = also ? [...schemes, [also, also]] : schemes, n = Math.min(state.length, tokens.length - 1);
      if (tokens.length <= 2) throw new Error('the text is too short: write at least three bytes');
      if (also) core.problem({lenQ: 2, lenK: 2, dimK: 8, terms: [also]});
      const failed = !ready() && refused?.id === of, reading = !ready() && !failed && read(of, tokens, all, n);
      if (reading) picture.setAttribute('aria-busy', true);
      else picture.removeAttribute('aria-busy');
      if (failed) throw new Error(refused.why);
      show();
      const eval_ = ([position]) => shell(
        ['relpos', 'lab', 'eval', modelFile, '--text', textFile, '--lengths', n, ...(position ? ['--position', position] : [])]);
      return {
        name: 'length',
        figure: {svg: () => ofChart(figure).svg()},
        docs: ['t5', 'alibi', 'rope'],
        numbers: {
          get read() { return shown(); },
          get perplexity() {
            return Object.fromEntries(
              run.all.map(([, name], k) => [name, rangesOf(shown()).map(range => perplexity(run.losses[k], range))]));
          }
        },
        csv: () => [['from', 'to', ...run.all.map(([, name]) => `loss ${name}`)], ...rows()],
        code: {CLI: `# “Save the model” and “Save the text” write the two files\n${all.map(eval_).join('\n')}\n`}
      };
    };
    return frame({
      title: this.title,
      facts,
      compute,
      output,
      settings,
      about:
        'A small model, trained with T5 on texts of 256 bytes, reads a text that is up to 32 times as long. Press Play: each line shows how well it predicts the next byte at each distance from the beginning, with T5 and with other positions. Perplexity is the number of equally likely bytes among which the model would be as unsure.',
      formula: 'perplexity = exp(mean of −log p(next byte))'
    });
  }
};
