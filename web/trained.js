// trained.js -- decoders of bytes that relpos lab trained: their weights come with the page, and web/trained.c runs
// them. SPDX-License-Identifier: Apache-2.0
import {scaledRows, unpackObject} from './core.js';

export const modelFile = 'relpos-model.safetensors';  // the name under which the page saves the model

const vocab = 256;

/** Return the models that bundle.py packed in an element: for each, a header, and the half-precision numbers of all
 * arrays, then their 8-bit numbers. */
const modelsIn = id => unpackObject(id).then(
  ({models, bytes: all}) => models.map(({bytes: [from, to], ...head}) => ({head, bytes: all.subarray(from, to)})));

/** Return all models: that of the story, which has the number 0, and those of lab/model/length. */
export const allModels = async () => [...await modelsIn('trained'), ...await modelsIn('small')];

export class Trained {
  /** Return the model of the story. All views share it. */
  static load(core) {
    return Trained.loaded ??= modelsIn('trained').then(([{head, bytes}]) => new Trained(core, head, bytes));
  }

  /** m: the number of the model in the module, which has one of each number. Only model 0 has run, maps and row. */
  constructor(core, head, bytes, m = 0) {
    Object.assign(this, {core, head, m, position: /^position = (.*)$/m.exec(head.config)[1]});
    this.heads = +/^heads = (.*)$/m.exec(head.config)[1];
    const halves = core.doubles(bytes.subarray(0, 2 * head.halves), 'f16', head.halves);
    this.check(core.x.model_begin(m, core.put(head.config)));
    let half = 0, byte = 2 * head.halves;
    const eighths = new Int8Array(bytes.buffer, bytes.byteOffset, bytes.length);
    for (const [name, shape] of head.arrays) {
      const [rows, columns] = shape, to = this.weights(name);
      if (!head.scaled.includes(name)) {
        to.set(halves.subarray(half, half += to.length));
        continue;
      }
      to.set(scaledRows(halves.subarray(half, half += rows), eighths.subarray(byte, byte += rows * columns), columns));
    }
  }

  check(code) {
    if (code < 0) throw new Error(this.core.string(this.core.x.model_error()));
  }

  /** Return the weights of the array `name` in the module's memory. */
  weights(name) {
    const {core, head, m} = this, at = core.x.model_weights(m, core.put(name));
    const n = head.arrays.find(array => array[0] === name)[1].reduce((a, b) => a * b, 1);
    return new Float32Array(core.x.memory.buffer, at, n);
  }

  /** Run a text with these terms. tokens: its bytes. Return the loss of each next byte, and the logits [n * 256]. */
  run(tokens, position = this.position) {
    const {core} = this, n = tokens.length;
    core.clear();
    const logits = core.allocate(4 * n * vocab), scratch = core.allocate(4 * n * vocab), loss = core.allocate(8 * n);
    this.check(core.x.model_run(core.put(position), core.copy(Int32Array.from(tokens)), n, logits, scratch, loss));
    this.length = n;
    return {loss: core.read(loss, n - 1), logits: core.read(logits, n * vocab, 'f32')};
  }

  /** Return the attention weights of all heads of a layer in the last run [heads * n * n]. */
  maps(layer) {
    const n = this.heads * this.length ** 2;
    this.core.clear();
    const at = this.core.allocate(8 * n);
    this.check(this.core.x.model_maps(layer, at));
    return this.core.read(at, n);
  }

  /** Return the scores of a query without the position terms, with them, and the weights, in the last run. */
  row(layer, head, i) {
    const n = this.length;
    this.core.clear();
    const at = this.core.allocate(24 * n);
    this.check(this.core.x.model_row(layer, head, i, at));
    const [content, score, weights] = [0, 1, 2].map(x => this.core.read(at + 8 * n * x, n));
    return {content, score, weights};
  }

  /** Let reader n (0 to 4) begin a text of at most `length` bytes with these terms. It keeps what it has read until
   * end(n). */
  begin(n, position, length) {
    this.core.clear();
    this.check(this.core.x.reader_begin(n, this.m, this.core.put(position), length));
  }

  /** Let reader n read tokens, at most 64 and one more: the last is only predicted. Return the loss of each token after
   * the first. */
  next(n, tokens) {
    const {core} = this, count = tokens.length - 1;
    core.clear();
    const loss = core.allocate(8 * count);
    this.check(core.x.reader_next(n, core.copy(Int32Array.from(tokens)), count, loss));
    return core.read(loss, count);
  }

  end(n) { this.core.x.reader_end(n); }

  /** Return the model as a .safetensors file with the same weights, which relpos lab reads. */
  file() {
    const {head} = this, arrays = {};
    let end = 0;
    for (const [name, shape] of head.arrays) {
      const first = end;
      end += 4 * shape.reduce((a, b) => a * b, 1);
      arrays[name] = {dtype: 'F32', shape, data_offsets: [first, end]};
    }
    const metadata = {'relpos.lab': head.config, step: head.step, checksum: head.checksum};
    const text = new TextEncoder().encode(JSON.stringify({__metadata__: metadata, ...arrays}));
    const parts =
      [new BigUint64Array([BigInt(text.length)]), text, ...head.arrays.map(([name]) => this.weights(name).slice())];
    return new Blob(parts, {type: 'application/octet-stream'});
  }
}

/** Return the probabilities of all bytes after byte i. */
export function probabilities(logits, i) {
  const row = Float64Array.from(logits.subarray(i * vocab, (i + 1) * vocab)), max = Math.max(...row);
  const e = row.map(x => Math.exp(x - max)), sum = e.reduce((a, b) => a + b, 0);
  return e.map(x => x / sum);
}
